"""Packing rectangles into a buffer: greedy ways first, then exact searches that are raced."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from explorer.solvers.placing.kernel import CUT, FOUND, NONE, first_fit
from explorer.solvers.placing.race import Race
from explorer.solvers.placing.rectangles import Rectangles

_MOST = 10_000  # for the exact search, which goes as deep as there are rectangles
_ROOMS = (2, 1, 4, 16, 64)
"""A rectangle is small if so many like it have room beside all that is alive with it, even at the worst moment; or …"""
_SMALL = (3e-4, 1e-4)
"""… if it has this share of the load: up to half of a step's, with less than a thousandth of its bytes."""
_MOST_LARGE = 0.9
"""Share of rectangles that are not small, at most, for these to be searched by themselves."""
_SHORT_S = 0.25
"""Of the first turn of each way to search, seconds; …"""
_LONGER = 3.0
"""… each later one is longer by this."""


@dataclass(frozen=True, eq=False)
class Packing:
    """Offsets of rectangles.

    Attributes:
        offset_bytes: int64, shape (n,).
        buffer_bytes: the highest top.
        bound_bytes: no buffer can be smaller: the load, or more where a search found no solution in less.
    """

    offset_bytes: np.ndarray
    buffer_bytes: int
    bound_bytes: int

    @property
    def proven(self) -> bool:
        """Is there no smaller buffer?"""
        return self.buffer_bytes == self.bound_bytes


def pack(rectangles: Rectangles, *, seconds: float, goal_bytes: int = 0) -> Packing:
    """Offsets at which no two rectangles overlap, in as small a buffer as is found in time.

    The exact search is for up to ``_MOST`` rectangles; beyond that greedy ways alone have a say.

    Args:
        rectangles: to be placed.
        seconds: after which the best so far is taken.
        goal_bytes: a buffer of this size will do.
    """
    if not len(rectangles):
        return Packing(np.zeros(0, np.int64), 0, 0)
    until = time.monotonic() + seconds
    # In units that divide all sizes there are fewer heights to tell apart.
    unit = int(np.gcd.reduce(rectangles.bytes))
    small = Rectangles(rectangles.start, rectangles.end, rectangles.bytes // unit)
    offset, height = _greedy(small)
    bound = small.load_bytes
    goal = max(bound, -(-goal_bytes // unit))
    aim = goal
    while len(small) <= _MOST and height > goal and aim < height and (left := until - time.monotonic()) > 0:
        ended, found = _searched(small, aim, seconds=left if goal_bytes else left / 2)
        if found is not None and (top := int((found + small.bytes).max())) < height:
            offset, height = found, top
        if ended == NONE:
            bound = aim + 1
            goal = max(goal, bound)
        # The next in the middle; where the time for one was too short, of what is larger and perhaps easier.
        aim = ((aim + 1 if ended == CUT else goal) + height) // 2
    return Packing(offset * unit, height * unit, bound * unit)


def _searched(rectangles: Rectangles, capacity: int, *, seconds: float) -> tuple[int, np.ndarray | None]:
    """How a search for a buffer of this size ended, and the lowest offsets found, if any.

    Most end within a fraction of a second. Where one does not, the large rectangles are often quick to place without
    the small ones, for which there is room between them: both ways take turns.
    """
    until, turn_s = time.monotonic() + seconds, _SHORT_S
    race, apart = Race(rectangles, capacity), None
    best, height = None, 0
    while (left := until - time.monotonic()) > 0:
        ended = race.run(min(left, turn_s))
        if ended != CUT:
            return ended, race.offset if ended == FOUND else best
        apart = [*_large_first(rectangles, capacity)] if apart is None else apart
        for one in list(apart):
            ended = one.race.run(min(turn_s, until - time.monotonic()) / 2)
            if ended == FOUND:
                offset, top = one.filled(rectangles)
                if top <= capacity:
                    return FOUND, offset
                if best is None or top < height:
                    best, height = offset, top
            if ended != CUT:
                apart.remove(one)
        turn_s *= _LONGER
    return CUT, best


@dataclass(frozen=True, eq=False)
class _Apart:
    """A choice of large rectangles, and the search for their offsets."""

    is_large: np.ndarray
    race: Race

    def filled(self, rectangles: Rectangles) -> tuple[np.ndarray, int]:
        """Offsets of all, and their height: the large ones as they were found, the small ones put between them."""
        placed = np.flatnonzero(self.is_large)[np.argsort(self.race.offset, kind="stable")]
        orders = (np.concatenate([placed, x[~self.is_large[x]]]) for x in rectangles.orders().values())
        return _lowest(rectangles, orders)


def _large_first(rectangles: Rectangles, capacity: int) -> Iterator[_Apart]:
    """Choices of large rectangles, where there are small ones."""
    room = rectangles.load_bytes - rectangles.measures["T"]
    counts = {len(rectangles)}
    for is_large in (
        *(rectangles.bytes * x > room for x in _ROOMS),
        *(rectangles.bytes > x * rectangles.load_bytes for x in _SMALL),
    ):
        count = int(is_large.sum())
        if count not in counts and 0 < count <= _MOST_LARGE * len(rectangles):
            counts.add(count)
            large = Rectangles(rectangles.start[is_large], rectangles.end[is_large], rectangles.bytes[is_large])
            # At the worst moment the small ones need the rest.
            yield _Apart(is_large, Race(large, capacity - rectangles.load_bytes + large.load_bytes))


def _greedy(rectangles: Rectangles) -> tuple[np.ndarray, int]:
    """The best of several orders, each rectangle as low as it fits."""
    return _lowest(rectangles, rectangles.orders().values())


def _lowest(rectangles: Rectangles, orders: Iterable[np.ndarray]) -> tuple[np.ndarray, int]:
    best, height = np.zeros(0, np.int64), -1
    for order in orders:
        offset = np.zeros(len(rectangles), np.int64)
        top = int(first_fit(rectangles.start, rectangles.end, rectangles.bytes, order, offset))
        if height < 0 or top < height:
            best, height = offset, top
        if height == rectangles.load_bytes:
            break
    return best, height
