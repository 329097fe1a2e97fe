"""What is remembered of a plan, so that another like it need not be decoded and judged from the beginning, compiled.

Two thirds of all small changes of a plan leave most of its order as it is, and a third of them all of it. A backward
operator sees a change only once it asks for what has changed; and as soon as the same activations are available as
before, the rest is the same as before.
"""

# Flat loops compile to quick code, see ``search.kernel``; and numba has no keyword-only arguments.
# ruff: noqa: C901, FBT001, PLR0912, PLR0915

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from explorer.solvers.search.arrays import AGAIN, BACKWARD, PlanArrays

# Only ``anneal`` is called from Python, and only its machine code is kept on disk, these functions inlined: kept by
# themselves they would go stale unnoticed, each of its files knowing nothing of the others.
inner: Any = njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # pyright: ignore[reportCallIssue]

_PLACES = 24  # at most
_BLOCK = 64  # genes that are compared at once


class Trace(NamedTuple):
    """An order, and its state at some *places*: place p is just before backward operator p × stride is prepared for.

    Attributes:
        order: uint32, the forms that run, in order.
        position: int32 (places + 1,), how many of them run before each place; the last: how many there are.
        again_ms: float64 (places + 1,), of recomputations before each place, at their quickest.
        other_ms: float64 (2,), of first runs and of backward operators at their quickest.
        available: uint8 (places, m), activations there before what runs at each place.
        alive: uint8 (places, m), as ``judge`` has them when it comes there from the end.
        levels: int64 (places, 3), likewise what is allocated, its peak so far, and where (``PlanMemory.peak_at``).
        sums: float64 (places, 4), likewise of time, excess, runs left out, and all runs at their quickest.
    """

    order: np.ndarray
    position: np.ndarray
    again_ms: np.ndarray
    other_ms: np.ndarray
    available: np.ndarray
    alive: np.ndarray
    levels: np.ndarray
    sums: np.ndarray


class PlanMemory(NamedTuple):
    """Memory that decoding and judging use again and again.

    Attributes:
        known: the plan that changes are made to.
        trial: the plan decoded last.
        stride: backward operators from one place to the next.
        dead_ms: float64 (1,), what judged runs would take, at their quickest, that were left out as nobody reads them.
        peak_at: int64 (1,), where the judged peak is: the backward operator that runs then or is prepared for; −1 − i
            for the first run of forward operator i.
        places: int32 (2,), of the trial: the first place decoded, and the one from which on it is as known.
        altered, stale: uint32 (m,), activations whose availability differs from what is known after the forward pass;
            and where the trial is as known again, of no more use there.
        marked: uint32 (4 m,), genes of the known plan's marks, and of those that the trial has besides.
        counts: int32 (4,), how many there are of ``altered``, of ``stale``, and of ``marked``, without and with those.
        first_event, last_event: int32 (m,), backward operators for which each activation is asked for or made again,
            or which mark it, in the known plan; none: after the last, and −1.
        first_made, last_made: int32 (n,), the same for each forward operator that runs again.
        passed_at: int32 (places, m), backward operators before each place that may read an activation.
        available, touched_now: uint8 (m,).
        passed: int32 (m,).
        next_before, next_after: int32 (m,).
        touched: uint32 (m,).
        wanted: uint8 (n,).
        stack, makers: uint32 (n + 1,).
        first_before, first_after: int32 (t + 1,), −1 between calls.
        alive: uint8 (m,).
    """

    known: Trace
    trial: Trace
    stride: int
    dead_ms: np.ndarray
    peak_at: np.ndarray
    places: np.ndarray
    altered: np.ndarray
    stale: np.ndarray
    marked: np.ndarray
    counts: np.ndarray
    first_event: np.ndarray
    last_event: np.ndarray
    first_made: np.ndarray
    last_made: np.ndarray
    passed_at: np.ndarray
    available: np.ndarray
    touched_now: np.ndarray
    passed: np.ndarray
    next_before: np.ndarray
    next_after: np.ndarray
    touched: np.ndarray
    wanted: np.ndarray
    stack: np.ndarray
    makers: np.ndarray
    first_before: np.ndarray
    first_after: np.ndarray
    alive: np.ndarray


class Change(NamedTuple):
    """Where a plan may do otherwise than the known one.

    Attributes:
        forward: in the forward pass?
        begin: the first backward operator for which it may; −1: nothing is known.
        until: the last one.
        backward_ms: how much longer backward operators take in all, at their quickest.
    """

    forward: bool
    begin: int
    until: int
    backward_ms: float


UNKNOWN = Change(True, -1, -1, 0.0)


