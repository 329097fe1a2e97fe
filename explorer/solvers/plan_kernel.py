"""Compiled search over plans: which activations stay, in which form operators run, and annealing over that.

A plan is one array of genes. Activation ``a`` of the forward pass has ``gene_start[a + 1] - gene_start[a]`` of them, 0
or 1: the first says whether it stays after the forward pass; number ``1 + u`` whether it stays once it was read or
recomputed when ``u`` of the backward operators that may read it have passed. Every site with several forms has a gene
for its form. ``decode`` recomputes what is missing just before a backward operator needs it, so every plan is a valid
order; ``_judge`` then frees greedily and chooses the quickest option of every run that fits the budget, exactly as
``Problem.schedule_of`` does, and yields the peak and the time that ``simulate`` finds for that.
"""

# numba has its own generator behind np.random's old names, and pays for every small function with compile time.
# ruff: noqa: C901, NPY002, PLR0912, PLR0915

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from explorer.solvers.plan_arrays import PlanArrays

# Only ``anneal`` is called from Python; without wrappers of their own the others compile twice as fast.
_inner: Any = njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # pyright: ignore[reportCallIssue]


@_inner
def decode(arrays: PlanArrays, genes: np.ndarray, order: np.ndarray) -> int:
    """Write the sites that ``genes`` run into ``order``; returns their number, −1 if ``order`` is too short."""
    forward = arrays.forward_count
    backward = arrays.idle_bytes.size
    available = np.ones(arrays.bytes.size, np.bool_)
    passed = np.zeros(arrays.bytes.size, np.int32)
    wanted = np.zeros(forward, np.bool_)
    touched = np.empty(arrays.bytes.size, np.int32)
    is_touched = np.zeros(arrays.bytes.size, np.bool_)
    stack = np.empty(forward + 1, np.int32)
    if forward > order.size:
        return -1
    for activation in range(available.size):
        if arrays.droppable[activation]:
            available[activation] = genes[arrays.gene_start[activation]] == 1
    count = 0
    for operator in range(forward):
        form = arrays.form_start[operator]
        if form == arrays.form_start[operator + 1]:
            continue
        if arrays.form_gene[operator] >= 0:
            form += genes[arrays.form_gene[operator]]
        if arrays.may_skip[operator]:
            kept = False
            for at in range(arrays.write_start[form], arrays.write_start[form + 1]):
                kept |= available[arrays.writes[at]]
            if not kept:
                continue
        order[count] = operator
        count += 1
    for number in range(backward):
        site = 2 * forward + number
        form = arrays.form_start[site]
        if form == arrays.form_start[site + 1]:
            continue
        if arrays.form_gene[site] >= 0:
            form += genes[arrays.form_gene[site]]
        for at in range(arrays.reader_start[number], arrays.reader_start[number + 1]):
            passed[arrays.readers[at]] += 1
        touches = 0
        lowest, highest, depth = forward, -1, 0
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            activation = arrays.reads[at]
            if not arrays.droppable[activation]:
                continue
            if not is_touched[activation]:
                is_touched[activation] = True
                touched[touches] = activation
                touches += 1
            maker = arrays.producer[activation]
            if not available[activation] and not wanted[maker]:
                wanted[maker] = True
                stack[depth] = maker
                depth += 1
        while depth:
            depth -= 1
            maker = stack[depth]
            lowest, highest = min(lowest, maker), max(highest, maker)
            again = arrays.form_start[forward + maker]
            if arrays.form_gene[forward + maker] >= 0:
                again += genes[arrays.form_gene[forward + maker]]
            for at in range(arrays.read_start[again], arrays.read_start[again + 1]):
                activation = arrays.reads[at]
                earlier = arrays.producer[activation]
                if not available[activation] and not wanted[earlier]:
                    wanted[earlier] = True
                    stack[depth] = earlier
                    depth += 1
        for maker in range(lowest, highest + 1):
            if not wanted[maker]:
                continue
            wanted[maker] = False
            if count == order.size:
                return -1
            order[count] = forward + maker
            count += 1
            again = arrays.form_start[forward + maker]
            if arrays.form_gene[forward + maker] >= 0:
                again += genes[arrays.form_gene[forward + maker]]
            for at in range(arrays.write_start[again], arrays.write_start[again + 1]):
                activation = arrays.writes[at]
                available[activation] = True
                if arrays.droppable[activation] and not is_touched[activation]:
                    is_touched[activation] = True
                    touched[touches] = activation
                    touches += 1
        if count == order.size:
            return -1
        order[count] = site
        count += 1
        for at in range(touches):
            activation = touched[at]
            is_touched[activation] = False
            available[activation] = genes[arrays.gene_start[activation] + 1 + passed[activation]] == 1
    return count


