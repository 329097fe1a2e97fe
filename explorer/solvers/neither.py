"""Two ways to one budget of which neither found a schedule, as one answer."""

from __future__ import annotations

from dataclasses import replace

from explorer.solution import Minimum, Solution, Status
from explorer.units import format_bytes


def neither(one: Solution, other: Solution) -> Solution:
    """What is known of both together: infeasible is only what is so either way.

    Args:
        one: without a schedule.
        other: for the same budget, without a schedule.

    Returns:
        The one that does with the smaller budget, with the lower bound that holds for both.
    """
    suited = [x for x in (one, other) if x.status is not Status.UNSUITED]
    if len(suited) == 1:  # the method has only this way
        return suited[0]
    best, rest = sorted((one, other), key=_size)
    not_excluded = next((x for x in (best, rest) if x.status is not Status.INFEASIBLE), best)
    minimum = best.minimum
    if minimum is None:
        return not_excluded
    # Nothing is known of how little does where a way says nothing of it.
    least = min(minimum.lower_bound_bytes, 0 if rest.minimum is None else rest.minimum.lower_bound_bytes)
    found = replace(best, status=not_excluded.status, minimum=replace(minimum, lower_bound_bytes=least))
    if not_excluded is best and least == minimum.lower_bound_bytes:
        return found
    if found.status is Status.UNKNOWN:
        return replace(found, message=_unknown(found.budget_bytes, minimum, least))
    return found if not_excluded is best else replace(found, message=not_excluded.message)


def _size(solution: Solution) -> float:
    return float("inf") if solution.minimum is None else solution.minimum.budget_bytes


def _unknown(budget_bytes: int, minimum: Minimum, least_bytes: int) -> str:
    proven = f"proven is only that none fits below {format_bytes(least_bytes)}"
    return f"no schedule for {format_bytes(budget_bytes)} found; {minimum}; {proven}"
