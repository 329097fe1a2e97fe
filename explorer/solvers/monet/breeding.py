"""Plans that owe nothing to each other, and what becomes of crossing them: by search, and by integer programs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from explorer.solution import Finder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.problem.frontier import Point
from explorer.solvers.search.population import Population
from explorer.solvers.strategy import DEFAULT, Strategy

if TYPE_CHECKING:
    from explorer.solvers.monet.crossing import Crossing


class Breeder:
    """Breeds plans for one budget; one thread crosses them by integer programs too, any may breed.

    Args:
        knowledge: what is known already; learns every schedule found.
        budget_bytes: peak allowed.
        seed: of all searches.
        stop: uint8, shape (1,): another thread sets it to end a search.
        over: polled while plans are crossed; true ends that.
        strategy: whether and how they are bred, mended and crossed.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        budget_bytes: int,
        *,
        seed: int,
        stop: np.ndarray,
        over: Callable[[], bool],
        strategy: Strategy = DEFAULT,
    ) -> None:
        """Nothing is found yet."""
        self.knowledge, self.budget_bytes = knowledge, budget_bytes
        self._over, self._strategy = over, strategy
        self._population = Population(knowledge.search, budget_bytes, seed=seed, stop=stop, strategy=strategy)
        self._crossing: Crossing | None = None
        self._mended: Point | None = None
        self._populations = 0

    def breed(self) -> float:
        """One search; the knowledge learns what it finds. Its effort."""
        if not self._strategy.population:
            plan, effort = self._population.follow()
            if plan.point is not None:
                self.knowledge.add(plan.point)
            return effort
        best = self.knowledge.frontier.best(self.budget_bytes)
        if self._populations != (ended := len(self._population.champions)):
            # What came before would take over; where the next one ends by itself is worth more.
            self._populations, self._mended = ended, best
        mends = self._strategy.mending and best is not self._mended
        if mends and best is not None and self._population.lacks(best):
            self._mended = best
            plan, effort = self._population.mend(best.schedule)
        else:
            plan, effort = self._population.step()
        if plan.point is not None:
            self.knowledge.add(plan.point)
        return effort

    @property
    def has_blueprints(self) -> bool:
        """Is there something new to breed from?"""
        return self._population.has_blueprints

    def suggest(self, blueprint: np.ndarray) -> None:
        """Breed from a plan that need not fit."""
        self._population.suggest(blueprint)

    def cross(self, *, time_limit: float) -> None:
        """Cross good plans by integer programs, and breed more of them, until there is nothing to be found."""
        began, programs_s, sizes = time.monotonic(), 0.0, self._strategy.proving
        while (spent_s := time.monotonic() - began) < time_limit and not self._over() and not self.converged():
            pair = self._pair() if programs_s <= sizes.crossing_programs * spent_s else None
            if pair is None or self._crossing is None:
                self.breed()
                continue
            left_s = min(time_limit - spent_s, max(sizes.crossing_least_s, sizes.crossing_longest * time_limit))
            schedule = self._crossing.cross(pair, time_limit=left_s, should_stop=self._over)
            if schedule is not None:
                self._crossing.exclude(self.knowledge.add_schedule(schedule, Finder.CROSSING), pair)
            programs_s += time.monotonic() - began - spent_s

    def converged(self) -> bool:
        """Have the last populations all ended with what is known to be the best? Or is nothing to be found?"""
        if not self.knowledge.search.has_choices or not self._strategy.population:
            return True
        best = self.knowledge.frontier.best(self.budget_bytes)
        last = self._population.champions[-self._strategy.bred.converged :]
        if best is None or len(last) < self._strategy.bred.converged:
            return False
        return all(x.point is not None and x.time_ms <= best.time_ms for x in last)

    def _pair(self) -> tuple[Point, Point] | None:
        """Two good plans that were not crossed yet."""
        if not self._strategy.crossing:
            return None
        from explorer.solvers.monet.crossing import Crossing  # here because cvxpy takes a second to import

        points = [x.point for x in self._population.members if x.point is not None]
        if not points:
            return None
        if self._crossing is None:
            self._crossing = Crossing(self.knowledge.problem, self.budget_bytes)
        best = self.knowledge.frontier.best(self.budget_bytes)
        return self._crossing.pair(points if best is None else [*points, best])