@_inner
def _judge(
    arrays: PlanArrays, genes: np.ndarray, order: np.ndarray, count: int, budget: float
) -> tuple[int, float, float]:
    """The first ``count`` sites in ``order``, freed greedily: peak (bytes), time (ms), and what exceeds the budget.

    That is the peak's excess and a tenth of every run's: the sum tells apart plans that lower one of several peaks.
    """
    forward = arrays.forward_count
    alive = arrays.held.copy()
    now = arrays.fixed_bytes
    for activation in range(alive.size):
        if alive[activation]:
            now += arrays.bytes[activation]
    peak = now
    time_ms = 0.0
    excess = 0.0
    idle = 0
    for position in range(count - 1, -1, -1):
        site = order[position]
        form = arrays.form_start[site]
        if arrays.form_gene[site] >= 0:
            form += genes[arrays.form_gene[site]]
        writes = arrays.writes[arrays.write_start[form] : arrays.write_start[form + 1]]
        reads = arrays.reads[arrays.read_start[form] : arrays.read_start[form + 1]]
        again = forward <= site < 2 * forward
        extra = 0
        if site >= 2 * forward:
            idle = arrays.idle_bytes[site - 2 * forward]
            extra += arrays.made_bytes[site - 2 * forward]
        elif again or arrays.may_skip[site]:
            useful = False
            for activation in writes:
                useful |= alive[activation] and not (again and arrays.held[activation])
            if not useful:
                continue
            if again:
                # A second copy of something that is alive goes as soon as the call returns.
                for activation in writes:
                    if arrays.held[activation]:
                        extra += arrays.bytes[activation]
                    else:
                        for other in reads:
                            extra += arrays.bytes[activation] if other == activation else 0
        if site < forward:
            idle = 0
        level = now + idle + extra
        for activation in writes:
            if not alive[activation]:
                level += arrays.bytes[activation]
        for activation in reads:
            written = False
            for other in writes:
                written |= other == activation
            if not alive[activation] and not written:
                level += arrays.bytes[activation]
        # The quickest option that fits, else the smallest.
        chosen, smallest = -1, -1
        for option in range(arrays.option_start[form], arrays.option_start[form + 1]):
            over = arrays.option_over[option]
            if over >= 0 and alive[over]:
                continue
            if level + arrays.option_extra[option] <= budget:
                chosen = option
                break
            if smallest < 0 or arrays.option_extra[option] < arrays.option_extra[smallest]:
                smallest = option
        if chosen < 0:
            chosen = smallest
        level += arrays.option_extra[chosen]
        time_ms += arrays.option_ms[chosen]
        peak = max(peak, level)
        excess += max(0.0, level - budget)
        for activation in writes:
            if alive[activation] and not (again and arrays.held[activation]):
                alive[activation] = False
                now -= arrays.bytes[activation]
        for activation in reads:
            if not alive[activation]:
                # An operator that reads what it writes again (statistics of its first run) needs the earlier copy.
                alive[activation] = True
                now += arrays.bytes[activation]
    return peak, time_ms, max(0.0, peak - budget) + 0.1 * excess  # pyright: ignore[reportReturnType] - numba's scalars


@_inner
def _switch(arrays: PlanArrays, genes: np.ndarray) -> None:
    """Give a site another form; what only the old one reads hands its keeps over to what only the new one reads."""
    site = arrays.switches[np.random.randint(arrays.switches.size)]
    gene = arrays.form_gene[site]
    first = arrays.form_start[site]
    old = first + genes[gene]
    genes[gene] = np.random.randint(arrays.form_start[site + 1] - first)
    new = first + genes[gene]
    if old == new:
        return
    kept = False
    follow = np.random.random() < 0.7
    for at in range(arrays.read_start[old], arrays.read_start[old + 1]):
        activation = arrays.reads[at]
        both = False
        for other in range(arrays.read_start[new], arrays.read_start[new + 1]):
            both |= arrays.reads[other] == activation
        if both:
            continue
        if arrays.droppable[activation]:
            start = arrays.gene_start[activation]
            kept |= genes[start] == 1
            if follow:
                genes[start] = 0
        # Others that read it too may do without it as well.
        for other_site in arrays.switches:
            other = arrays.form_start[other_site] + genes[arrays.form_gene[other_site]]
            reads_it = False
            for place in range(arrays.read_start[other], arrays.read_start[other + 1]):
                reads_it |= arrays.reads[place] == activation
            if reads_it and follow and other_site != site:
                genes[arrays.form_gene[other_site]] = np.random.randint(
                    arrays.form_start[other_site + 1] - arrays.form_start[other_site]
                )
    for at in range(arrays.read_start[new], arrays.read_start[new + 1]):
        activation = arrays.reads[at]
        both = False
        for other in range(arrays.read_start[old], arrays.read_start[old + 1]):
            both |= arrays.reads[other] == activation
        if not both and arrays.droppable[activation] and (kept or np.random.random() < 0.5):
            genes[arrays.gene_start[activation]] = 1


@_inner
def _move(arrays: PlanArrays, genes: np.ndarray) -> None:
    """Change ``genes`` a little, in one of six ways."""
    choices = arrays.choices
    if arrays.switches.size and (choices.size == 0 or np.random.random() < 0.25):
        _switch(arrays, genes)
        return
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
    peak, time_ms, excess = _judge(arrays, genes, order, count, budget)
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
