"""Plans that owe nothing to each other, from tournaments of searches, and what becomes of crossing them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from explorer.solvers.frontier import Point
from explorer.solvers.instant import TOURNAMENT_EFFORT
from explorer.solvers.planner import Planner

if TYPE_CHECKING:
    from explorer.solvers.crossing import Crossing

_LONGER = 1.1  # how much longer each tournament is than the one before
_CONVERGED = 4  # tournaments that end alike
_SEED = 1000  # a solve has fewer tournaments


class Rivals:
    """Holds tournaments and crosses what they find, for one budget; one thread crosses, any may hold tournaments.

    Args:
        planner: what is known already; learns every schedule found.
        budget_bytes: peak allowed.
        seed: of all tournaments.
        stop: uint8, shape (1,): another thread sets it to end a tournament.
        over: polled while plans are crossed; true ends that.
    """

    def __init__(
        self, planner: Planner, budget_bytes: int, *, seed: int, stop: np.ndarray, over: Callable[[], bool]
    ) -> None:
        """Nothing is found yet."""
        self.planner, self.budget_bytes = planner, budget_bytes
        self._stop, self._over = stop, over
        self._found: list[Point] = []
        self._winners: list[Point | None] = []
        self._crossed = 0
        self._crossing: Crossing | None = None
        self._choosing = threading.Lock()
        self._seeds = count(_SEED * seed)
        self._effort = 1.0

    @property
    def effort(self) -> float:
        """Of the next tournament."""
        return TOURNAMENT_EFFORT * self._effort

    def tournament(self) -> None:
        """Hold one; the planner learns what reaches its later rounds."""
        with self._choosing:
            effort, seed = self._effort, next(self._seeds)
            self._effort *= _LONGER
        winner = None
        for schedule in self.planner.search.tournament(self.budget_bytes, effort=effort, seed=seed, stop=self._stop):
            point = self.planner.add_schedule(schedule)
            self._found.append(point)
            winner = point if winner is None or point.time_ms < winner.time_ms else winner
        self._winners.append(winner)

    def cross(self, *, time_limit: float) -> None:
        """Cross good plans, and hold tournaments for more of them, until those find nothing else than the best."""
        until = time.monotonic() + time_limit
        while (left_s := until - time.monotonic()) > 0 and not self._over() and not self.converged():
            pair = self._pair() if len(self._winners) > self._crossed else None
            if pair is None or self._crossing is None:
                self.tournament()
                continue
            self._crossed += 1
            schedule = self._crossing.cross(pair, time_limit=left_s, should_stop=self._over)
            if schedule is not None:
                child = self.planner.add_schedule(schedule)
                self._found.append(child)
                self._crossing.exclude(child, pair)

    def converged(self) -> bool:
        """Have the last tournaments all found what is known to be the best? Or is nothing to be found?"""
        if not self.planner.search.has_choices:
            return True
        best = self.planner.frontier.best(self.budget_bytes)
        last = self._winners[-_CONVERGED:]
        if best is None or len(last) < _CONVERGED:
            return False
        return all(x is not None and x.time_ms <= best.time_ms for x in last)

    def _pair(self) -> tuple[Point, Point] | None:
        """Two good plans that were not crossed yet."""
        from explorer.solvers.crossing import Crossing  # here because cvxpy takes a second to import

        if self._crossing is None:
            self._crossing = Crossing(self.planner.problem, self.budget_bytes)
        best = self.planner.frontier.best(self.budget_bytes)
        return self._crossing.pair(self._found if best is None else [*self._found, best])
