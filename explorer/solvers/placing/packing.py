"""Packing rectangles into a buffer: greedy ways first, then exact searches that are raced."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from explorer.solvers.placing.kernel import CUT, FOUND, NONE, Instance, State, fill, first_fit
from explorer.solvers.placing.rectangles import Rectangles

_FIRST_STATES = 8  # times as many as there are rectangles: of each racer's first try
_MOST = 5000  # for the exact search, which goes as deep as there are rectangles
_RACERS = ("WAT", "TAW", "TWA", "AWT", "WTA", "ATW")  # of ``Rectangles.orders``


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
        race = _Race(small, aim)
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


class _Race:
    """Searches for a buffer of one size that differ in what goes first; each has its turn, and each turn is longer."""

    def __init__(self, rectangles: Rectangles, capacity: int) -> None:
        self.instance: Instance = rectangles.instance
        self.capacity = capacity
        self.states = 0
        self.offset = np.zeros(len(rectangles), np.int64)
        self._rectangles = rectangles

    def run(self, seconds: float) -> int:
        """``FOUND``, ``NONE``, or ``CUT`` when the time is over."""
        until = time.monotonic() + seconds
        orders = self._rectangles.orders()
        n = len(self._rectangles)
        limit = _FIRST_STATES * n
        while True:
            for name in _RACERS:
                began, before = time.monotonic(), self.states
                ended = self._search(orders[name], limit)
                if ended != CUT:
                    return ended
                now = time.monotonic()
                if now > until:
                    return CUT
                # At this pace: no turn goes on for long after the time is over.
                pace = (self.states - before) / max(now - began, 1e-3)
                limit = min(limit, max(n, int(pace * (until - now))))
            limit *= 2

    def _search(self, order: np.ndarray, limit: int) -> int:
        p = self.instance
        n, sections = p.bytes.size, p.section_start.size - 1
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        change = np.zeros(sections + 1, np.int64)
        np.add.at(change, p.start, p.bytes)
        np.add.at(change, p.end, -p.bytes)
        spanning = np.zeros(sections + 1, np.int64)
        np.add.at(spanning, p.start, 1)
        np.add.at(spanning, p.end - 1, -1)
        zeros = np.zeros(n, np.int64)
        state = State(
            rank=rank,
            part=np.argsort(p.start, kind="stable").astype(np.int64),
            lowest=zeros.copy(),
            least=zeros.copy(),
            placed=zeros.copy(),
            offset=self.offset,
            floor=np.zeros(sections, np.int64),
            left=change.cumsum()[:sections],
            spanning=spanning.cumsum()[:sections],
            dirty=np.zeros(sections, np.int64),
            witness=np.full(n, -1, np.int64),
            trail=np.zeros((n * (2 * n + sections) + 1, 3), np.int64),
            count=np.array([limit, 0], np.int64),
        )
        # What has nothing in common from the outset is placed by itself.
        ended, first = FOUND, 0
        for last in map(int, np.flatnonzero(state.spanning == 0) + 1):
            begin, until = np.searchsorted(p.start[state.part], (first, last))
            ended = int(fill(p, state, int(begin), int(until), first, last, 0, 0, self.capacity))
            first = last
            if ended != FOUND:
                break
        self.states += limit - int(state.count[0])
        return ended
