"""Compiled search over plans: which activations stay, what that costs in time and memory, and annealing over it.

A plan is one array of genes, 0 or 1. Storage ``s`` of the forward pass has ``gene_start[s + 1] - gene_start[s]``: the
first says whether it stays after the forward pass; number ``1 + u`` whether it stays once it was read or recomputed
when ``u`` backward operators have read it. ``decode`` recomputes what is missing just before a backward operator needs
it, so every plan is a valid order; ``_judge`` then frees greedily, exactly as ``schedule.with_frees`` does, and yields
the peak and the time that ``simulate`` finds for it.
"""

# numba has its own generator behind np.random's old names, and pays for every small function with compile time.
# ruff: noqa: C901, NPY002, PLR0912, PLR0913, PLR0915, PLR0917

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

# Only ``anneal`` is called from Python; without wrappers of their own the others compile twice as fast.
_inner: Any = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # pyright: ignore[reportCallIssue]


class PlanArrays(NamedTuple):
    """A profile as flat arrays (n operators, f of them forward, m storages); lists of storages are CSR.

    Attributes:
        forward_count: f.
        first_read_start, first_reads: int32 (n + 1,), (·,): storages a first run reads, persistent ones left out.
        first_write_start, first_writes: likewise what it writes.
        again_read_start, again_reads, again_write_start, again_writes: the same of a recomputation, (f + 1,), (·,).
        first_ms, again_ms: float64 (n,), (f,).
        first_workspace, again_workspace: int64 (n,), (f,), bytes.
        storage_bytes: int64 (m,), as allocated.
        held: bool (m,), never freed.
        optional: bool (m,), made by a forward operator that can make it again, and not held.
        producer: int32 (m,), the operator that writes it, −1 for persistent storages.
        gene_start: int32 (m + 1,).
        choices: int32 (·,), the optional storages in the order in which they are made.
        choice_bytes: float64 (·,), their sizes, cumulated.
        fixed_bytes: allocated throughout.
    """

    forward_count: int
    first_read_start: np.ndarray
    first_reads: np.ndarray
    first_write_start: np.ndarray
    first_writes: np.ndarray
    again_read_start: np.ndarray
    again_reads: np.ndarray
    again_write_start: np.ndarray
    again_writes: np.ndarray
    first_ms: np.ndarray
    again_ms: np.ndarray
    first_workspace: np.ndarray
    again_workspace: np.ndarray
    storage_bytes: np.ndarray
    held: np.ndarray
    optional: np.ndarray
    producer: np.ndarray
    gene_start: np.ndarray
    choices: np.ndarray
    choice_bytes: np.ndarray
    fixed_bytes: int


@_inner
def decode(arrays: PlanArrays, genes: np.ndarray, order: np.ndarray) -> int:
    """Write the runs that ``genes`` mean into ``order``; returns their number, −1 if ``order`` is too short."""
    forward, total = arrays.forward_count, arrays.first_ms.size
    available = np.ones(arrays.storage_bytes.size, np.bool_)
    readers = np.zeros(arrays.storage_bytes.size, np.int32)
    wanted = np.zeros(forward, np.bool_)
    touched = np.empty(arrays.storage_bytes.size, np.int32)
    is_touched = np.zeros(arrays.storage_bytes.size, np.bool_)
    stack = np.empty(forward + 1, np.int32)
    if total > order.size:
        return -1
    for operator in range(forward):
        order[operator] = operator
    count = forward
    for storage in range(available.size):
        if arrays.optional[storage]:
            available[storage] = genes[arrays.gene_start[storage]] == 1
    for operator in range(forward, total):
        touches = 0
        lowest, highest, depth = forward, -1, 0
        for at in range(arrays.first_read_start[operator], arrays.first_read_start[operator + 1]):
            storage = arrays.first_reads[at]
            if not arrays.optional[storage]:
                continue
            readers[storage] += 1
            if not is_touched[storage]:
                is_touched[storage] = True
                touched[touches] = storage
                touches += 1
            maker = arrays.producer[storage]
            if not available[storage] and not wanted[maker]:
                wanted[maker] = True
                stack[depth] = maker
                depth += 1
        while depth:
            depth -= 1
            maker = stack[depth]
            lowest, highest = min(lowest, maker), max(highest, maker)
            for at in range(arrays.again_read_start[maker], arrays.again_read_start[maker + 1]):
                storage = arrays.again_reads[at]
                earlier = arrays.producer[storage]
                if not available[storage] and not wanted[earlier]:
                    wanted[earlier] = True
                    stack[depth] = earlier
                    depth += 1
        for maker in range(lowest, highest + 1):
            if not wanted[maker]:
                continue
            wanted[maker] = False
            if count == order.size:
                return -1
            order[count] = maker
            count += 1
            for at in range(arrays.again_write_start[maker], arrays.again_write_start[maker + 1]):
                storage = arrays.again_writes[at]
                available[storage] = True
                if arrays.optional[storage] and not is_touched[storage]:
                    is_touched[storage] = True
                    touched[touches] = storage
                    touches += 1
        if count == order.size:
            return -1
        order[count] = operator
        count += 1
        for at in range(touches):
            storage = touched[at]
            is_touched[storage] = False
            available[storage] = genes[arrays.gene_start[storage] + 1 + readers[storage]] == 1
    return count


