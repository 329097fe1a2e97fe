"""The order with the least peak that can be found in well under a second, and what is proven of it.

List scheduling under a target peak, the target halved towards the bound; then its priorities perturbed; then, where a
gap is left, an exhaustive search over sets of operators, which either closes it or gives up after so many sets. All of
it is the same every time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.solvers.ordering.bounds import lower_bound_bytes
from explorer.solvers.ordering.kernel import FOUND, NONE, list_schedule, peak_of, perturb, search_sets
from explorer.solvers.ordering.task import Task

_BISECTIONS = 24
_CLOSE = 4096
"""A gap below one part in so many is not worth another target."""
_VISITS = 75_000
"""Operators placed while priorities are perturbed: so many rounds times the operators of the task …"""
_ROUNDS = (20, 2000)
"""… but so many rounds at least and at most."""
_SETS = 4_000_000
"""Sets of operators that an exhaustive search may look at, times the operators of the task …"""
_SEARCHES = (64, 100_000)
"""… but so many sets at least and at most."""
_PATIENCE = 2
"""Searches that may end undecided."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order of a task.

    Attributes:
        operators: numbers of the task's operators.
        peak_bytes: its peak.
        lower_bound_bytes: no order has a smaller peak.
    """

    operators: tuple[int, ...]
    peak_bytes: int
    lower_bound_bytes: int

    @property
    def gap(self) -> float:
        """How far below this peak another order's may be, at most: 0.01 for 1 %, 0 where none is."""
        return 1 - self.lower_bound_bytes / self.peak_bytes if self.peak_bytes else 0.0


def best_order(task: Task, *, seed: int = 0) -> Order:
    """The best order found, never worse than the one that the task is in.

    Args:
        task: what is to be put in order.
        seed: of the random changes; equal seeds give equal orders.
    """
    search = _Search(task, seed)
    if len(task):
        search.look()
    peak = task.peak_bytes(search.order.tolist())
    return Order(tuple(search.order.tolist()), peak, max(task.fixed_bytes, min(peak, search.bound + task.fixed_bytes)))


class _Search:
    """Peaks here are without what is fixed."""

    def __init__(self, task: Task, seed: int) -> None:
        self.task, self.seed = task, seed
        self.arrays = task.arrays
        self.priority = np.arange(len(task), dtype=np.float64)
        self.order = np.arange(len(task), dtype=np.int64)
        self.peak = peak_of(self.arrays, self.order) if len(task) else 0
        self.bound = 0

    def look(self) -> None:
        self.bound = lower_bound_bytes(self.task, enough_bytes=self.peak + self.task.fixed_bytes)
        self.bound -= self.task.fixed_bytes
        self.by_targets()
        if self.peak > self.bound:
            self.by_priorities()
        if self.peak > self.bound:
            self.by_sets()

    def by_targets(self) -> None:
        """List schedules: the lowest target that one stays below."""
        low, high = self.bound, self.at_target(self.bound)
        if self.peak > self.bound:
            self.at_target(np.iinfo(np.int64).max)
        high = min(high, self.peak)
        for _ in range(_BISECTIONS):
            if high - low <= max(1, high // _CLOSE) or self.peak <= self.bound:
                break
            middle = (low + high) // 2
            if self.at_target(middle) <= middle:
                high = middle
            else:
                low = middle

    def at_target(self, target: int) -> int:
        peak, order = list_schedule(self.arrays, target, self.priority)
        self.take(peak, order)
        return peak

    def by_priorities(self) -> None:
        rounds = int(np.clip(_VISITS // len(self.task), *_ROUNDS))
        peak, order, self.priority = perturb(self.arrays, self.priority, self.order, self.bound, rounds, self.seed)
        self.take(peak, order)

    def by_sets(self) -> None:
        """The bound itself as a target, then the middle between it and the peak, as long as that is decided."""
        keys = np.random.default_rng(self.seed).integers(1, 2**63, len(self.task), dtype=np.uint64)
        limit = int(np.clip(_SETS // len(self.task), *_SEARCHES))
        low, target, patience = self.bound, self.bound, _PATIENCE
        while low < self.peak and patience:
            ended, order, _ = search_sets(self.arrays, target, self.priority, keys, limit)
            if ended == FOUND:
                self.take(peak_of(self.arrays, order), order)
            else:
                low = target + 1
                self.bound = low if ended == NONE else self.bound
                patience -= ended != NONE
            target = (low + self.peak - 1) // 2

    def take(self, peak: int, order: np.ndarray) -> None:
        if peak < self.peak:
            self.peak, self.order = peak, order
