"""The search for addresses, compiled: depth first over canonical solutions, after MiniMalloc (Moffitt, ASPLOS 2023).

A solution is canonical if every rectangle rests on the ground or on another one. It is built from below: rectangles in
the order of their offsets, equal offsets in the order of a rank. So a state is what lies already, and for each other
rectangle the lowest offset that this leaves it; what is placed next comes at that offset, no lower than the last one.
"""

# Flat loops compile to quick code; numba has no keyword-only arguments.
# ruff: noqa: C901, PLR0912, PLR0915

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.solvers.search.machine_code import compiled
from explorer.solvers.search.trace import inner

NONE, FOUND, CUT = 0, 1, 2
"""How a search ended: nothing fits, there is a solution, or its states were used up."""
_LOWEST, _LEAST, _FLOOR = 0, 1, 2  # arrays, in the trail
_NEVER = np.int64(1) << 60


class Instance(NamedTuple):
    """Rectangles over sections of time, which are the moments at which most of them are alive.

    Attributes:
        start: int64 (n,), first section of each.
        end: int64 (n,), the one after its last.
        bytes: int64 (n,).
        neighbour_start: int64 (n + 1,), where each one's entries of ``neighbours`` begin.
        neighbours: int64, those that share a section with it.
        section_start: int64 (sections + 1,), where each section's entries of ``members`` begin.
        members: int64, those that are alive in it.
    """

    start: np.ndarray
    end: np.ndarray
    bytes: np.ndarray
    neighbour_start: np.ndarray
    neighbours: np.ndarray
    section_start: np.ndarray
    members: np.ndarray


class State(NamedTuple):
    """How far a search has come; all int64.

    Attributes:
        rank: (n,), which goes first among equal offsets.
        part: (n,), a permutation: what is to be placed together is a range of it.
        lowest: (n,), the offset at which each would rest on what lies below it now.
        least: (n,), no solution from here has it lower: at least ``lowest``.
        placed: (n,), 1 where it lies.
        offset: (n,), where it lies.
        floor: (sections,), no rectangle that is not placed comes lower there.
        left: (sections,), bytes to be placed there.
        spanning: (sections,), how many of those to be placed also are in the next section.
        dirty: (sections,), 1 while the floor is to be found anew.
        witness: (n,), of one that was passed over: on which it may come to rest lowest.
        trail: (many, 3), what to put back: array, place, value.
        count: (2,), states left, length of the trail.
    """

    rank: np.ndarray
    part: np.ndarray
    lowest: np.ndarray
    least: np.ndarray
    placed: np.ndarray
    offset: np.ndarray
    floor: np.ndarray
    left: np.ndarray
    spanning: np.ndarray
    dirty: np.ndarray
    witness: np.ndarray
    trail: np.ndarray
    count: np.ndarray


@compiled
def first_fit(start: np.ndarray, end: np.ndarray, size: np.ndarray, order: np.ndarray, offset: np.ndarray) -> int:
    """Each rectangle in turn into the lowest gap in which it fits; writes ``offset``, returns the height."""
    by_offset = np.empty(order.size, np.int64)
    height = np.int64(0)
    for count in range(order.size):
        i = order[count]
        lowest = np.int64(0)
        for at in range(count):
            j = by_offset[at]
            if start[j] < end[i] and start[i] < end[j]:
                if offset[j] - lowest >= size[i]:
                    break
                lowest = max(lowest, offset[j] + size[j])
        offset[i] = lowest
        height = max(height, lowest + size[i])
        place = count
        while place > 0 and offset[by_offset[place - 1]] > lowest:
            by_offset[place] = by_offset[place - 1]
            place -= 1
        by_offset[place] = i
    return height  # pyright: ignore[reportReturnType] - numba's scalars


@inner
def _note(w: State, array: int, place: int, value: int) -> None:
    """Remember what an entry was."""
    at = w.count[1]
    w.trail[at, 0], w.trail[at, 1], w.trail[at, 2] = array, place, value
    w.count[1] = at + 1


@inner
def _take_back(w: State, until: int) -> None:
    """Entries as they were when the trail was so long."""
    for at in range(w.count[1] - 1, until - 1, -1):
        place, value = w.trail[at, 1], w.trail[at, 2]
        if w.trail[at, 0] == _LOWEST:
            w.lowest[place] = value
        elif w.trail[at, 0] == _LEAST:
            w.least[place] = value
        else:
            w.floor[place] = value
    w.count[1] = until


@inner
def _lift(p: Instance, w: State, j: int, least: int) -> None:
    """Rectangle ``j`` comes no lower than that; floors that it determined are to be found anew."""
    _note(w, _LEAST, j, w.least[j])
    for s in range(p.start[j], p.end[j]):
        if w.least[j] <= w.floor[s]:
            w.dirty[s] = 1
    w.least[j] = least


@inner
def _resting(p: Instance, w: State, j: int, offset: int) -> int:
    """Of one that was passed over, the lowest offset on something that is yet to come, at ``offset`` or more."""
    k = w.witness[j]
    if k >= 0 and not w.placed[k] and max(offset, w.least[k]) + p.bytes[k] <= w.least[j]:
        return w.least[j]
    least = _NEVER
    for place in range(p.neighbour_start[j], p.neighbour_start[j + 1]):
        k = p.neighbours[place]
        if not w.placed[k]:
            top = max(offset, w.least[k]) + p.bytes[k]
            if top < least:
                least = top
                w.witness[j] = k
                if least <= w.least[j]:
                    break
    return least  # pyright: ignore[reportReturnType] - numba's scalars


