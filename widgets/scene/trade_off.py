"""The schedules known for all budgets: where the one shown stands among them."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    def on_curve(self, budget_bytes: int) -> Solution | None:
        """The quickest of the instant schedules that fit a budget."""
        fitting = (x for x in self.instant if x.peak_bytes is not None and x.peak_bytes <= budget_bytes)
        return max(fitting, key=lambda x: x.peak_bytes or 0, default=None)

    def overhead(self, time_ms: float) -> float:
        """Extra time in per cent of the plain step's."""
        return 100 * (time_ms / self.keep_all.time_ms - 1) if self.keep_all.time_ms else 0.0
