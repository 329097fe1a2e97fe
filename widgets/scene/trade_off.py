"""The schedules known for all budgets: where the one shown stands among them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from explorer.solution import Solution
from explorer.timeline import Timeline


@dataclass(frozen=True)
class TradeOff:
    """What the plot knows.

    Attributes:
        keep_all: the plain step, against which extra time counts.
        instant: schedules known before any solve, by increasing peak.
        solved: answers so far, one for each budget.
        current: the answer shown.
        others: title and answers of each curve to compare with.
    """

    keep_all: Timeline
    instant: tuple[Solution, ...]
    solved: tuple[Solution, ...] = ()
    current: Solution | None = None
    others: tuple[tuple[str, tuple[Solution, ...]], ...] = ()

    def with_answer(self, solution: Solution) -> TradeOff:
        """The same with ``solution`` as the current answer for its budget."""
        others = (x for x in self.solved if x.budget_bytes != solution.budget_bytes)
        return replace(self, solved=(*others, solution), current=solution)

    @cached_property
    def best(self) -> tuple[Solution, ...]:
        """Schedules that no other known one beats in time and memory, by increasing peak."""
        found: list[Solution] = []
        schedules = [x for x in (*self.instant, *self.solved) if x.peak_bytes is not None and x.time_ms is not None]
        for one in sorted(schedules, key=lambda x: (x.peak_bytes, x.time_ms)):
            if not found or (one.time_ms or 0.0) < (found[-1].time_ms or 0.0):
                found.append(one)
        return tuple(found)

    def fitting(self, budget_bytes: int) -> Solution | None:
        """The quickest of the schedules known that fit a budget; None where none does."""
        fitting = [x for x in self.best if (x.peak_bytes or 0) <= budget_bytes]
        return fitting[-1] if fitting else None

    def overhead(self, time_ms: float) -> float:
        """Extra time in per cent of the plain step's."""
        return 100 * (time_ms / self.keep_all.time_ms - 1) if self.keep_all.time_ms else 0.0
