"""A lower bound on the step time of every schedule within a budget, grouping or no grouping."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import optimize

from explorer.solvers.milp import Milp
from explorer.solvers.monet import relaxation
from explorer.solvers.monet.merge import relax
from explorer.solvers.monet.relaxation import Relaxation
from explorer.solvers.problem import Problem
from explorer.solvers.scip import MilpStatus, minimise

LINEAR_THRESHOLDS = (1.0, 0.4)
_SLACK = 1e-6
"""What an optimum may be off by, relative: the solvers keep rows to 1e-6 or better."""


def linear_bound(
    problem: Problem,
    budget_bytes: int,
    *,
    on_bound: Callable[[float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> float | None:
    """Bound by linear relaxations (``relaxation``) for two lengths of intervals, in a fraction of a second.

    Args:
        problem: to bound.
        budget_bytes: of the whole step.
        on_bound: called with the best bound after each.
        should_stop: asked before the second, which is larger.

    Returns:
        No schedule within the budget takes less than this many ms, −inf where HiGHS gives up; None where it is proven
        that none fits.
    """
    merged = relax(problem)
    best = -np.inf
    for threshold in LINEAR_THRESHOLDS:
        if best > -np.inf and should_stop is not None and should_stop():
            break
        found = _linear_minimum(relaxation.build(merged, budget_bytes, threshold=threshold).milp)
        if found is None:
            return None
        best = max(best, found - problem.slack_ms)
        if on_bound is not None:
            on_bound(best)
    return best


def integer_bound(
    problem: Problem,
    budget_bytes: int,
    *,
    threshold: float,
    time_limit: float,
    on_bound: Callable[[float], None] | None = None,
    on_values: Callable[[Relaxation, np.ndarray], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> float | None:
    """Bound by whole numbers, for one length of intervals: less fractional than ``linear_bound``, and slower.

    Args:
        problem: to bound.
        budget_bytes: of the whole step.
        threshold: what the backward operators of an interval read is at most this share of the room there.
        time_limit: seconds.
        on_bound: called with each better bound as soon as it is known.
        on_values: called with values of the program's columns, each better than those before; without it, all the time
            goes to the bound.
        should_stop: polled; true ends it with the best bound so far.

    Returns:
        No schedule within the budget takes less than this many ms; None where it is proven that none fits.
    """

    def safe(found_ms: float) -> float:
        return found_ms * (1 - _SLACK) - problem.slack_ms

    found = relaxation.build(relax(problem), budget_bytes, threshold=threshold)
    result = minimise(
        found.milp,
        time_limit=time_limit,
        gap=_SLACK,
        heuristics=on_values is not None,
        on_incumbent=lambda x, _: None if on_values is None else on_values(found, x),
        on_bound=lambda found: None if on_bound is None else on_bound(safe(found)),
        should_stop=should_stop,
    )
    return None if result.status is MilpStatus.INFEASIBLE else safe(result.bound or 0.0)


def _linear_minimum(milp: Milp) -> float | None:
    """The linear relaxation's optimum less a tolerance; −inf where HiGHS gives up, None where it has no solution."""
    equal = milp.row_lower == milp.row_upper
    result = optimize.linprog(
        milp.objective,
        A_ub=milp.matrix[~equal],
        b_ub=milp.row_upper[~equal],
        A_eq=milp.matrix[equal],
        b_eq=milp.row_upper[equal],
        bounds=np.column_stack((milp.lower, milp.upper)),
        method="highs",
    )
    if result.status == 2:
        return None
    return -np.inf if result.status != 0 else (result.fun + milp.objective_offset) * (1 - _SLACK)