@_inner
def _judge(arrays: PlanArrays, order: np.ndarray, count: int, budget: float) -> tuple[int, float, float]:
    """The first ``count`` runs in ``order``, freed greedily: peak (bytes), time (ms), and what exceeds the budget.

    That is the peak's excess and a tenth of every run's: the sum tells apart plans that lower one of several peaks.
    """
    forward = arrays.forward_count
    alive = arrays.held.copy()
    now = arrays.fixed_bytes
    for storage in range(alive.size):
        if alive[storage]:
            now += arrays.storage_bytes[storage]
    peak = now
    time_ms = 0.0
    excess = 0.0
    for position in range(count - 1, -1, -1):
        operator = order[position]
        extra = 0
        if operator < forward <= position:
            useful = False
            writes = arrays.again_writes[arrays.again_write_start[operator] : arrays.again_write_start[operator + 1]]
            # A second copy of something that is alive goes as soon as the call returns.
            for storage in writes:
                useful |= alive[storage] and not arrays.held[storage]
                if arrays.held[storage]:
                    extra += arrays.storage_bytes[storage]
            if not useful:
                continue
            reads = arrays.again_reads[arrays.again_read_start[operator] : arrays.again_read_start[operator + 1]]
            for storage in reads:
                for again in writes:
                    extra += arrays.storage_bytes[storage] if storage == again and not arrays.held[storage] else 0
            extra += arrays.again_workspace[operator]
            time_ms += arrays.again_ms[operator]
        else:
            writes = arrays.first_writes[arrays.first_write_start[operator] : arrays.first_write_start[operator + 1]]
            reads = arrays.first_reads[arrays.first_read_start[operator] : arrays.first_read_start[operator + 1]]
            extra += arrays.first_workspace[operator]
            time_ms += arrays.first_ms[operator]
        for storage in writes:
            if not alive[storage]:
                alive[storage] = True
                now += arrays.storage_bytes[storage]
        for storage in reads:
            if not alive[storage]:
                alive[storage] = True
                now += arrays.storage_bytes[storage]
        peak = max(peak, now + extra)
        excess += max(0.0, now + extra - budget)
        for storage in writes:
            if not (arrays.held[storage] and operator < forward <= position):
                alive[storage] = False
                now -= arrays.storage_bytes[storage]
        for storage in reads:
            if not alive[storage]:
                # An operator that reads what it writes again (statistics of its first run) needs the earlier copy.
                alive[storage] = True
                now += arrays.storage_bytes[storage]
    return peak, time_ms, max(0.0, peak - budget) + 0.1 * excess  # pyright: ignore[reportReturnType] - numba's scalars


