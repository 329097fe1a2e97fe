"""A lower bound on the step time of every schedule within a budget, grouping or no grouping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, pairwise, zip_longest

import numpy as np

from explorer.solvers.formulation import relaxation
from explorer.solvers.formulation.layout import Layout
from explorer.solvers.formulation.merge import MergedProblem, relax
from explorer.solvers.formulation.relaxation import Relaxation
from explorer.solvers.problem.problem import Problem
from explorer.solvers.programs import linear
from explorer.solvers.programs.milp import Milp, MilpResult, MilpStatus
from explorer.solvers.programs.scip import minimise

LINEAR_THRESHOLDS = (math.inf, 1.0)  # the first, one interval, nearly always says most, and is the quickest to solve
_SLACK = 1e-6
"""What an optimum may be off by, relative: the solvers keep rows to 1e-6 or better."""
_REGIONS = 16  # of the backward pass, in each of which one operator after the other is tried as an interval's end
_ALONE = 0.6  # share of the time for that; the rest is for taking them together
_WORTH = 2e-4  # by how much an end must raise the linear bound, as a share of it


def linear_bound(
    problem: Problem,
    budget_bytes: int,
    *,
    thresholds: Sequence[float] = LINEAR_THRESHOLDS,
    on_bound: Callable[[float], None] | None = None,
    on_values: Callable[[Relaxation, np.ndarray], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> float | None:
    """Bound by linear relaxations (``relaxation``): one interval, then shorter ones, in a fraction of a second.

    Args:
        problem: to bound.
        budget_bytes: of the whole step.
        thresholds: lengths of the intervals, as ``integer_bound`` has them.
        on_bound: called with the best bound after each.
        on_values: called with values of the program's columns after each, few of them whole.
        should_stop: asked before the second, which is larger and seldom says more.

    Returns:
        No schedule within the budget takes less than this many ms, −inf where HiGHS gives up; None where it is proven
        that none fits.
    """
    merged = relax(problem)
    best = -np.inf
    for threshold in thresholds:
        if best > -np.inf and should_stop is not None and should_stop():
            break
        stated = relaxation.build(merged, budget_bytes, threshold=threshold)
        result = linear.relax(stated.milp, exactly=True)
        found = _minimum(result)
        if found is None:
            return None
        best = max(best, found)
        if on_bound is not None:
            on_bound(best)
        if on_values is not None and result.x is not None:
            on_values(stated, result.x)
    return best


def integer_bound(
    problem: Problem,
    budget_bytes: int,
    *,
    threshold: float,
    time_limit: float,
    ends: Collection[int] = frozenset(),
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
        ends: where intervals end in any case, from ``critical_ends``.
        on_bound: called with each better bound as soon as it is known.
        on_values: called with values of the program's columns, each better than those before; without it, all the time
            goes to the bound.
        should_stop: polled; true ends it with the best bound so far.

    Returns:
        No schedule within the budget takes less than this many ms; None where it is proven that none fits.
    """

    def safe(found_ms: float) -> float:
        return found_ms * (1 - _SLACK)

    found = relaxation.build(relax(problem), budget_bytes, threshold=threshold, ends=ends)
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


def critical_ends(
    problem: Problem,
    budget_bytes: int,
    *,
    threshold: float,
    time_limit: float,
    should_stop: Callable[[], bool] | None = None,
) -> frozenset[int]:
    """Find backward operators at which intervals should end: all that is in memory then is charged there.

    Each is tried alone, and those that raise the linear bound are taken together as long as that raises it further.

    Args:
        problem: to bound.
        budget_bytes: of the whole step.
        threshold: as ``integer_bound`` has it.
        time_limit: seconds.
        should_stop: asked between two linear programs; true ends it with what was found.
    """
    merged, until = relax(problem), time.monotonic() + time_limit

    def minimum(ends: Collection[int]) -> float:
        found = relaxation.build(merged, budget_bytes, threshold=threshold, ends=ends)
        least = _linear_minimum(found.milp)
        return np.inf if least is None else least

    def over(share: float) -> bool:
        return until - time.monotonic() < (1 - share) * time_limit or (should_stop is not None and should_stop())

    best, alone = minimum(()), dict[int, float]()
    chosen: frozenset[int] = frozenset()
    for t in _crowded(merged, budget_bytes):
        if over(_ALONE):
            break
        alone[t] = minimum([t])
    for t in sorted(alone, key=lambda t: -alone[t]):
        if chosen and over(1.0):
            break
        found = minimum(chosen | {t}) if chosen else alone[t]
        if found > best * (1 + _WORTH):
            best, chosen = found, chosen | {t}
        elif not chosen:
            break
    return chosen


def _crowded(merged: MergedProblem, budget_bytes: int) -> Iterator[int]:
    """Backward operators at which a step without recomputation would not fit: of each region first what needs most."""
    layout = Layout.of(merged, (), budget_bytes, sweeps=False)

    def own_bytes(t: int) -> int:
        operator = merged.problem.backward[t]
        least = min(merged.bytes(form.reads) + min(way.bytes for way in form.ways) for form in merged.stages[t])
        return operator.idle_bytes + operator.made_bytes + least

    free = budget_bytes - merged.problem.fixed_bytes
    crowded = [
        t
        for t, offers in enumerate(merged.offers)
        if offers and layout.useful_bytes[t] + layout.constant_bytes[t] + own_bytes(t) > free
    ]
    cuts = [round(n * len(crowded) / _REGIONS) for n in range(_REGIONS + 1)]
    regions = [sorted(crowded[start:stop], key=own_bytes, reverse=True) for start, stop in pairwise(cuts)]
    return (t for t in chain.from_iterable(zip_longest(*regions)) if t is not None)


def _linear_minimum(milp: Milp) -> float | None:
    return _minimum(linear.relax(milp, exactly=True))


def _minimum(found: MilpResult) -> float | None:
    """The linear relaxation's optimum less a tolerance; −inf where HiGHS gives up, None where it has no solution."""
    if found.status is MilpStatus.INFEASIBLE:
        return None
    return -np.inf if found.objective is None else found.objective * (1 - _SLACK)
