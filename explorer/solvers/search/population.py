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

from explorer.solvers.search.from_schedule import places_of
from explorer.solvers.search.plan_archive import HOT
from explorer.solvers.search.plan_search import Plan, PlanSearch
from explorer.solvers.strategy import Breeding

_SAME_MS = 1e-6
_SEED = 100_000  # a solve has fewer searches


class _Next(NamedTuple):
    """The next search.

    Attributes:
        parents: who may be replaced: two or more for a child, none for a founder.
        genes: to begin with; None: from scratch.
        effort: as of ``PlanSearch``.
    """

    parents: list[Plan]
    genes: np.ndarray | None
    effort: float


class Population:
    """Any number of threads may ``step``.

    Args:
        search: of the problem; it learns nothing from this.
        budget_bytes: peak allowed.
        seed: of all searches.
        stop: uint8, shape (1,): another thread sets it to end a search.
        sizes: of a population and its searches.
        echoes: whether changes of a block are made in others like it too.
    """

    def __init__(
        self,
        search: PlanSearch,
        budget_bytes: int,
        *,
        seed: int,
        stop: np.ndarray,
        sizes: Breeding,
        echoes: bool = True,
    ) -> None:
        """Empty."""
        self._search, self._budget_bytes, self._stop, self._sizes = search, budget_bytes, stop, sizes
        self._echoes = echoes
        self._places = places_of(search.arrays)
        self._random = np.random.default_rng(seed)
        self._seeds = count(_SEED * seed)
        self._lock = threading.Lock()
        self._longer = 1.0
        self._blueprints: list[np.ndarray] = []
        self._latest: np.ndarray | None = None
        self._begin()
        self.champions: list[Plan] = []
        """The best of each population that came to an end."""

    def _begin(self) -> None:
        self._to_found = self._sizes.founders
        self._members: list[Plan] = []
        self._failures = self._stagnant = 0
        if self._latest is not None:
            self._blueprints = [self._latest] * self._sizes.twins

    def step(self) -> tuple[Plan, float]:
        """One search: from scratch, from a blueprint or of a child; what it found, and its effort."""
        with self._lock:
            search = self._next()
            seed = next(self._seeds)
        plan = self._anneal(search.genes, effort=search.effort, seed=seed)
        if not self._stop[0]:
            with self._lock:
                self._settle(plan, search.parents)
        return plan, search.effort

    def follow(self) -> tuple[Plan, float]:
        """A search from a blueprint, which becomes no member; what it found, and its effort."""
        with self._lock:
            genes, seed = self._blueprints.pop(), next(self._seeds)
        return self._anneal(genes, effort=self._sizes.child, seed=seed), self._sizes.child

    @property
    def has_blueprints(self) -> bool:
        """Was something suggested that was not begun with?"""
        return bool(self._blueprints)

    def suggest(self, blueprint: np.ndarray) -> None:
        """Begin next with a plan that need not fit, instead of a founder or a child."""
        with self._lock:
            self._latest, self._blueprints = blueprint, [blueprint] * self._sizes.twins

    def _anneal(self, genes: np.ndarray | None, *, effort: float, seed: int) -> Plan:
        warmest = self._sizes.temperatures[seed % len(self._sizes.temperatures)]
        return self._search.anneal_beside(
            self._budget_bytes,
            parent=genes,
            temperatures=HOT if genes is None else (warmest, self._sizes.coolest),
            effort=effort,
            seed=seed,
            echoes=self._echoes,
            stop=self._stop,
        )

    def _next(self) -> _Next:
        if self._blueprints:
            self._to_found -= bool(self._to_found)
            crowded = len(self._members) + self._to_found >= self._sizes.founders
            parents = self._members.copy() if crowded else []
            return _Next(parents, self._blueprints.pop(), self._sizes.child * self._longer)
        if self._to_found or len(self._members) < 2:  # others may still be at work on the last founders
            self._to_found -= bool(self._to_found)
            return _Next([], None, self._longer)
        self._longer *= self._sizes.longer
        first, second = (self._members[x] for x in self._random.choice(len(self._members), 2, replace=False))
        return _Next([first, second], self._cross(first, second), self._sizes.child * self._longer)

    def _cross(self, first: Plan, second: Plan) -> np.ndarray:
        """The first, with a stretch of the forward pass as in the second."""
        begin, end = np.sort(self._random.choice(self._search.arrays.forward_count + 1, 2, replace=False))
        return np.where((self._places >= begin) & (self._places < end), second.genes, first.genes)

    def _settle(self, plan: Plan, parents: list[Plan]) -> None:
        better = all(plan.rank < x.rank for x in self._members)
        if not parents:
            self._members.append(plan)
        elif self._replace(plan, [x for x in parents if x in self._members]):
            self._failures = 0
        else:
            self._failures += 1
        self._stagnant = 0 if better else self._stagnant + 1
        if self._failures >= self._sizes.patience or self._stagnant >= self._sizes.stagnant:
            self.champions.append(min(self._members, key=lambda x: x.rank))
            self._begin()

    def _replace(self, plan: Plan, others: list[Plan]) -> bool:
        """Put a plan in the place of the worst of some members; not if it is no better, or there is one like it."""
        worst = max(others, key=lambda x: x.rank, default=None)
        alike = any(plan.fits and abs(plan.time_ms - x.time_ms) < _SAME_MS for x in self._members)
        if worst is None or plan.rank >= worst.rank or alike:
            return False
        self._members[self._members.index(worst)] = plan
        return True