@inner
def _settle(p: Instance, w: State, low: int, high: int, capacity: int) -> bool:
    """Raise the floors that may rise among these sections; is there room above them still?"""
    fits = True
    for s in range(low, high):
        if not w.dirty[s]:
            continue
        w.dirty[s] = 0
        if not fits or w.left[s] == 0:
            continue
        lowest = _NEVER
        for at in range(p.section_start[s], p.section_start[s + 1]):
            j = p.members[at]
            if not w.placed[j] and w.least[j] < lowest:
                lowest = w.least[j]
                if lowest <= w.floor[s]:
                    break
        if lowest > w.floor[s]:
            _note(w, _FLOOR, s, w.floor[s])
            w.floor[s] = lowest
        fits = w.floor[s] + w.left[s] <= capacity
    return fits


@compiled
def fill(
    p: Instance, w: State, first: int, last: int, low: int, high: int, above: int, above_rank: int, capacity: int
) -> int:
    """Place ``w.part[first:last]``, which are alone in the sections ``[low, high)``; what was found is in ``w.offset``.

    The next offset is ``above`` or more, with a rank of at least ``above_rank`` if it is equal.
    """
    if first == last:
        return FOUND
    if w.count[0] <= 0:
        return CUT
    w.count[0] -= 1
    # All that is left will lie above the next offset; and where another one would fit entirely below it, that one goes
    # first: a solution without it there can have it moved down.
    most_left = np.int64(0)
    for s in range(low, high):
        most_left = max(most_left, w.left[s])
    ceiling = capacity - most_left + 1
    for at in range(first, last):
        i = w.part[at]
        ceiling = min(ceiling, w.lowest[i] + p.bytes[i])
    entered = w.count[1]
    while True:
        chosen, chosen_offset, chosen_rank, chosen_at = np.int64(-1), np.int64(ceiling), _NEVER, np.int64(0)
        for at in range(first, last):
            i = w.part[at]
            offset, rank = w.lowest[i], w.rank[i]
            if (
                (above < offset or (above == offset and above_rank <= rank))
                and offset < ceiling
                and (offset < chosen_offset or (offset == chosen_offset and rank < chosen_rank))
            ):
                chosen, chosen_offset, chosen_rank, chosen_at = i, offset, rank, np.int64(at)
        if chosen < 0:
            break
        above, above_rank = chosen_offset, chosen_rank + 1  # pyright: ignore[reportAssignmentType] - numba's scalars
        i, top = chosen, chosen_offset + p.bytes[chosen]
        w.part[chosen_at], w.part[first] = w.part[first], i
        begun = w.count[1]
        w.placed[i] = 1
        w.offset[i] = chosen_offset
        from_dirty, to_dirty = p.start[i], p.end[i]
        alone, fits = True, True
        for at in range(p.neighbour_start[i], p.neighbour_start[i + 1]):
            j = p.neighbours[at]
            if w.placed[j]:
                continue
            alone = False
            if w.lowest[j] < top:
                _note(w, _LOWEST, j, w.lowest[j])
                w.lowest[j] = top
                if w.least[j] < top:
                    _lift(p, w, j, top)  # pyright: ignore[reportArgumentType] - numba's scalars
                    fits &= top + p.bytes[j] <= capacity
                    from_dirty, to_dirty = min(from_dirty, p.start[j]), max(to_dirty, p.end[j])
        # What could have come before now, and did not, will rest on something that is yet to come.
        for at in range(first + 1, last):
            j = w.part[at]
            if w.lowest[j] > chosen_offset or (w.lowest[j] == chosen_offset and w.rank[j] > chosen_rank):
                continue
            resting = _resting(p, w, j, chosen_offset)
            if resting > w.least[j]:
                _lift(p, w, j, resting)
                fits &= resting + p.bytes[j] <= capacity
                from_dirty, to_dirty = min(from_dirty, p.start[j]), max(to_dirty, p.end[j])
        for s in range(p.start[i], p.end[i]):
            w.left[s] -= p.bytes[i]
            w.dirty[s] = 1
        ended = NONE
        if _settle(p, w, from_dirty, to_dirty, capacity) and fits:
            for s in range(p.start[i], p.end[i] - 1):
                w.spanning[s] -= 1
            # What no longer has anything in common is placed by itself.
            ended, begin, from_section = FOUND, first + 1, low
            for s in range(p.start[i], p.end[i]):
                at_end = s == p.end[i] - 1
                if w.spanning[s] > 0 and not at_end:
                    continue
                until, to_section = begin, high if at_end else s + 1
                for at in range(begin, last):
                    j = w.part[at]
                    if p.start[j] < to_section:
                        w.part[at], w.part[until] = w.part[until], j
                        until += 1
                ended = fill(p, w, begin, until, from_section, to_section, above, above_rank, capacity)
                begin, from_section = until, to_section
                if ended != FOUND:
                    break
            for s in range(p.start[i], p.end[i] - 1):
                w.spanning[s] += 1
        _take_back(w, begun)
        for s in range(p.start[i], p.end[i]):
            w.left[s] += p.bytes[i]
        w.placed[i] = 0
        if ended != NONE:
            _take_back(w, entered)
            return ended
        if alone:
            break  # it is in nobody's way: another one first changes nothing
        # From here on it will rest on something that is yet to come.
        resting = _resting(p, w, i, chosen_offset)
        if resting + p.bytes[i] > capacity:
            break
        if resting > w.least[i]:
            _lift(p, w, i, resting)
            if not _settle(p, w, p.start[i], p.end[i], capacity):
                break
    _take_back(w, entered)
    return NONE
