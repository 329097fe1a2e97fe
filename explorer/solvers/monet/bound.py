"""A lower bound on the step time of every schedule within a budget, grouping or no grouping."""

from __future__ import annotations

import time
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
INTEGER_TURNS = ((0.5, 0.7), (0.3, 1.0))
"""Thresholds for whole numbers, each with its share of the time left."""
_SLACK = 1e-6
"""What an optimum may be off by, relative: the solvers keep rows to 1e-6 or better."""


def lower_bound(
    problem: Problem,
    budget_bytes: int,
    *,
    time_limit: float,
    on_bound: Callable[[float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> float | None:
    """No schedule of ``problem`` within the budget takes less than this many ms.

    It holds for every schedule that the simulator accepts, that has the first runs of all but optional operators in the
    captured order, and that recomputes after the forward pass only: at any place between backward operators, in any
    order, any number of times, in any form and by any option; optional operators run anywhere. Take such a schedule and
    cut its backward pass into intervals, each ending with a backward operator a form of which reads an activation. Let,
    for interval g,

    - s_{g,i} be 1 if activation i is in memory when the interval begins,
    - r_{g,j} be 1 if node j (an operator in one of its forms) runs at least once in it,
    - k_{g,i} be 1 if i is in memory throughout the interval,
    - δ_{t,f} be 1 if backward operator t runs in form f,

    and let every first run, every backward operator, and the first run of j in each interval choose the variable of the
    option that it takes. The time of the schedule is at least that of the first runs and backward operators so chosen,
    Σ τ_j r_{g,j}, and τ_i s_{0,m} for what optional operators made in the forward pass: that cannot be there otherwise.
    An option that is left out as no choice lends its smaller workspace to a quicker one; overwriting is counted as a
    smaller workspace and asks for nothing, but in the forward pass: what is in memory after it, and is made nowhere
    else, was not overwritten. These values keep every row below, each of which says no more than that what is in memory
    at one moment fits; so the least time over all values that keep them, whole or fractional, bounds the schedule's.
    What is present for part of an interval only is not charged, which weakens long intervals; in linear relaxations
    short ones are weaker still, for there a recomputation is split over many intervals. So linear relaxations for
    two lengths come first, in a fraction of a second, and the time left goes to whole numbers for the same.

    Args:
        problem: to bound.
        budget_bytes: of the whole step.
        time_limit: seconds; the linear relaxations are always solved.
        on_bound: called with each better bound as soon as it is known.
        should_stop: polled while solving for whole numbers; true ends it with the best bound so far.

    Returns:
        The best bound found in time, at least the time of a step without recomputation, less ``problem.slack_ms``; None
        where it is proven that no schedule fits the budget.
    """
    began = time.monotonic()
    best = -np.inf

    def take(found: float) -> None:
        nonlocal best
        if found > best:
            best = found
            if on_bound is not None:
                on_bound(best)

    take(problem.base_time_ms - problem.slack_ms)
    if linear_bound(problem, budget_bytes, on_bound=take) is None:
        return None
    for threshold, share in INTEGER_TURNS:
        left = share * (time_limit - (time.monotonic() - began))
        if left <= 0 or (should_stop is not None and should_stop()):
            break
        found = integer_bound(
            problem, budget_bytes, threshold=threshold, time_limit=left, on_bound=take, should_stop=should_stop
        )
        if found is None:
            return None
        take(found)
    return best


def linear_bound(
    problem: Problem, budget_bytes: int, *, on_bound: Callable[[float], None] | None = None
) -> float | None:
    """The part of ``lower_bound`` that linear relaxations yield, in a fraction of a second; −inf where they fail."""
    merged = relax(problem)
    best = -np.inf
    for threshold in LINEAR_THRESHOLDS:
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
    """The part of ``lower_bound`` that whole numbers yield, for one length of intervals.

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
        As ``lower_bound``.
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
