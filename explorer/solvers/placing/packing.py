"""Packing rectangles into a buffer: greedy ways first, then exact searches that are raced."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from explorer.solvers.placing.kernel import CUT, FOUND, NONE, first_fit
from explorer.solvers.placing.race import Race
from explorer.solvers.placing.rectangles import Rectangles

_MOST = 10_000  # for the exact search, which goes as deep as there are rectangles


@dataclass(frozen=True, eq=False)
class Packing:
    """Offsets of rectangles.

    Attributes:
        offset_bytes: int64, shape (n,).
        buffer_bytes: the highest top.
        bound_bytes: no buffer can be smaller: the load, or more where a search found no solution in less.
        states: that the searches went through.
    """

    offset_bytes: np.ndarray
    buffer_bytes: int
    bound_bytes: int
    states: int

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
        return Packing(np.zeros(0, np.int64), 0, 0, 0)
    until = time.monotonic() + seconds
    # In units that divide all sizes there are fewer heights to tell apart.
    unit = int(np.gcd.reduce(rectangles.bytes))
    small = Rectangles(rectangles.start, rectangles.end, rectangles.bytes // unit)
    offset, height = _greedy(small)
    bound, states = small.load_bytes, 0
    goal = max(bound, -(-goal_bytes // unit))
    aim = goal
    while len(small) <= _MOST and height > goal and aim < height and (left := until - time.monotonic()) > 0:
        race = Race(small, aim)
        ended = race.run(left if goal_bytes else left / 2)
        states += race.states
        if ended == FOUND:
            offset, height = race.offset, int((race.offset + small.bytes).max())
        if ended == NONE:
            bound = aim + 1
            goal = max(goal, bound)
        # The next in the middle; where the time for one was too short, of what is larger and perhaps easier.
        aim = ((aim + 1 if ended == CUT else goal) + height) // 2
    return Packing(offset * unit, height * unit, bound * unit, states)


def _greedy(rectangles: Rectangles) -> tuple[np.ndarray, int]:
    """The best of several orders, each rectangle as low as it fits."""
    best, height = np.zeros(0, np.int64), -1
    for order in rectangles.orders().values():
        offset = np.zeros(len(rectangles), np.int64)
        top = int(first_fit(rectangles.start, rectangles.end, rectangles.bytes, order, offset))
        if height < 0 or top < height:
            best, height = offset, top
        if height == rectangles.load_bytes:
            break
    return best, height
