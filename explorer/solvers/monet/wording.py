"""What is known for a budget, as an answer in words."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from explorer.solution import Bound, BoundScope, Solution, Statistics, Status
from explorer.solvers.monet.knowledge import SAME, Knowledge
from explorer.units import format_bytes


@dataclass
class Progress:
    """How far the solve for one budget has come.

    Attributes:
        budget_bytes: peak allowed.
        began: by the monotonic clock.
        grouping_ms: bound for the grouping solved, None before there is one.
        statistics: of the integer program stated last.
    """

    budget_bytes: int
    began: float = field(default_factory=time.monotonic)
    grouping_ms: float | None = None
    statistics: Statistics | None = None


def solution_of(knowledge: Knowledge, progress: Progress, *, gap: float, stopped: bool = False) -> Solution:
    """What is known now, as an answer; optimal if proven within ``gap``."""
    bounds = [Bound(knowledge.bound_ms(progress.budget_bytes), BoundScope.PROBLEM)]
    if progress.grouping_ms is not None:
        bounds.append(Bound(progress.grouping_ms, BoundScope.GROUPING))
    solution = Solution(
        Status.UNKNOWN,
        progress.budget_bytes,
        bounds=tuple(bounds),
        statistics=progress.statistics,
        elapsed_s=time.monotonic() - progress.began,
    )
    point = knowledge.frontier.best(progress.budget_bytes)
    if point is None:
        return _without_schedule(knowledge, solution, stopped=stopped)
    return _with_status(point.in_answer(solution, status=Status.FEASIBLE), gap=gap, stopped=stopped)


def _without_schedule(knowledge: Knowledge, solution: Solution, *, stopped: bool) -> Solution:
    minimum = knowledge.minimum()
    budget = format_bytes(solution.budget_bytes)
    if solution.budget_bytes < minimum.lower_bound_bytes:
        status, text = Status.INFEASIBLE, f"no schedule fits {budget} in this order of operators: {minimum}"
    else:
        status = Status.CANCELLED if stopped else Status.UNKNOWN
        proven = f"proven is only that none fits below {format_bytes(minimum.lower_bound_bytes)}"
        text = f"no schedule for {budget} found; {minimum}; {proven}"
    return replace(solution, status=status, minimum=minimum, message=text)


def _with_status(solution: Solution, *, gap: float, stopped: bool) -> Solution:
    """A solution with a schedule, told how good it is: optimal if proven within ``gap``, else feasible."""
    reached = solution.gap()
    assert reached is not None
    if reached <= max(gap, SAME):
        proven = "the fastest schedule" if reached <= SAME else f"within {reached:.1%} of the fastest schedule"
        return replace(solution, status=Status.OPTIMAL, message=f"proven to be {proven} for this budget")
    text = f"fits the budget; proven within {reached:.1%} of the fastest schedule"
    grouping = solution.gap(BoundScope.GROUPING)
    if grouping is not None:
        text += f", and within {grouping:.1%} among schedules of this grouping"
    return replace(solution, message=f"stopped: {text}" if stopped else text)
