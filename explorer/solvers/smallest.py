"""The smallest budget that a schedule fits: found by plan search, proven by exhaustion, linear bound or SCIP."""

from __future__ import annotations

import time
from itertools import cycle

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.deadlines import first_answer, stopping
from explorer.solvers.exact_minimum import exact_minimum, smallest_peak
from explorer.solvers.planner import Planner
from explorer.solvers.strategy import ALL_STARTS, Start

_LEAST_S = 0.05
_BOUND_S = 0.5
_BOUND_LENGTH = 0.5  # of intervals, see ``integer_bound``
_SHARE = 0.3  # of the time, for plan search alone
_FIRST = ((Start.NEAR, 0.03), (Start.SCRATCH, 0.1))  # searches and their effort, nearly always enough for small graphs
_QUICK, _LONG = 0.1, 1.0  # effort for the time of a step with the smallest peak, after a short search and a long one


def find_smallest(planner: Planner, *, until: float) -> None:
    """Search for a schedule with the smallest peak there is, and prove that it is; quickly where the graph is small.

    Args:
        planner: learns the schedules and what is excluded.
        until: by the monotonic clock, when there is no more time; less is used where it is proven earlier.
    """
    time_limit = until - time.monotonic()
    effort = _QUICK
    with stopping(until) as stop:
        exact = exact_minimum(planner.problem, until=until)
        if exact is not None:
            _prove(planner, exact, until)
        if not planner.search.seeded(timeout=until - time.monotonic()):
            if exact is None:
                first_answer(planner, planner.minimum().lower_bound_bytes, until=until)
            return
        if exact is None and not _found_at_once(planner, stop):
            effort = _LONG
            _search(planner, until - (1 - _SHARE) * time_limit, stop)
            _squeeze(planner, until)
        planner.search.improve(planner.minimum().budget_bytes, effort=effort, stop=stop)


def _prove(planner: Planner, smallest: Schedule, until: float) -> None:
    """Exclude what is smaller than the smallest schedule, in whichever way backward operators divide their work."""
    least_bytes: int | None = planner.add_schedule(smallest).peak_bytes
    if planner.problem.every_way is not None:
        least_bytes = smallest_peak(planner.problem.every_way, until=until)
    if least_bytes is not None:
        planner.exclude(least_bytes - 1)


def _found_at_once(planner: Planner, stop: np.ndarray) -> bool:
    """Is what a short search finds as small as can be?"""
    for seed, (start, effort) in enumerate(_FIRST, start=1):
        planner.search.shrink(effort=effort, start=start, seed=seed, stop=stop)
        if planner.minimum().proven:
            return True
    return False


def _search(planner: Planner, deadline: float, stop: np.ndarray) -> None:
    planner.search.fill(8, effort=0.5, stop=stop)
    for seed, start in enumerate(cycle(ALL_STARTS), start=1):
        if time.monotonic() >= deadline or planner.minimum().proven:
            return
        planner.search.shrink(start=start, seed=seed, stop=stop)


def _squeeze(planner: Planner, deadline: float) -> None:
    """Halve what lies between the smallest peak and what is excluded, by linear bound and integer program."""
    from explorer.solvers.monet import grouped
    from explorer.solvers.scip import minimise

    def left_s() -> float:
        return max(_LEAST_S, deadline - time.monotonic())

    minimum = planner.minimum()
    low = minimum.lower_bound_bytes - 1
    while (smallest := planner.minimum().budget_bytes) > low + 1 and time.monotonic() < deadline:
        low = max(low, planner.minimum().lower_bound_bytes - 1)
        budget = (low + smallest) // 2
        planner.bound(budget)
        if not planner.excludes(budget):
            planner.bound(budget, threshold=_BOUND_LENGTH, time_limit=min(_BOUND_S, left_s()))
        if not planner.excludes(budget):
            model = grouped.build(planner.problem, budget)
            result = minimise(model.milp, time_limit=left_s() / 3, gap=1e9, start=None)
            if result.x is not None:
                planner.add_schedule(model.decode(result.x))
        if planner.minimum().budget_bytes > budget:
            low = budget
