"""What may be asked of the solvers."""

from __future__ import annotations

from dataclasses import dataclass

METHODS = ("monet",)
FORMULATIONS = ("grouped", "paper")


@dataclass(frozen=True, slots=True)
class Options:
    """How to solve.

    Attributes:
        method: one of ``METHODS``.
        formulation: one of ``FORMULATIONS``.
        time_limit: seconds for each budget.
        gap: stop once the schedule is proven to be within this of the fastest, relative to its time.
    """

    method: str = "monet"
    formulation: str = "grouped"
    time_limit: float = 10.0
    gap: float = 0.01

    def __post_init__(self) -> None:
        """Raises ValueError for options that mean nothing."""
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; allowed: {', '.join(map(repr, METHODS))}")
        if self.formulation not in FORMULATIONS:
            raise ValueError(f"formulation is {self.formulation!r}; allowed: {', '.join(map(repr, FORMULATIONS))}")
        if not 0 < self.time_limit < float("inf"):
            raise ValueError(f"time_limit is {self.time_limit}; it must be a positive number of seconds")
        if not 0 <= self.gap < float("inf"):
            raise ValueError(f"gap is {self.gap}; it must be 0 or more, such as 0.01 for 1 %")