@_inner
def _move(arrays: PlanArrays, genes: np.ndarray) -> None:
    """Change ``genes`` a little, in one of five ways."""
    choices = arrays.choices
    # Half of the time by size: what is large decides the peak.
    if np.random.random() < 0.5:
        at = np.random.randint(choices.size)
    else:
        at = min(np.searchsorted(arrays.choice_bytes, np.random.random() * arrays.choice_bytes[-1]), choices.size - 1)
    kind = np.random.random()
    start, end = arrays.gene_start[choices[at]], arrays.gene_start[choices[at] + 1]
    if kind < 0.35:  # after the forward pass: keep or drop
        genes[start] ^= 1
    elif kind < 0.55:  # later: keep or drop
        genes[np.random.randint(start + 1, end)] ^= 1
    elif kind < 0.65:  # always keep or never
        genes[start:end] = np.random.randint(2)
    elif kind < 0.85:  # swap with a neighbour
        other = arrays.gene_start[choices[min(max(at + np.random.randint(-6, 7), 0), choices.size - 1)]]
        genes[start], genes[other] = genes[other], genes[start]
        genes[start + 1], genes[other + 1] = genes[other + 1], genes[start + 1]
    else:  # a stretch: keep, drop, or recompute once and keep
        first, later = np.random.randint(2), np.random.randint(2)
        for neighbour in range(at, min(at + 1 + np.random.randint(12), choices.size)):
            start, end = arrays.gene_start[choices[neighbour]], arrays.gene_start[choices[neighbour] + 1]
            genes[start] = first
            genes[start + 1 : end] = later


class Archive(NamedTuple):
    """The quickest plan found in each range of peaks.

    Attributes:
        edges: int64 (cells,), increasing: cell c is for peaks in (edges[c − 1], edges[c]].
        genes: uint8 (cells, genes).
        peaks: int64 (cells,), of the plans in ``genes``.
        times_ms: float64 (cells,), infinite where a cell is empty.
    """

    edges: np.ndarray
    genes: np.ndarray
    peaks: np.ndarray
    times_ms: np.ndarray


@_inner
def _evaluate(
    arrays: PlanArrays, genes: np.ndarray, budget: float, order: np.ndarray, archive: Archive
) -> tuple[float, float, float]:
    """Peak and time of a plan (infinite if its order is too long), archived if it is the best of its cell."""
    count = decode(arrays, genes, order)
    if count < 0:
        return np.inf, np.inf, np.inf
    peak, time_ms, excess = _judge(arrays, order, count, budget)
    cell = np.searchsorted(archive.edges, peak)
    if cell < archive.times_ms.size and time_ms < archive.times_ms[cell]:
        archive.times_ms[cell] = time_ms
        archive.peaks[cell] = peak
        archive.genes[cell] = genes
    return float(peak), time_ms, excess


@njit(cache=True, nogil=True)
def anneal(
    arrays: PlanArrays,
    genes: np.ndarray,
    budget: float,
    tries: int,
    temperatures: tuple[float, float],
    penalties: tuple[float, float],
    seed: int,
    order: np.ndarray,
    archive: Archive,
) -> tuple[float, float, int]:
    """Anneal ``genes`` in place for ``tries`` plans (0 only evaluates them); every plan on the way is archived.

    The objective is time plus a penalty (ms per byte) times what exceeds the budget (``_judge``). Over the tries the
    temperature (ms) falls and the penalty rises geometrically, each from its first to its second value.

    Returns:
        peak and time of the plan that ``genes`` is then: the quickest that fits, else the one of least peak; and
        how many entries of ``order`` are its runs, −1 if ``order`` is too short for it.
    """
    np.random.seed(seed)
    current, best = genes.copy(), genes.copy()
    peak, time_ms, excess = _evaluate(arrays, current, budget, order, archive)
    best_peak, best_ms = peak, time_ms
    cooling = (temperatures[1] / temperatures[0]) ** (1.0 / max(1, tries))
    tightening = (penalties[1] / penalties[0]) ** (1.0 / max(1, tries))
    temperature, penalty = temperatures[0], penalties[0]
    for _ in range(tries):
        temperature *= cooling
        penalty *= tightening
        trial = current.copy()
        _move(arrays, trial)
        if np.random.random() < 0.3:
            _move(arrays, trial)
        found_peak, found_ms, found_excess = _evaluate(arrays, trial, budget, order, archive)
        value = time_ms + penalty * excess
        found = found_ms + penalty * found_excess
        if found <= value or np.random.random() < np.exp((value - found) / temperature):
            current, peak, time_ms, excess = trial, found_peak, found_ms, found_excess
            over, best_over = max(0.0, peak - budget), max(0.0, best_peak - budget)
            if over < best_over or (over == best_over and time_ms < best_ms):
                best[:] = trial
                best_peak, best_ms = peak, time_ms
    genes[:] = best
    return best_peak, best_ms, decode(arrays, genes, order)