def workspace(arrays: PlanArrays, *, length: int) -> PlanMemory:
    """Memory for orders of up to ``length`` runs."""
    m, n, t = arrays.bytes.size, arrays.forward_count, arrays.backward_count
    stride = -(-max(1, t) // _PLACES)
    places = -(-max(1, t) // stride)
    return PlanMemory(
        known=_trace(places, m, length=length),
        trial=_trace(places, m, length=length),
        stride=stride,
        dead_ms=np.zeros(1),
        peak_at=np.zeros(1, np.int64),
        places=np.zeros(2, np.int32),
        altered=np.zeros(m, np.uint32),
        stale=np.zeros(m, np.uint32),
        marked=np.zeros(4 * m, np.uint32),
        counts=np.zeros(4, np.int32),
        first_event=np.zeros(m, np.int32),
        last_event=np.zeros(m, np.int32),
        first_made=np.zeros(n, np.int32),
        last_made=np.zeros(n, np.int32),
        passed_at=_passed(arrays, places, stride),
        available=np.zeros(m, np.uint8),
        touched_now=np.zeros(m, np.uint8),
        passed=np.zeros(m, np.int32),
        next_before=np.zeros(m, np.int32),
        next_after=np.zeros(m, np.int32),
        touched=np.zeros(m, np.uint32),
        wanted=np.zeros(n, np.uint8),
        stack=np.zeros(n + 1, np.uint32),
        makers=np.zeros(n + 1, np.uint32),
        first_before=np.full(t + 1, -1, np.int32),
        first_after=np.full(t + 1, -1, np.int32),
        alive=np.zeros(m, np.uint8),
    )


def _trace(places: int, m: int, *, length: int) -> Trace:
    return Trace(
        order=np.zeros(length, np.uint32),
        position=np.zeros(places + 1, np.int32),
        again_ms=np.zeros(places + 1),
        other_ms=np.zeros(2),
        available=np.zeros((places, m), np.uint8),
        alive=np.zeros((places, m), np.uint8),
        levels=np.zeros((places, 3), np.int64),
        sums=np.zeros((places, 4)),
    )


def _passed(arrays: PlanArrays, places: int, stride: int) -> np.ndarray:
    passed = np.zeros((places, arrays.bytes.size), np.int32)
    for number in range(arrays.backward_count):
        read = arrays.readers[arrays.reader_start[number] : arrays.reader_start[number + 1]]
        passed[number // stride + 1 :, read] += 1
    return passed


@inner
def difference(arrays: PlanArrays, old: np.ndarray, new: np.ndarray, work: PlanMemory) -> Change:
    """Where the plan ``new`` may do otherwise than the known plan ``old``."""
    n, m = arrays.forward_count, arrays.bytes.size
    t = arrays.reader_start.size - 1
    switched = np.int64(arrays.gene_start[m])
    marked = switched + arrays.switches.size
    forward, begin, until, backward_ms = False, t, -1, 0.0
    altered, marks = 0, np.int64(work.counts[2])
    blocks = new.size // _BLOCK
    for block in range(blocks + 1):
        if block < blocks:
            unequal = np.uint16(0)
            for at in range(_BLOCK):
                unequal |= old[block * _BLOCK + at] ^ new[block * _BLOCK + at]
            if unequal == 0:
                continue
        for gene in range(block * _BLOCK, min((block + 1) * _BLOCK, new.size)):
            if old[gene] == new[gene]:
                continue
            first, last = t, -1
            if gene < switched:
                a = np.int64(arrays.gene_owner[gene])
                later = gene - np.int64(arrays.gene_start[a]) - 1
                if later < 0 and arrays.simple[a]:
                    work.altered[altered] = a
                    altered += 1
                    begin = min(begin, np.int64(work.first_event[a]))
                    continue
                if later < 0:
                    forward = True
                    continue
                # It is asked while that many of the backward operators that may read the activation have passed.
                first, last = np.int64(work.first_event[a]), np.int64(work.last_event[a])
                use = np.int64(arrays.use_start[a]) + later
                if later > 0:
                    first = max(first, np.int64(arrays.uses[use - 1]))
                if use < arrays.use_start[a + 1]:
                    last = min(last, np.int64(arrays.uses[use]) - 1)
            elif gene < marked:
                site = np.int64(arrays.switches[gene - switched])
                if site < n:
                    forward = True
                    continue
                if site < 2 * n:
                    first, last = np.int64(work.first_made[site - n]), np.int64(work.last_made[site - n])
                else:
                    first = last = site - 2 * n
                    form = np.int64(arrays.form_start[site])
                    backward_ms += float(arrays.form_ms[form + new[gene]] - arrays.form_ms[form + old[gene]])
            elif arrays.droppable[(gene - marked) % m]:
                least, most = np.int64(min(old[gene], new[gene])), np.int64(max(old[gene], new[gene]))
                first, last = (least or most) - 1, most - 1
                if old[gene] == 0:
                    work.marked[marks] = gene
                    marks += 1
            if first <= last:
                begin, until = min(begin, first), max(until, last)
    work.counts[0], work.counts[3] = altered, marks
    return Change(forward, begin, until, backward_ms)  # pyright: ignore[reportArgumentType] - numba's scalars


@inner
def is_known(work: PlanMemory) -> bool:
    """Is the trial's order the known one?"""
    known, trial = work.known, work.trial
    places = trial.position.size - 1
    count = known.position[places]
    if trial.position[places] != count:
        return False
    unequal = np.uint32(0)
    for position in range(trial.position[work.places[1]]):
        unequal |= known.order[position] ^ trial.order[position]
    return unequal == 0


@inner
def note_marks(arrays: PlanArrays, genes: np.ndarray, work: PlanMemory) -> None:
    """List the marks of the known plan again, after all of another was decoded and that one is not adopted."""
    m, marks = arrays.bytes.size, 0
    first = np.int64(arrays.gene_start[m]) + arrays.switches.size
    for gene in range(first, first + 2 * m):
        if genes[gene] and arrays.droppable[(gene - first) % m]:
            work.marked[marks] = gene
            marks += 1
    work.counts[2] = marks


@inner
def adopt(arrays: PlanArrays, genes: np.ndarray, work: PlanMemory, reordered: bool, all_events: bool) -> None:
    """Make the trial the known plan.

    Args:
        arrays: the problem.
        genes: of the trial.
        work: what is known.
        reordered: it was judged, for it runs in another order than the known one.
        all_events: find out anew when activations are of interest, or only add what is new, which is sooner done and
            may leave too long a time for some.
    """
    known, trial = work.known, work.trial
    m, places = arrays.bytes.size, trial.position.size - 1
    first, joined = work.places[0], work.places[1]
    for number in range(work.counts[0]):
        for place in range(first):
            known.available[place, work.altered[number]] ^= 1
    for place in range(first, joined):
        for a in range(m):
            known.available[place, a] = trial.available[place, a]
    for number in range(work.counts[1]):
        for place in range(joined, places):
            known.available[place, work.stale[number]] ^= 1
    marks = 0
    for number in range(work.counts[3]):
        gene = work.marked[number]
        if genes[gene]:
            work.marked[marks] = gene
            marks += 1
    work.counts[2] = marks
    if reordered:
        count = trial.position[places]
        for at in range(count):
            known.order[at] = trial.order[at]
        for place in range(places + 1):
            known.position[place] = trial.position[place]
            known.again_ms[place] = trial.again_ms[place]
        known.other_ms[0], known.other_ms[1] = trial.other_ms[0], trial.other_ms[1]
        for place in range(joined):
            for a in range(m):
                known.alive[place, a] = trial.alive[place, a]
            for at in range(trial.levels.shape[1]):
                known.levels[place, at] = trial.levels[place, at]
            for at in range(trial.sums.shape[1]):
                known.sums[place, at] = trial.sums[place, at]
    _note_events(arrays, genes, work, all_events)


@inner
def _note_events(arrays: PlanArrays, genes: np.ndarray, work: PlanMemory, anew: bool) -> None:
    """When each activation and each forward operator is of interest in the backward pass of the known plan."""
    n, m = arrays.forward_count, arrays.bytes.size
    t = arrays.reader_start.size - 1
    order, position = work.known.order, work.known.position
    first_event, last_event, first_made, last_made = work.first_event, work.last_event, work.first_made, work.last_made
    start, end = position[work.places[0]], position[work.places[1]]
    number = min(t, work.places[1] * work.stride)
    if anew:
        start, end, number = position[0], position[-1], t
        for a in range(m):
            first_event[a], last_event[a] = t, -1
        for operator in range(n):
            first_made[operator], last_made[operator] = t, -1
    marks = np.int64(arrays.gene_start[m]) + arrays.switches.size
    for at in range(work.counts[2]):
        gene = np.int64(work.marked[at])
        a, marked = (gene - marks) % m, np.int64(genes[gene]) - 1
        first_event[a], last_event[a] = min(first_event[a], marked), max(last_event[a], marked)
    for place in range(end - 1, start - 1, -1):
        form = order[place]
        if arrays.form_kind[form] == BACKWARD:
            number = np.int64(arrays.form_site[form]) - 2 * n
        for at in range(arrays.read_start[form], arrays.read_start[form + 1]):
            a = arrays.reads[at]
            first_event[a], last_event[a] = min(first_event[a], number), max(last_event[a], number)
        if arrays.form_kind[form] == AGAIN:
            operator = np.int64(arrays.form_site[form]) - n
            first_made[operator] = min(first_made[operator], number)
            last_made[operator] = max(last_made[operator], number)
            for at in range(arrays.write_start[form], arrays.write_start[form + 1]):
                a = arrays.writes[at]
                first_event[a], last_event[a] = min(first_event[a], number), max(last_event[a], number)
