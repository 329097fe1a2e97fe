"""The search for addresses, compiled: depth first over canonical solutions, after MiniMalloc (Moffitt, ASPLOS 2023).

A solution is canonical if every rectangle rests on the ground or on another one. It is built from below: rectangles in
the order of their offsets, equal offsets in the order of a rank. So a state is what lies already, and for each other
rectangle the lowest offset that this leaves it; what is placed next comes at that offset, no lower than the last one.

The search keeps its own stack, for it goes as deep as there are rectangles. Each function takes the arrays that it
needs out of their tuple once: numba counts references, which took a third of the time where a loop did so.
"""

# Numba has no keyword-only arguments.
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from explorer.solvers.search.machine_code import compiled
from explorer.solvers.search.trace import inner

NONE, FOUND, CUT = 0, 1, 2
"""How a search ended: nothing fits, there is a solution, or its states were used up."""
NEVER = np.int64(1) << 60
"""The lowest offset of what lies already."""
# A level of the stack: which rectangles are to be placed, in which sections; the lowest (offset, rank) of the next, and
# what its offset stays below; how long the trail was; what lies, and how long the trail was then; is it in nobody's
# way; and where its parts, which are placed by themselves, go on.
_FIRST, _LAST, _LOW, _HIGH, _ABOVE, _ABOVE_RANK, _CEILING, _ENTERED = range(8)
_CHOSEN, _BEGUN, _ALONE, _NEXT, _SECTION = range(8, 13)
LEVEL = 13
"""Columns of a level."""


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
        lowest: (n,), the offset at which each would rest on what lies below it now; ``NEVER`` where it lies.
        least: (n,), no solution from here has it lower: at least ``lowest``.
        offset: (n,), where it lies.
        left: (sections,), bytes to be placed there.
        spanning: (sections,), how many of those to be placed also are in the next section.
        support: (sections,), one that may come low enough for all that is left to fit above it, when last looked for.
        witness: (n,), of one that was passed over: on which it may come to rest lowest; -1: not looked for.
        blame: (sections,), how often there was no room.
        levels: (n + 1, LEVEL), the stack.
        trail: (many, 3), what to put back: rectangle, lowest, least.
        count: (3,), states and tries left, length of the trail, and up to which length it takes what is not needed.
    """

    rank: np.ndarray
    part: np.ndarray
    lowest: np.ndarray
    least: np.ndarray
    offset: np.ndarray
    left: np.ndarray
    spanning: np.ndarray
    support: np.ndarray
    witness: np.ndarray
    blame: np.ndarray
    levels: np.ndarray
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
def _note(w: State, i: int) -> None:
    """Remember how low a rectangle may come."""
    trail, count = w.trail, w.count
    at = count[1]
    trail[at, 0], trail[at, 1], trail[at, 2] = i, w.lowest[i], w.least[i]
    count[1] = at + 1


@inner
def _take_back(w: State, until: int) -> None:
    """Rectangles as they were when the trail was so long."""
    trail, lowest, least = w.trail, w.lowest, w.least
    for at in range(w.count[1] - 1, until - 1, -1):
        i = trail[at, 0]
        lowest[i], least[i] = trail[at, 1], trail[at, 2]
    w.count[1] = until


@inner
def _resting(p: Instance, w: State, i: int, offset: int) -> int:
    """Of one that was passed over, the lowest offset on something that is yet to come, at ``offset`` or more."""
    least, size, neighbours = w.least, p.bytes, p.neighbours
    known, k = least[i], w.witness[i]
    if k >= 0 and max(offset, least[k]) + size[k] <= known:
        return known
    lowest = NEVER
    for at in range(p.neighbour_start[i], p.neighbour_start[i + 1]):
        k = neighbours[at]
        top = max(offset, least[k]) + size[k]
        if top < lowest:
            lowest = top
            w.witness[i] = k
            if lowest <= known:
                break
    return lowest  # pyright: ignore[reportReturnType] - numba's scalars


@inner
def _fits(p: Instance, w: State, low: int, high: int, capacity: int) -> bool:
    """In each of these sections, can the lowest of what is left lie so low that all of it fits above?"""
    left, least, support, section_start, members = w.left, w.least, w.support, p.section_start, p.members
    for s in range(low, high):
        highest = capacity - left[s]
        if least[support[s]] <= highest or left[s] == 0:
            continue
        found = False
        for at in range(section_start[s], section_start[s + 1]):
            if least[members[at]] <= highest:
                support[s] = members[at]
                found = True
                break
        if not found:
            w.blame[s] += 1
            return False
    return True


@inner
def _open(
    p: Instance, w: State, depth: int, first: int, last: int, low: int, high: int, above: int, rank: int, capacity: int
) -> None:
    """Begin a level of the stack: ``part[first:last]``, which are alone in the sections ``[low, high)``."""
    level, part, lowest, left, size = w.levels[depth], w.part, w.lowest, w.left, p.bytes
    # All that is left will lie above the next offset; and where another one would fit entirely below it, that one goes
    # first: a solution without it there can have it moved down.
    most_left = np.int64(0)
    for s in range(low, high):
        most_left = max(most_left, left[s])
    ceiling = capacity - most_left + 1
    for at in range(first, last):
        ceiling = min(ceiling, lowest[part[at]] + size[part[at]])
    level[_FIRST], level[_LAST], level[_LOW], level[_HIGH] = first, last, low, high
    level[_ABOVE], level[_ABOVE_RANK], level[_CEILING] = above, rank, ceiling
    level[_ENTERED], level[_CHOSEN] = w.count[1], -1


@inner
def _choose(w: State, level: np.ndarray) -> bool:
    """The next rectangle, to the front of what is to be placed; False: there is none."""
    part, lowest, rank = w.part, w.lowest, w.rank
    first, above, above_rank = level[_FIRST], level[_ABOVE], level[_ABOVE_RANK]
    chosen_at, chosen_offset, chosen_rank = np.int64(-1), level[_CEILING], np.int64(-1)
    for at in range(first, level[_LAST]):
        offset = lowest[part[at]]
        if above <= offset <= chosen_offset:
            its_rank = rank[part[at]]
            if (above < offset or above_rank <= its_rank) and (offset < chosen_offset or its_rank < chosen_rank):
                chosen_at, chosen_offset, chosen_rank = np.int64(at), offset, its_rank
    if chosen_at < 0:
        return False
    chosen = part[chosen_at]
    part[chosen_at], part[first] = part[first], chosen
    level[_CHOSEN], level[_ABOVE], level[_ABOVE_RANK] = chosen, chosen_offset, chosen_rank + 1
    return True


@inner
def _put(p: Instance, w: State, level: np.ndarray, capacity: int) -> bool:
    """Place what was chosen; is there room above for all that is left?"""
    part, lowest, least, rank, left = w.part, w.lowest, w.least, w.rank, w.left
    start, end, size, neighbours = p.start, p.end, p.bytes, p.neighbours
    i, offset, chosen_rank = level[_CHOSEN], level[_ABOVE], level[_ABOVE_RANK] - 1
    top = offset + size[i]
    level[_BEGUN], level[_NEXT], level[_SECTION] = w.count[1], level[_FIRST] + 1, start[i]
    _note(w, i)
    lowest[i] = least[i] = NEVER
    w.offset[i] = offset
    for s in range(start[i], end[i]):
        left[s] -= size[i]
        w.spanning[s] -= s < end[i] - 1
    low, high, alone, highest = start[i], end[i], True, np.int64(0)
    for at in range(p.neighbour_start[i], p.neighbour_start[i + 1]):
        j = neighbours[at]
        alone &= lowest[j] == NEVER
        if lowest[j] < top:
            _note(w, j)
            lowest[j] = top
            if least[j] < top:
                least[j] = top
                highest = max(highest, top + size[j])
                low, high = min(low, start[j]), max(high, end[j])
    level[_ALONE] = alone
    if highest > capacity:
        return False
    # What could have come before now, and did not, will rest on something that is yet to come.
    for at in range(level[_FIRST] + 1, level[_LAST]):
        j = part[at]
        if lowest[j] > offset or (lowest[j] == offset and rank[j] > chosen_rank):
            continue
        resting = _resting(p, w, j, offset)
        if resting > least[j] and w.count[1] < w.count[2]:
            _note(w, j)
            least[j] = resting
            if resting + size[j] > capacity:
                return False
            low, high = min(low, start[j]), max(high, end[j])
    return _fits(p, w, low, high, capacity)


@inner
def _take_off(p: Instance, w: State, level: np.ndarray) -> None:
    """All as it was before the chosen one was placed."""
    i = level[_CHOSEN]
    _take_back(w, level[_BEGUN])
    for s in range(p.start[i], p.end[i]):
        w.left[s] += p.bytes[i]
        w.spanning[s] += s < p.end[i] - 1


@inner
def _pass_over(p: Instance, w: State, level: np.ndarray, capacity: int) -> bool:
    """After the chosen one has failed there: may another one come next?"""
    i = level[_CHOSEN]
    if level[_ALONE]:
        return False  # it is in nobody's way: another one first changes nothing
    # From here on it will rest on something that is yet to come.
    resting = _resting(p, w, i, level[_ABOVE])
    if resting + p.bytes[i] > capacity:
        return False
    if resting > w.least[i] and w.count[1] < w.count[2]:
        _note(w, i)
        w.least[i] = resting
        return _fits(p, w, p.start[i], p.end[i], capacity)
    return True


@inner
def _next_part(p: Instance, w: State, depth: int, capacity: int) -> int:
    """Open a level for what is next of that which no longer has anything in common.

    Returns:
        How many rectangles it has; -1: there is no further part.
    """
    level, part, start = w.levels[depth], w.part, p.start
    end, begin, last = p.end[level[_CHOSEN]], level[_NEXT], level[_LAST]
    s = level[_SECTION]
    if s == end:
        return -1
    low = level[_LOW] if s == start[level[_CHOSEN]] else s
    while s < end - 1 and w.spanning[s] > 0:
        s += 1
    until, high = last, level[_HIGH]
    if s < end - 1:
        until, high = begin, s + 1
        for at in range(begin, last):
            if start[part[at]] < high:
                part[at], part[until] = part[until], part[at]
                until += 1
    level[_NEXT], level[_SECTION] = until, s + 1
    if begin < until and w.count[0] > 0:
        _open(p, w, depth + 1, begin, until, low, high, level[_ABOVE], level[_ABOVE_RANK], capacity)
    return until - begin


@compiled
def fill(p: Instance, w: State, first: int, last: int, low: int, high: int, capacity: int) -> int:
    """Place ``w.part[first:last]``, which are alone in the sections ``[low, high)``; ``w.offset`` says where."""
    count = w.count
    if count[0] <= 0:
        return CUT
    _open(p, w, 0, first, last, low, high, 0, 0, capacity)
    count[0] -= 1
    depth, ended = 0, NONE
    while depth >= 0:
        level = w.levels[depth]
        if ended == NONE:
            goes_on = True
            if level[_CHOSEN] >= 0:
                _take_off(p, w, level)
                goes_on = _pass_over(p, w, level, capacity)
            if goes_on and _choose(w, level):
                count[0] -= 1
                if count[0] <= 0:
                    return CUT
                ended = FOUND if _put(p, w, level, capacity) else NONE
                continue
            _take_back(w, level[_ENTERED])
            depth -= 1
            continue
        size = _next_part(p, w, depth, capacity) if ended == FOUND else -1
        if size < 0:
            _take_off(p, w, level)
            _take_back(w, level[_ENTERED])
            depth -= 1
        elif size > 0 and count[0] <= 0:
            ended = CUT
        elif size > 0:
            count[0] -= 1
            depth, ended = depth + 1, NONE
    return ended
