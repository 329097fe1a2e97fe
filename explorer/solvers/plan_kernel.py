"""Plans as genes, compiled: the order of runs that a plan means, and the peak and time of that order.

A plan is one array of genes:

- Activation ``a`` has ``gene_start[a + 1] - gene_start[a]`` of them, 0 or 1: the first says whether it stays after the
  forward pass; number ``1 + u`` whether it stays once it was read or recomputed when ``u`` of the backward operators
  that may read it have passed.
- Every site with several forms has a gene for its form.
- Every activation has two marks, 0 or 1 + the number of a backward operator after the boundary: recompute it before
  that operator, and drop it after that one. They let one checkpoint turn into another midway.

``decode`` recomputes what is missing just before a backward operator needs it, so every plan is a valid order;
``judge`` then frees greedily and chooses the quickest option of every run that fits the budget, exactly as
``Problem.schedule_of`` does, and yields the peak and the time that ``simulate`` finds for that.
"""

# One flat loop is what compiles to quick code. And ``PlanSearch.sketch`` runs these functions by the interpreter while
# they are not compiled yet: a call from one to another would wait for the compiler. So a few lines repeat themselves.
# ruff: noqa: C901, PLR0912, PLR0915

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from explorer.solvers.plan_arrays import AGAIN, BACKWARD, FIRST, OPTIONAL, PlanArrays

# Only ``anneal`` is called from Python, and only its machine code is kept on disk, these functions inlined: kept by
# themselves they would go stale unnoticed, each of its files knowing nothing of the others.
inner: Any = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # pyright: ignore[reportCallIssue]

_NEVER = np.iinfo(np.int64).max
_SORTED = 24  # up to this many recomputations are put in order by insertion


class Work(NamedTuple):
    """Memory that decoding and judging use again and again; nothing in it outlives a call but the first four.

    Attributes:
        order: uint32, the forms that run, in order.
        count: int32 (1,), how many there are.
        dead_ms: float64 (1,), what judged runs would take, at their quickest, that were left out as nobody reads them.
        peak_at: int32 (1,), where the judged peak is: the backward operator that runs then or is prepared for; −1 − i
            for the first run of forward operator i.
        available, touched_now: uint8 (m,).
        passed: uint32 (m,).
        next_before, next_after: int32 (m,).
        touched: uint32 (m,).
        wanted: uint8 (n,).
        stack, makers: uint32 (n + 1,).
        first_before, first_after: int32 (t + 1,).
        alive: uint8 (m,).
    """

    order: np.ndarray
    count: np.ndarray
    dead_ms: np.ndarray
    peak_at: np.ndarray
    available: np.ndarray
    touched_now: np.ndarray
    passed: np.ndarray
    touched: np.ndarray
    next_before: np.ndarray
    next_after: np.ndarray
    wanted: np.ndarray
    stack: np.ndarray
    makers: np.ndarray
    first_before: np.ndarray
    first_after: np.ndarray
    alive: np.ndarray


def workspace(arrays: PlanArrays, *, length: int) -> Work:
    """Memory for orders of up to ``length`` runs."""
    m, n, t = arrays.bytes.size, arrays.forward_count, arrays.backward_count
    return Work(
        order=np.empty(length, np.uint32),
        count=np.zeros(1, np.int32),
        dead_ms=np.zeros(1),
        peak_at=np.zeros(1, np.int32),
        available=np.zeros(m, np.uint8),
        touched_now=np.zeros(m, np.uint8),
        passed=np.zeros(m, np.uint32),
        touched=np.zeros(m, np.uint32),
        next_before=np.zeros(m, np.int32),
        next_after=np.zeros(m, np.int32),
        wanted=np.zeros(n, np.uint8),
        stack=np.zeros(n + 1, np.uint32),
        makers=np.zeros(n + 1, np.uint32),
        first_before=np.zeros(t + 1, np.int32),
        first_after=np.zeros(t + 1, np.int32),
        alive=np.zeros(m, np.uint8),
    )


