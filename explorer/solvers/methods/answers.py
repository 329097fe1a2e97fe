"""From the schedules that a method can make to its answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.solution import Minimum, Solution, Status
from explorer.solvers.problem.frontier import Frontier, judged
from explorer.units import format_bytes


def best_of(
    profile: Profile, schedules: Iterable[Schedule], budgets_bytes: Sequence[int], *, method: str
) -> tuple[Solution, ...]:
    """For every budget the quickest schedule that fits, as the simulator judges.

    Args:
        profile: graph and costs.
        schedules: at least one.
        budgets_bytes: peak allowed, each.
        method: its name, for schedules and messages.

    Returns:
        One solution for each budget: feasible, or infeasible with the smallest peak among the schedules.
    """
    frontier = Frontier()
    for schedule in schedules:
        frontier.add(judged(profile, replace(schedule, method=method)))
    return tuple(_answer(profile, frontier, budget_bytes, method) for budget_bytes in budgets_bytes)


def unsuited(budgets_bytes: Sequence[int], reason: str) -> tuple[Solution, ...]:
    """The answers of a method that is not for a graph; ``reason``: one sentence that says why."""
    return tuple(Solution(Status.UNSUITED, budget_bytes, message=reason) for budget_bytes in budgets_bytes)


def _answer(profile: Profile, frontier: Frontier, budget_bytes: int, method: str) -> Solution:
    point = frontier.best(budget_bytes)
    if point is not None:
        schedule = replace(point.schedule, budget_bytes=budget_bytes)
        return Solution(
            Status.FEASIBLE,
            budget_bytes,
            schedule,
            point.time_ms,
            point.peak_bytes,
            message=f"the quickest schedule of {method!r} that fits",
        )
    smallest = frontier.points()[0]
    timeline = simulate(profile, smallest.schedule)
    operator = profile.graph.operators[timeline.operators[timeline.peak_run]]
    minimum = Minimum(smallest.peak_bytes, smallest.peak_bytes, operator.name, operator.layer)
    text = f"no schedule of {method!r} fits {format_bytes(budget_bytes)}: its smallest peak is"
    message = f"{text} {format_bytes(smallest.peak_bytes)} ({smallest.peak_bytes} bytes), at {operator.name!r}"
    return Solution(Status.INFEASIBLE, budget_bytes, minimum=minimum, message=message)
