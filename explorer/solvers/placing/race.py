"""Searches for a buffer of one size that differ in what goes first among equal offsets.

Orders of MiniMalloc (Moffitt, ASPLOS 2023) take turns, each longer than the last, so that one of them comes to an end.
In between there are short searches in perturbed orders. All of them note where they had no room, and rectangles that
are alive there go earlier in the next perturbed order, as variables of failed constraints do in weighted-degree
heuristics (Boussemart et al., ECAI 2004).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import cycle

import numpy as np

from explorer.solvers.placing.kernel import CUT, FOUND, LEVEL, State, fill
from explorer.solvers.placing.rectangles import Rectangles

_RACERS = ("WAT", "TAW", "TWA", "AWT", "WTA", "ATW")  # of ``Rectangles.orders``
_FIRST_STATES = 16  # times as many as there are rectangles: of each racer's first turn
_SHORT_STATES = 8  # likewise, of each perturbed order: many short searches find what few long ones do not
_PERTURBED = 4.0  # states for perturbed orders, of those for racers
# Of the measures' standard deviations: noise in a perturbed order, and what e times the mean failures weigh, in turn.
_NOISE = 0.05
_BLAME = (0.5, 1.0, 2.0, 4.0)
_REMEMBERED = 0.95  # of the failures before, in each turn
_SEED = 0


class Race:
    """The searches for one buffer; each time the same ones, until the time is over.

    Attributes:
        offset: int64 (n,), where each rectangle lies once ``run`` has said ``FOUND``.
        states: that the searches have gone through, or tried to.
    """

    def __init__(self, rectangles: Rectangles, capacity: int) -> None:
        """Begin with nothing tried.

        Args:
            rectangles: to be placed.
            capacity: of the buffer, in their unit.
        """
        self.offset = np.zeros(len(rectangles), np.int64)
        self.states = 0
        self._rectangles = rectangles
        self._instance = rectangles.instance
        self._capacity = capacity
        self._pace = 0.0
        self._turns = self._alternating()
        p, n = self._instance, len(rectangles)
        self._failed = np.zeros(p.section_start.size - 1)  # in each section, lately, as shares
        # What lies takes its own place in the trail and those of its neighbours which do not; the rest is for what
        # makes a search quicker.
        self._needed = n + p.neighbours.size // 2
        self._levels = np.zeros((n + 1, LEVEL), np.int64)
        self._trail = np.zeros((2 * self._needed, 3), np.int64)

    def run(self, seconds: float) -> int:
        """``FOUND``, ``NONE``, or ``CUT`` when the time is over; then it may be called again, and goes on."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            order, limit = next(self._turns)
            ended = self._turn(order, limit, left)
            if ended != CUT:
                return ended
        return CUT

    def _alternating(self) -> Iterator[tuple[np.ndarray, int]]:
        """Orders and states for each turn."""
        orders = self._rectangles.orders()
        perturbed, blames = _Perturbed(self._rectangles), cycle(_BLAME)
        n = len(self._rectangles)
        limit = _FIRST_STATES * n
        yield orders[_RACERS[0]], n  # how quick it is: no turn is longer than there is time
        while True:
            before = self.states
            for name in _RACERS:
                yield orders[name], limit
            short = self.states + int(_PERTURBED * (self.states - before))
            while self.states < short:
                yield perturbed.order(self._failed, next(blames)), _SHORT_STATES * n
            limit *= 2

    def _turn(self, order: np.ndarray, limit: int, seconds: float) -> int:
        """Search until there is an end, or no more states or time."""
        began, before = time.monotonic(), self.states
        if self._pace:
            limit = min(limit, max(len(order), int(self._pace * seconds)))
        ended = self._search(order, limit)
        self._pace = (self.states - before) / max(time.monotonic() - began, 1e-3)
        return ended

    def _search(self, order: np.ndarray, limit: int) -> int:
        state = self._start(order, limit)
        # What has nothing in common from the outset is placed by itself.
        p = self._instance
        ended, first = FOUND, 0
        for last in map(int, np.flatnonzero(state.spanning == 0) + 1):
            begin, until = np.searchsorted(p.start[state.part], (first, last))
            ended = int(fill(p, state, int(begin), int(until), first, last, self._capacity))
            first = last
            if ended != FOUND:
                break
        self.states += limit - int(state.count[0])
        self._failed = _REMEMBERED * self._failed + state.blame / max(1, state.blame.sum())
        return ended

    def _start(self, order: np.ndarray, limit: int) -> State:
        """Nothing lies yet."""
        p = self._instance
        n, sections = p.bytes.size, p.section_start.size - 1
        rank = np.empty(n, np.int64)
        rank[order] = np.arange(n)
        change, spanning = np.zeros(sections + 1, np.int64), np.zeros(sections + 1, np.int64)
        for places, by in ((p.start, p.bytes), (p.end, -p.bytes)):
            np.add.at(change, places, by)
        for places, by in ((p.start, 1), (p.end - 1, -1)):
            np.add.at(spanning, places, by)
        return State(
            rank=rank,
            part=np.argsort(p.start, kind="stable").astype(np.int64),
            lowest=np.zeros(n, np.int64),
            least=np.zeros(n, np.int64),
            offset=self.offset,
            left=change.cumsum()[:sections],
            spanning=spanning.cumsum()[:sections],
            support=p.members[p.section_start[:-1]],
            witness=np.full(n, -1, np.int64),
            blame=np.zeros(sections, np.int64),
            levels=self._levels,
            trail=self._trail,
            count=np.array([limit, 0, self._needed], np.int64),
        )


class _Perturbed:
    """Orders by a mixture of measures, noise, and how often there was no room."""

    def __init__(self, rectangles: Rectangles) -> None:
        p = rectangles.instance
        measures = [rectangles.measures[x] for x in "WATZ"] + [np.diff(p.neighbour_start)]
        logs = [np.log1p(x) for x in measures]
        self._measures = np.array([(x - x.mean()) / (x.std() or 1.0) for x in logs])
        self._start, self._end = p.start, p.end
        self._rng = np.random.default_rng(_SEED)

    def order(self, failed: np.ndarray, blame: float) -> np.ndarray:
        """One more, the most awkward first; ``failed`` is by section, and weighs ``blame``."""
        weights = self._rng.dirichlet(np.full(len(self._measures), 0.5))
        key = weights @ self._measures + _NOISE * self._rng.normal(size=self._start.size)
        worst = np.maximum.reduceat(np.append(failed, 0.0), np.stack([self._start, self._end], 1).ravel())[::2]
        key += blame * np.log1p(worst / (failed.mean() or 1.0))
        return np.argsort(-key, kind="stable").astype(np.int64)
