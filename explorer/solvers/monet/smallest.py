"""The smallest budget that a schedule fits: found by plan search, proven by exhaustion, linear bound or SCIP."""

from __future__ import annotations

import time
from itertools import cycle

import numpy as np

from explorer.schedule import Schedule
from explorer.solution import Finder
from explorer.solvers.monet.first_answer import first_answer, stopping
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.problem.exact_minimum import exact_minimum, smallest_peak
from explorer.solvers.strategy import ALL_STARTS, Start

_LEAST_S = 0.05
_BOUND_S = 0.5
_BOUND_LENGTH = 0.5  # of intervals, see ``integer_bound``
_SHARE = 0.3  # of the time, for plan search alone
_FIRST = ((Start.NEAR, 0.03), (Start.SCRATCH, 0.1))  # searches and their effort, nearly always enough for small graphs
_BUDGETS, _BUDGET_EFFORT = 8, 0.5  # then at budgets all the way down, whose plans are starts for the smallest
_QUICK, _LONG = 0.1, 1.0  # effort for the time of a step with the smallest peak, after a short search and a long one


def find_smallest(knowledge: Knowledge, *, until: float) -> None:
    """Search for a schedule with the smallest peak there is, and prove that it is; quickly where the graph is small.

    Args:
        knowledge: learns the schedules and what is excluded.
        until: by the monotonic clock, when there is no more time; less is used where it is proven earlier.
    """
    time_limit = until - time.monotonic()
    effort = _QUICK
    with stopping(until) as stop:
        exact = exact_minimum(knowledge.problem, until=until)
        if exact is not None:
            _prove(knowledge, exact, until)
        if not knowledge.search.seeded(timeout=until - time.monotonic()):
            if exact is None:
                first_answer(knowledge, knowledge.minimum().lower_bound_bytes, until=until)
            return
        if exact is None and not _found_at_once(knowledge, stop):
            effort = _LONG
            _search(knowledge, until - (1 - _SHARE) * time_limit, stop)
            _squeeze(knowledge, until)
        knowledge.search.improve(knowledge.minimum().budget_bytes, effort=effort, stop=stop)


def _prove(knowledge: Knowledge, smallest: Schedule, until: float) -> None:
    """Exclude what is smaller than the smallest schedule, in whichever way backward operators divide their work."""
    least_bytes: int | None = knowledge.add_schedule(smallest, Finder.EXHAUSTION).peak_bytes
    if knowledge.problem.every_way is not None:
        least_bytes = smallest_peak(knowledge.problem.every_way, until=until)
    if least_bytes is not None:
        knowledge.exclude(least_bytes - 1)


def _found_at_once(knowledge: Knowledge, stop: np.ndarray) -> bool:
    """Is what a short search finds as small as can be?"""
    for seed, (start, effort) in enumerate(_FIRST, start=1):
        knowledge.search.shrink(effort=effort, start=start, seed=seed, stop=stop)
        if knowledge.minimum().proven:
            return True
    return False


def _search(knowledge: Knowledge, deadline: float, stop: np.ndarray) -> None:
    for budget in knowledge.search.budgets(_BUDGETS):
        if not stop[0]:
            knowledge.search.improve(budget, effort=_BUDGET_EFFORT, stop=stop)
    knowledge.search.shrink(stop=stop)
    for seed, start in enumerate(cycle(ALL_STARTS), start=1):
        if time.monotonic() >= deadline or knowledge.minimum().proven:
            return
        knowledge.search.shrink(start=start, seed=seed, stop=stop)


def _squeeze(knowledge: Knowledge, deadline: float) -> None:
    """Halve what lies between the smallest peak and what is excluded, by linear bound and integer program."""
    from explorer.solvers.formulation import grouped
    from explorer.solvers.monet.bounding import bound_all  # here because cvxpy takes a second to import
    from explorer.solvers.programs.scip import minimise

    def left_s() -> float:
        return max(_LEAST_S, deadline - time.monotonic())

    minimum = knowledge.minimum()
    low = minimum.lower_bound_bytes - 1
    while (smallest := knowledge.minimum().budget_bytes) > low + 1 and time.monotonic() < deadline:
        low = max(low, knowledge.minimum().lower_bound_bytes - 1)
        budget = (low + smallest) // 2
        bound_all(knowledge, budget)
        if not knowledge.excludes(budget):
            bound_all(knowledge, budget, threshold=_BOUND_LENGTH, time_limit=min(_BOUND_S, left_s()))
        if not knowledge.excludes(budget):
            model = grouped.build(knowledge.problem, budget)
            result = minimise(model.milp, time_limit=left_s() / 3, gap=1e9)
            if result.x is not None:
                knowledge.add_schedule(model.decode(result.x), Finder.EXHAUSTION)
        if knowledge.minimum().budget_bytes > budget:
            low = budget
