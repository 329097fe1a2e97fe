"""Populations of plans bred for a solve; any thread may breed."""

from __future__ import annotations

import time

import numpy as np

from explorer.solvers.monet.solve import Solve
from explorer.solvers.search.population import Population


class Breeder:
    """Breeds plans for one budget, and follows blueprints.

    Args:
        solve: learns every schedule found.
    """

    def __init__(self, solve: Solve) -> None:
        """Nothing is bred yet."""
        self._solve, self._strategy = solve, solve.options.strategy
        self._population = Population(
            solve.knowledge.search,
            solve.budget_bytes,
            seed=solve.options.seed,
            stop=solve.stop,
            sizes=self._strategy.breeding,
            echoes=self._strategy.echoes,
        )

    def breed(self) -> float:
        """One search; its effort."""
        plan, effort = self._population.step() if self._strategy.population else self._population.follow()
        if plan.point is not None:
            self._solve.knowledge.add(plan.point)
        return effort

    def breed_for(self, seconds: float) -> None:
        """Breed for so long, or until there is nothing more to be found."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._solve.over() and not self.converged():
            self.breed()

    def idle(self) -> bool:
        """Is there nothing to breed from, or is it of no more use?"""
        if not self._strategy.population:
            return not self._population.has_blueprints
        return self._solve.exhausted.is_set() or self.converged()

    def suggest(self, blueprint: np.ndarray) -> None:
        """Breed from a plan that need not fit."""
        self._population.suggest(blueprint)

    def converged(self) -> bool:
        """Have the last populations all ended with what is known to be the best? Or is nothing to be found?"""
        if not self._strategy.population or not self._solve.knowledge.search.has_choices:
            return True
        last = self._population.champions[-self._strategy.breeding.converged :]
        if len(last) < self._strategy.breeding.converged:
            return False
        return all(x.fits and x.time_ms <= self._solve.best_ms for x in last)
