"""What a solver answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from explorer.schedule import Schedule
from explorer.summaries import Fact, Summarised, milliseconds
from explorer.units import format_bytes


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    """A schedule, proven within the gap asked for of the best that the method can make (MONeT: ``BoundScope``)."""
    FEASIBLE = "feasible"
    """A schedule that fits the budget; ``gap`` says how far from the bound at most."""
    INFEASIBLE = "infeasible"
    """No schedule of the method fits; ``minimum`` says what would."""
    UNSUITED = "unsuited"
    """The method is not for graphs such as this one; ``message`` says why."""
    UNKNOWN = "unknown"
    """Time ran out before a schedule was found or excluded."""
    CANCELLED = "cancelled"
    """Stopped by the caller before a schedule was found."""
    FAILED = "failed"
    """The solver died; ``message`` says how."""


class BoundScope(StrEnum):
    """For which problem a bound holds.

    All schedules are those that run forward and backward operators once in the captured order, and again in the
    backward pass forward operators only: any of them, at any place, any number of times, as in MONeT (section 4). Less
    memory can do for schedules that run a forward operator again within the forward pass already.
    """

    PROBLEM = "all schedules"
    GROUPING = "schedules of this grouping"
    METHOD = "schedules of this method"
    ORDER = "schedules in this order"
    """All schedules whose first runs are in the order of the answer's."""


class Finder(StrEnum):
    """What found a schedule."""

    KEEPING = "keeping everything"
    SIMPLE = "simple plans"
    SEARCH = "plan search"
    ROOM = "plan search with room made"
    ELSEWHERE = "plan search for another budget"
    SMALLEST = "search for the smallest peak"
    BREEDING = "breeding"
    MIXTURE = "mixing schedules"
    PROGRAM = "SCIP, on an integer program"
    EXHAUSTION = "exhaustion"
    RECALLED = "an earlier solve"
    GIVEN = "an earlier search"


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule within ``scope`` and the budget takes less than ``time_ms``."""

    time_ms: float
    scope: BoundScope


@dataclass(frozen=True, slots=True)
class Minimum:
    """The smallest budget for which a schedule is known.

    Attributes:
        budget_bytes: peak of the smallest schedule known.
        lower_bound_bytes: below this there is none.
        operator: name of the operator at which the memory cannot be less.
        layer: its module path.
    """

    budget_bytes: int
    lower_bound_bytes: int
    operator: str
    layer: str

    @property
    def proven(self) -> bool:
        """Is it known that nothing smaller exists?"""
        return self.budget_bytes <= self.lower_bound_bytes

    def __str__(self) -> str:
        """As a sentence."""
        at = f"{self.operator!r}" + (f" in {self.layer!r}" if self.layer else "")
        smallest = f"{format_bytes(self.budget_bytes)} ({self.budget_bytes} bytes)"
        return f"the smallest feasible budget known is {smallest}, set by {at}"


@dataclass(frozen=True, slots=True)
class Statistics:
    """Size of the integer program as handed to the solver."""

    rows: int
    columns: int
    nonzeros: int
    groups: int


@dataclass(frozen=True, repr=False)
class Solution(Summarised):
    """A schedule with what is known about it.

    Attributes:
        status: how the solve ended.
        budget_bytes: what was asked.
        schedule: the best found, judged by the simulator; None without one.
        time_ms: its simulated step time; None without one.
        peak_bytes: its simulated peak; None without one.
        bounds: proven lower bounds, at most one per scope.
        minimum: smallest feasible budget, given when the budget is infeasible, or when it is what the method is about.
        statistics: of the integer program, if one was built.
        elapsed_s: from the call to the answer.
        message: one sentence for people.
        finder: what found the schedule; None without one, and of methods that make one alone.
    """

    status: Status
    budget_bytes: int
    schedule: Schedule | None = None
    time_ms: float | None = None
    peak_bytes: int | None = None
    bounds: tuple[Bound, ...] = ()
    minimum: Minimum | None = None
    statistics: Statistics | None = None
    elapsed_s: float = 0.0
    message: str = ""
    finder: Finder | None = None

    def facts(self) -> Iterator[Fact]:
        """How the solve ended, and with what."""
        yield "", self.status.value
        yield "budget", format_bytes(self.budget_bytes)
        if self.peak_bytes is not None and self.time_ms is not None:
            yield "peak", format_bytes(self.peak_bytes)
            yield "step", milliseconds(self.time_ms)
        gap = self.gap()
        if gap is not None:
            yield "gap", f"{gap:.1%}"
        if self.minimum is not None:
            yield "smallest budget known", format_bytes(self.minimum.budget_bytes)
        yield "after", f"{self.elapsed_s:.1f} s"

    def bound_ms(self, scope: BoundScope = BoundScope.PROBLEM) -> float | None:
        """The bound that holds for ``scope``, None if none is known."""
        return next((bound.time_ms for bound in self.bounds if bound.scope is scope), None)

    def gap(self, scope: BoundScope = BoundScope.PROBLEM) -> float | None:
        """(time − bound) / time for ``scope``; None where either is unknown."""
        bound = self.bound_ms(scope)
        if self.time_ms is None or bound is None:
            return None
        return max(0.0, (self.time_ms - bound) / self.time_ms) if self.time_ms else 0.0


def message_of(solution: Solution) -> str:
    """Of a solution with a schedule, in a sentence: that it fits, and what is proven of it."""
    gap = solution.gap()
    if gap is None:
        return "fits the budget; how far it is from the fastest schedule is not known"
    return f"fits the budget; proven within {gap:.1%} of the fastest schedule"
