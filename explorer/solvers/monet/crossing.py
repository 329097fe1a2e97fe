"""Cross plans: the best schedule that does, in everything, what one of two good ones does.

Searches from scratch end in plans that are good in different places. What two of them have in common is probably right
(Rothberg, "An evolutionary algorithm for polishing mixed integer programming solutions", 2007); what they differ in is
small enough for an integer program to find the best of all combinations in seconds, in a grouping that is much too fine
to be solved as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.formulation import grouped
from explorer.solvers.formulation.groups import group_stages
from explorer.solvers.formulation.merge import MergedProblem, merge
from explorer.solvers.problem.frontier import Point
from explorer.solvers.problem.problem import Problem
from explorer.solvers.programs.scip import minimise

_PINNED_SHARE = 1e-4  # plans that use the last byte have no solution where more is kept unasked
_THRESHOLDS = (0.025, 0.05, 0.1, 0.2)
_COLUMNS = 40_000  # of the whole program, at most: stating it takes a second
_GAP = 1e-5
_NEAR = 0.004  # plans that are slower than the best by more than that differ in too much
_DIFFERENT = 0.5  # of variables that are whole
_CHOSEN = ("s", "r")  # variables that stay as they are where the plans agree: what is kept, and what runs again
_Key = tuple[int, float]


class Crossing:
    """Crosses schedules for one problem and budget; each pair once."""

    def __init__(self, problem: Problem, budget_bytes: int) -> None:
        """States the program."""
        self.budget_bytes = budget_bytes
        merged = merge(problem, pinned_share=_PINNED_SHARE)
        self.model = grouped.build(merged, budget_bytes, threshold=_threshold(merged, budget_bytes))
        self._chosen = np.zeros(self.model.milp.objective.size, bool)
        for block in _CHOSEN:
            if block in self.model.blocks:
                self._chosen[self.model.blocks[block]] = True
        # By peak and time: plans that agree in both are the same for us.
        self._vectors: dict[_Key, np.ndarray | None] = {}
        self._tried: set[frozenset[_Key]] = set()

    def pair(self, points: Iterable[Point]) -> tuple[Point, Point] | None:
        """The quickest two that were not crossed yet; None if there are none that are about as good as the best."""
        fitting = [x for x in {_key(x): x for x in points}.values() if self._vector(x) is not None]
        slowest_ms = (1 + _NEAR) * min((x.time_ms for x in fitting), default=0.0)
        pairs = combinations((x for x in fitting if x.time_ms <= slowest_ms), 2)
        untried = (x for x in pairs if frozenset(map(_key, x)) not in self._tried)
        return min(untried, key=lambda x: x[0].time_ms + x[1].time_ms, default=None)

    def cross(
        self, pair: tuple[Point, Point], *, time_limit: float, should_stop: Callable[[], bool] | None = None
    ) -> Schedule | None:
        """Find the best combination of two.

        Args:
            pair: from ``pair``.
            time_limit: seconds.
            should_stop: polled; true ends it.

        Returns:
            A schedule that is better than both; None if none was found.
        """
        self._tried.add(frozenset(map(_key, pair)))
        milp = self.model.milp
        starts = [x for x in map(self._vector, pair) if x is not None]
        free = (np.abs(starts[0] - starts[-1]) > _DIFFERENT) | ~self._chosen
        x = min(starts, key=milp.value).copy()
        result = minimise(
            milp.restricted(free, x),
            time_limit=time_limit,
            gap=_GAP,
            start=[start[free] for start in starts],
            should_stop=should_stop,
        )
        if result.x is None or result.objective is None or result.objective >= milp.value(x) - _GAP * milp.value(x):
            return None
        x[free] = result.x
        return self.model.decode(x)

    def exclude(self, child: Point, parents: tuple[Point, Point]) -> None:
        """Leave out crossing a schedule with those that it came from: nothing between them is better."""
        self._tried |= {frozenset((_key(child), _key(x))) for x in parents}

    def _vector(self, point: Point) -> np.ndarray | None:
        key = _key(point)
        if key not in self._vectors:
            fits = point.peak_bytes <= self.budget_bytes
            self._vectors[key] = self.model.encode(point.schedule) if fits else None
        return self._vectors[key]


def _key(point: Point) -> _Key:
    return point.peak_bytes, point.time_ms


def _threshold(merged: MergedProblem, budget_bytes: int) -> float:
    """The finest grouping that is not too large."""
    decided = (len(merged.nodes) + len(merged.problem.activations)) / 2  # they end with what they are of use for
    for threshold in _THRESHOLDS:
        if len(group_stages(merged, budget_bytes, threshold=threshold)) * decided <= _COLUMNS:
            return threshold
    return _THRESHOLDS[-1]
