"""Plans for one budget that owe nothing to each other at first, crossed until they are all alike.

Where searches from scratch end is for the most part luck, which a short one has as often as a long one; blueprints from
elsewhere are better to begin with. Then a stretch of the forward pass is treated as another plan treats it, and a short
search mends the rest (a memetic algorithm).
"""

from __future__ import annotations

import threading
from itertools import count
from typing import NamedTuple

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.problem.frontier import Point
from explorer.solvers.search.from_schedule import genes_of, places_of
from explorer.solvers.search.plan_search import HOT, Plan, PlanSearch
from explorer.solvers.strategy import DEFAULT, Strategy

_SAME_MS = 1e-6
_SEED = 100_000  # a solve has fewer searches


class _Search(NamedTuple):
    """What to do next.

    Attributes:
        parents: who may be replaced: two or more for a child, none for a founder.
        genes: to begin with; None: from scratch.
        effort: as of ``PlanSearch``.
        temperatures: the first and the last; None: the usual ones.
    """

    parents: list[Plan]
    genes: np.ndarray | None
    effort: float
    temperatures: tuple[float, float] | None = None


class Population:
    """Any number of threads may ``step``.

    Args:
        search: of the problem; it learns nothing from this.
        budget_bytes: peak allowed.
        seed: of all searches.
        stop: uint8, shape (1,): another thread sets it to end a search.
        strategy: favourites and polishing, and the sizes.
    """

    def __init__(
        self, search: PlanSearch, budget_bytes: int, *, seed: int, stop: np.ndarray, strategy: Strategy = DEFAULT
    ) -> None:
        """Empty."""
        self._strategy, self._sizes = strategy, strategy.bred
        self._search, self._budget_bytes, self._stop = search, budget_bytes, stop
        self._places = places_of(search.arrays)
        self._random = np.random.default_rng(seed)
        self._seeds = count(_SEED * seed)
        self._lock = threading.Lock()
        self._longer = 1.0
        self._turns = count()
        self._blueprints: list[np.ndarray] = []
        self._latest: np.ndarray | None = None
        self._begin()
        self.champions: list[Plan] = []
        """The best of each population that came to an end, polished since."""

    def _begin(self) -> None:
        self._to_found = self._sizes.founders
        self._members: list[Plan] = []
        self._favoured: list[Plan] = []
        self._failures = self._stagnant = 0
        if self._latest is not None:
            self._blueprints = [self._latest] * self._sizes.twins

    @property
    def members(self) -> tuple[Plan, ...]:
        """The best first; none while they are being founded."""
        with self._lock:
            return self._ranked() if self._founded() else ()

    def _founded(self) -> bool:
        """Is there nothing to do but children?"""
        favoured = len(self._favoured) == self._sizes.favourites or not self._strategy.favourites
        return not self._to_found and favoured

    def step(self) -> tuple[Plan, float]:
        """One search: from scratch, of a favourite, a child or the best; what it found, and its effort."""
        with self._lock:
            search = self._next()
            seed = next(self._seeds)
        plan = self._anneal(search.genes, effort=search.effort, seed=seed, temperatures=search.temperatures)
        if not self._stop[0]:
            with self._lock:
                self._settle(plan, search.parents)
        return plan, search.effort

    @property
    def has_blueprints(self) -> bool:
        """Was something suggested that was not begun with?"""
        return bool(self._blueprints)

    def suggest(self, blueprint: np.ndarray) -> None:
        """Begin next with a plan that need not fit, instead of a founder or a child."""
        with self._lock:
            self._latest, self._blueprints = blueprint, [blueprint] * self._sizes.twins

    def follow(self) -> tuple[Plan, float]:
        """A search from what was suggested, which becomes no member; what it found, and its effort."""
        with self._lock:
            genes, seed = self._blueprints.pop(), next(self._seeds)
        return self._anneal(genes, effort=self._sizes.child, seed=seed), self._sizes.child

    def lacks(self, point: Point) -> bool:
        """Is a schedule better than all members? No while they are being founded."""
        best = next(iter(self.members), None)
        return best is not None and (best.point is None or point.time_ms < best.time_ms - _SAME_MS)

    def mend(self, schedule: Schedule) -> tuple[Plan, float]:
        """Begin with a schedule from elsewhere (from scratch if no plan is like it); what was found; its effort."""
        genes = genes_of(self._search.problem, self._search.arrays, schedule)
        with self._lock:
            seed, effort = next(self._seeds), self._sizes.child * self._longer
        plan = self._anneal(genes, effort=effort, seed=seed)
        with self._lock:
            self._replace(plan, self._members)
        return plan, effort

    def _anneal(
        self,
        genes: np.ndarray | None,
        *,
        effort: float,
        seed: int,
        temperatures: tuple[float, float] | None = None,
    ) -> Plan:
        usual = (
            HOT
            if genes is None
            else (self._sizes.temperatures[seed % len(self._sizes.temperatures)], self._sizes.coolest)
        )
        return self._search.anneal_beside(
            self._budget_bytes,
            parent=genes,
            temperatures=temperatures or usual,
            effort=effort,
            seed=seed,
            stop=self._stop,
        )

    def _next(self) -> _Search:
        if self._blueprints:
            self._to_found -= bool(self._to_found)
            crowded = len(self._members) + self._to_found >= self._sizes.founders
            return _Search(
                self._members.copy() if crowded else [], self._blueprints.pop(), self._sizes.child * self._longer
            )
        if self._to_found:
            self._to_found -= 1
            return _Search([], None, self._longer)
        if not self._founded():
            favourite = next(x for x in self._ranked() if x not in self._favoured)
            self._favoured.append(favourite)
            return _Search([favourite], favourite.genes, self._sizes.favour * self._longer)
        lasting = self._stagnant >= self._sizes.lasting or bool(self.champions)
        if self._strategy.polishing and lasting and next(self._turns) % self._sizes.polished == 0:
            best = min([*self._members, *self.champions], key=lambda x: x.rank)
            return _Search([best], best.genes, self._sizes.child * self._longer, self._sizes.polishing)
        self._longer *= self._sizes.longer
        first, second = (self._members[x] for x in self._random.choice(len(self._members), 2, replace=False))
        return _Search([first, second], self._cross(first, second), self._sizes.child * self._longer)

    def _cross(self, first: Plan, second: Plan) -> np.ndarray:
        """The first, with a stretch of the forward pass as in the second."""
        begin, end = np.sort(self._random.choice(self._search.arrays.forward_count + 1, 2, replace=False))
        return np.where((self._places >= begin) & (self._places < end), second.genes, first.genes)

    def _settle(self, plan: Plan, parents: list[Plan]) -> None:
        better = all(plan.rank < x.rank for x in self._members)
        if not parents:
            self._members.append(plan)
        elif parents[0] in self.champions:  # polished
            self.champions = [plan if x is parents[0] and plan.rank < x.rank else x for x in self.champions]
        elif self._replace(plan, [x for x in parents if x in self._members]):
            self._failures = 0
        elif len(parents) > 1:  # of a child; that the best is the best nearby says nothing of the others
            self._failures += 1
        if len(parents) != 1:  # that a favourite or the best became a little better says nothing either
            self._stagnant = 0 if better else self._stagnant + 1
        if self._failures >= self._sizes.patience or self._stagnant >= self._sizes.stagnant:
            self.champions.append(self._ranked()[0])
            self._begin()

    def _replace(self, plan: Plan, others: list[Plan]) -> bool:
        """Put a plan in the place of the worst of some members; not if it is no better, or there is one like it."""
        worst = max(others, key=lambda x: x.rank, default=None)
        alike = any(plan.point is not None and abs(plan.time_ms - x.time_ms) < _SAME_MS for x in self._members)
        if worst is None or plan.rank >= worst.rank or alike:
            return False
        self._members[self._members.index(worst)] = plan
        self._favoured = [plan if x is worst else x for x in self._favoured]
        return True

    def _ranked(self) -> tuple[Plan, ...]:
        return tuple(sorted(self._members, key=lambda x: x.rank))
