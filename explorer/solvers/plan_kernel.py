"""Compiled search over plans: which activations stay, what that costs in time and memory, and annealing over it.

A plan is one array of genes, 0 or 1. Storage ``s`` of the forward pass has ``gene_start[s + 1] - gene_start[s]`` of them:
the first says whether it stays after the forward pass; number ``1 + u`` whether it stays once it was read or recomputed
when ``u`` backward operators have read it. ``decode`` recomputes what is missing just before a backward operator needs
it, so every plan is a valid order; ``judge`` then frees greedily, exactly as ``schedule.with_frees`` does, and yields
the peak and the time that ``simulate`` finds for it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit


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
    fixed_bytes: int


@njit(cache=True, nogil=True)
def decode(arrays, genes, order):
    """Write the order of runs that ``genes`` mean into ``order``; returns their number, −1 if ``order`` is too short."""
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


@njit(cache=True, nogil=True)
def judge(arrays, order, count):
    """Peak (bytes), time (ms) and position of the peak of the first ``count`` runs in ``order``, freed greedily."""
    forward = arrays.forward_count
    alive = arrays.held.copy()
    now = arrays.fixed_bytes
    for storage in range(alive.size):
        if alive[storage]:
            now += arrays.storage_bytes[storage]
    peak, time_ms, where = now, 0.0, count - 1
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
        if now + extra > peak:
            peak, where = now + extra, position
        for storage in writes:
            if not (arrays.held[storage] and operator < forward <= position):
                alive[storage] = False
                now -= arrays.storage_bytes[storage]
        for storage in reads:
            if not alive[storage]:
                # An operator that reads what it writes again (statistics of its first run) needs the earlier copy.
                alive[storage] = True
                now += arrays.storage_bytes[storage]
    return peak, time_ms, where


@njit(cache=True, nogil=True)
def _move(arrays, genes):
    """Change ``genes`` a little, in one of five ways."""
    choices = arrays.choices
    at = np.random.randint(choices.size)
    start, end = arrays.gene_start[choices[at]], arrays.gene_start[choices[at] + 1]
    kind = np.random.random()
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


@njit(cache=True, nogil=True)
def evaluate(arrays, genes, order, archive, archive_peaks, archive_ms):
    """Peak and time of a plan (infinite if its order is too long), remembered in the archive if best in its cell.

    Cell c of the archive holds the quickest plan with archive_edges[c - 1] < peak <= archive_edges[c]; the edges are
    row 0 of ``archive_peaks``, the peaks of the plans held row 1.
    """
    count = decode(arrays, genes, order)
    if count < 0:
        return np.inf, np.inf
    peak, time_ms, _ = judge(arrays, order, count)
    cell = np.searchsorted(archive_peaks[0], peak)
    if cell < archive_ms.size and time_ms < archive_ms[cell]:
        archive_ms[cell] = time_ms
        archive_peaks[1, cell] = peak
        archive[cell] = genes
    return float(peak), time_ms


@njit(cache=True, nogil=True)
def anneal(arrays, genes, budget, tries, temperatures, penalty, seed, order, archive, archive_peaks, archive_ms):
    """Anneal ``genes`` in place for ``tries`` plans; the best within ``budget`` replaces it.

    The objective is time plus ``penalty`` (ms per byte) times what the peak exceeds the budget by; the temperature
    (ms) falls geometrically from ``temperatures[0]`` to ``temperatures[1]``.

    Returns:
        peak and time of the best plan: the quickest that fits, else the one of least objective.
    """
    np.random.seed(seed)
    current, best = genes.copy(), genes.copy()
    peak, time_ms = evaluate(arrays, current, order, archive, archive_peaks, archive_ms)
    value = time_ms + penalty * max(0.0, peak - budget)
    best_peak, best_ms, best_value, best_fits = peak, time_ms, value, peak <= budget
    cooling = (temperatures[1] / temperatures[0]) ** (1.0 / max(1, tries))
    temperature = temperatures[0]
    for _ in range(tries):
        temperature *= cooling
        trial = current.copy()
        _move(arrays, trial)
        if np.random.random() < 0.3:
            _move(arrays, trial)
        peak, time_ms = evaluate(arrays, trial, order, archive, archive_peaks, archive_ms)
        found = time_ms + penalty * max(0.0, peak - budget)
        if found <= value or np.random.random() < np.exp((value - found) / temperature):
            current, value = trial, found
            fits = peak <= budget
            if (fits and not best_fits) or (fits == best_fits and found < best_value):
                best[:] = trial
                best_peak, best_ms, best_value, best_fits = peak, time_ms, found, fits
    genes[:] = best
    return best_peak, best_ms