@inner
def decode(arrays: PlanArrays, genes: np.ndarray, work: Work, limit: float) -> tuple[int, float]:
    """Write the forms that ``genes`` run into ``work.order``; returns their number and their quickest time, ms.

    The number is −1 if there is no room for them, if a form was chosen that leaves out what another one reads, or once
    the time is above ``limit``.
    """
    n, m = arrays.forward_count, arrays.bytes.size
    t = arrays.reader_start.size - 1
    order, available, touched, touched_now = work.order, work.available, work.touched, work.touched_now
    passed, wanted, stack, makers = work.passed, work.wanted, work.stack, work.makers
    length = order.size
    time_ms = 0.0
    if n > length:
        return -1, time_ms
    switched = arrays.gene_start[m]
    before = switched + arrays.switches.size
    after = before + m
    work.first_before[:] = -1
    work.first_after[:] = -1
    for a in range(m):
        passed[a] = 0
        available[a] = 0
        if arrays.droppable[a]:
            if genes[before + a] > 0:
                work.next_before[a] = work.first_before[genes[before + a] - 1]
                work.first_before[genes[before + a] - 1] = a
            if genes[after + a] > 0:
                work.next_after[a] = work.first_after[genes[after + a] - 1]
                work.first_after[genes[after + a] - 1] = a
    count = 0
    valid = True
    for operator in range(n):
        form = arrays.form_start[operator]
        if form == arrays.form_start[operator + 1]:
            continue
        if arrays.form_gene[operator] >= 0:
            form += genes[arrays.form_gene[operator]]
        kept = arrays.form_kind[form] != OPTIONAL
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            valid &= touched_now[arrays.reads[at]] == 1
        for at in range(arrays.write_start[form], arrays.write_start[form + 1]):
            a = arrays.writes[at]
            touched_now[a] = 1
            available[a] = genes[arrays.gene_start[a]] if arrays.droppable[a] else 1
            kept |= available[a] == 1
        if kept:
            order[count] = form
            count += 1
            time_ms += float(arrays.form_ms[form])
    for a in range(m):
        touched_now[a] = 0
    if not valid:
        return -1, time_ms
    time_ms += arrays.backward_ms
    for number in range(arrays.switches.size):
        if arrays.switches[number] >= 2 * n:
            form = arrays.form_start[arrays.switches[number]]
            time_ms += float(arrays.form_ms[form + genes[switched + number]] - arrays.form_ms[form])
    for number in range(t):
        site = 2 * n + number
        form = arrays.form_start[site]
        if form == arrays.form_start[site + 1]:
            continue
        if arrays.form_gene[site] >= 0:
            form += genes[arrays.form_gene[site]]
        for at in range(arrays.reader_start[number], arrays.reader_start[number + 1]):
            passed[arrays.readers[at]] += 1
        touches, depth, found = 0, 0, 0
        lowest, highest = n, -1
        valid = True
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            a = arrays.reads[at]
            if arrays.droppable[a]:
                touched_now[a] = 1
                touched[touches] = a
                touches += 1
            maker = arrays.producer[a]
            if not available[a] and not wanted[maker]:
                wanted[maker] = 1
                stack[depth] = maker
                depth += 1
        a = work.first_before[number]
        while a >= 0:
            if not touched_now[a]:
                touched_now[a] = 1
                touched[touches] = a
                touches += 1
            maker = arrays.producer[a]
            if not available[a] and not wanted[maker]:
                wanted[maker] = 1
                stack[depth] = maker
                depth += 1
            a = work.next_before[a]
        while depth:
            depth -= 1
            maker = stack[depth]
            makers[found] = maker
            found += 1
            lowest, highest = min(lowest, maker), max(highest, maker)
            again = arrays.form_start[n + maker]
            if again == arrays.form_start[n + maker + 1]:
                valid = False
                continue
            if arrays.form_gene[n + maker] >= 0:
                again += genes[arrays.form_gene[n + maker]]
            for at in range(arrays.read_start[again], arrays.read_start[again + 1]):
                a = arrays.reads[at]
                earlier = arrays.producer[a]
                if not available[a] and not wanted[earlier]:
                    wanted[earlier] = 1
                    stack[depth] = earlier
                    depth += 1
        if not valid or count + found >= length or time_ms > limit:
            for at in range(found):
                wanted[makers[at]] = 0
            for at in range(touches):
                touched_now[touched[at]] = 0
            return -1, time_ms
        if found <= _SORTED:
            for at in range(1, found):
                maker = makers[at]
                place = at - 1
                while place >= 0 and makers[place] > maker:
                    makers[place + 1] = makers[place]
                    place -= 1
                makers[place + 1] = maker
        else:
            found = 0
            for maker in range(lowest, highest + 1):
                if wanted[maker]:
                    makers[found] = maker
                    found += 1
        for place in range(found):
            maker = makers[place]
            wanted[maker] = 0
            again = arrays.form_start[n + maker]
            if arrays.form_gene[n + maker] >= 0:
                again += genes[arrays.form_gene[n + maker]]
            order[count] = again
            count += 1
            time_ms += float(arrays.form_ms[again])
            for at in range(arrays.read_start[again], arrays.read_start[again + 1]):
                valid &= available[arrays.reads[at]] == 1
            for at in range(arrays.write_start[again], arrays.write_start[again + 1]):
                a = arrays.writes[at]
                available[a] = 1
                if arrays.droppable[a] and not touched_now[a]:
                    touched_now[a] = 1
                    touched[touches] = a
                    touches += 1
        order[count] = form
        count += 1
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            valid &= available[arrays.reads[at]] == 1
        a = work.first_before[number]
        while a >= 0:
            touched_now[a] = 0
            a = work.next_before[a]
        for at in range(touches):
            a = touched[at]
            if touched_now[a] and available[a]:
                available[a] = genes[arrays.gene_start[a] + 1 + passed[a]]
            touched_now[a] = 0
        if not valid:
            return -1, time_ms
        a = work.first_after[number]
        while a >= 0:
            available[a] = 0
            a = work.next_after[a]
    return count, time_ms


