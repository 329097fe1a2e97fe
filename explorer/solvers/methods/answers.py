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
    profile: Profile, schedules: Iterable[Schedule], budgets_bytes: Sequence[int], *, method: str, every: bool = True
) -> tuple[Solution, ...]:
    """For every budget the quickest schedule that fits, as the simulator judges.

    Args:
        profile: graph and costs.
        schedules: at least one.
        budgets_bytes: peak allowed, each.
        method: its name, for schedules and messages.
        every: are these all that the method can make, or at least those with the smallest peak?

    Returns:
        One solution for each budget: feasible, or without one the smallest peak among the schedules: infeasible, or
        unknown where there are other schedules.
    """
    frontier = Frontier()
    for schedule in schedules:
        frontier.add(judged(profile, replace(schedule, method=method)))
    return answers_from(profile, frontier, budgets_bytes, method=method, every=every)


def answers_from(
    profile: Profile, frontier: Frontier, budgets_bytes: Sequence[int], *, method: str, every: bool
) -> tuple[Solution, ...]:
    """The same of schedules that have been judged, one at least."""
    return tuple(_answer(profile, frontier, budget_bytes, method, every=every) for budget_bytes in budgets_bytes)


def unsuited(budgets_bytes: Sequence[int], reason: str) -> tuple[Solution, ...]:
    """The answers of a method that is not for a graph; ``reason``: one sentence that says why."""
    return tuple(Solution(Status.UNSUITED, budget_bytes, message=reason) for budget_bytes in budgets_bytes)


def _answer(profile: Profile, frontier: Frontier, budget_bytes: int, method: str, *, every: bool) -> Solution:
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
    minimum = Minimum(smallest.peak_bytes, smallest.peak_bytes if every else 0, operator.name, operator.layer)
    wanted = format_bytes(budget_bytes)
    if every:
        status, text = Status.INFEASIBLE, f"no schedule of {method!r} fits {wanted}: its smallest peak is"
    else:
        status, text = Status.UNKNOWN, f"no schedule of {method!r} found that fits {wanted}: the smallest peak found is"
    message = f"{text} {format_bytes(smallest.peak_bytes)} ({smallest.peak_bytes} bytes), at {operator.name!r}"
    return Solution(status, budget_bytes, minimum=minimum, message=message)