@inner
def judge(
    arrays: PlanArrays, work: Work, count: int, budget: float, ahead_ms: float, penalty: float, limit: float
) -> tuple[int, float, float]:
    """The first ``count`` forms in ``work.order``, freed greedily: peak (bytes), time (ms), what exceeds the budget.

    That is every run's excess: the sum tells apart plans that lower one of several peaks. All infinite (the peak as
    large as can be) where a run that is only possible in place would overwrite what is needed; and as soon as the time,
    with ``penalty`` times the excess and the ``ahead_ms`` that all runs take at their quickest, is above ``limit``.
    """
    order, alive, held, size = work.order, work.alive, arrays.held, arrays.bytes
    now = arrays.fixed_bytes
    for a in range(size.size):
        alive[a] = held[a]
        if held[a]:
            now += size[a]
    peak = now
    time_ms = 0.0
    excess = 0.0
    idle = 0
    backward = 0
    work.dead_ms[0] = 0.0
    for position in range(count - 1, -1, -1):
        form = order[position]
        kind = arrays.form_kind[form]
        ahead_ms -= float(arrays.form_ms[form])
        first_write, last_write = arrays.write_start[form], arrays.write_start[form + 1]
        if kind in (AGAIN, OPTIONAL):
            useful = False
            for at in range(first_write, last_write):
                a = arrays.writes[at]
                useful |= alive[a] > 0 and not (kind == AGAIN and held[a])
            if not useful:
                work.dead_ms[0] += float(arrays.form_ms[form])
                continue
        if kind == BACKWARD:
            idle = arrays.form_idle[form]
            backward = arrays.form_site[form] - 2 * arrays.forward_count
        elif kind in (FIRST, OPTIONAL):
            idle = 0
        for at in range(first_write, last_write):
            a = arrays.writes[at]
            # A held activation stays though it is made a second time: that copy goes as soon as the call returns.
            if alive[a] and not (kind == AGAIN and held[a]):
                alive[a] = 0
                now -= size[a]
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            a = arrays.reads[at]
            if not alive[a]:
                alive[a] = 2  # dies here: may be overwritten
                now += size[a]
        level = now + idle + arrays.form_level[form]
        # The quickest option that fits, else the smallest.
        chosen, smallest = -1, -1
        for option in range(arrays.option_start[form], arrays.option_start[form + 1]):
            over = arrays.option_over[option]
            if over >= 0 and alive[over] != 2:
                continue
            if level + arrays.option_extra[option] <= budget:
                chosen = np.int64(option)
                break
            if smallest < 0 or arrays.option_extra[option] < arrays.option_extra[smallest]:
                smallest = np.int64(option)
        if chosen < 0:
            chosen = smallest
        if chosen < 0:
            return _NEVER, np.inf, np.inf
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            alive[arrays.reads[at]] = 1
        level += arrays.option_extra[chosen]
        time_ms += arrays.option_ms[chosen]
        if level > peak:
            peak = level
            work.peak_at[0] = backward if kind in (AGAIN, BACKWARD) else -1 - np.int64(arrays.form_site[form])
        excess += max(0.0, level - budget)
        if time_ms + ahead_ms + penalty * excess > limit:
            return _NEVER, np.inf, np.inf
    return peak, time_ms, excess  # pyright: ignore[reportReturnType] - numba's scalars
