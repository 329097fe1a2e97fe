"""A lower bound on the step time of every schedule within a budget, grouping or no grouping."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence

import cvxpy as cp
import numpy as np
from scipy import optimize

from explorer.solvers.milp import Milp
from explorer.solvers.monet import constraints
from explorer.solvers.monet.groups import Group
from explorer.solvers.monet.layout import Layout
from explorer.solvers.monet.merge import MergedProblem, relax
from explorer.solvers.monet.program import Rows, Term, compile_milp
from explorer.solvers.problem import CheckpointProblem
from explorer.solvers.scip import MilpStatus, minimise

LINEAR_THRESHOLDS = (1.0, 0.6, 0.4, 0.2)
INTEGER_THRESHOLD = 0.4
_SLACK = 1e-6
"""What an optimum may be off by, relative: the solvers keep rows to 1e-6 or better."""

Variables = dict[str, cp.Variable]


def lower_bound(
    problem: CheckpointProblem,
    budget_bytes: int,
    *,
    time_limit: float,
    should_stop: Callable[[], bool] | None = None,
) -> float | None:
    """No schedule of ``problem`` within the budget takes less than this many ms.

    It holds for every schedule that the simulator accepts and that recomputes after the forward pass only: at any place
    between backward operators, in any order, any number of times. Take such a schedule and cut its backward pass into
    intervals, each ending with a backward operator that needs an activation. Let, for interval g,

    - s_{g,i} be 1 if activation i is in memory when the interval begins,
    - r_{g,j} be 1 if operator j runs at least once in it: the schedule's time is at least Σ τ_j r_{g,j},
    - k_{g,i} be 1 if i is in memory throughout the interval.

    These keep every row below, each of which says no more than that what is in memory at one moment fits; so the
    least Σ τ_j r_{g,j} over all s, r, k that keep them, whole or fractional, bounds the schedule's time. What is
    present for part of an interval only is not charged, which weakens long intervals; in linear relaxations short ones
    are weaker still, for there a recomputation is split over many intervals. So linear relaxations for several
    lengths come first, in a fraction of a second, and the time left goes to whole numbers for one length.

    Args:
        problem: to bound.
        budget_bytes: of the whole step.
        time_limit: seconds; the linear relaxations are always solved.
        should_stop: polled while solving for whole numbers; true ends it with the best bound so far.

    Returns:
        The best bound found in time, at least the time of a step without recomputation; None where it is proven that
        no schedule fits the budget.
    """
    began = time.monotonic()
    merged = relax(problem)
    best = problem.base_time_ms
    for threshold in LINEAR_THRESHOLDS:
        found = _linear_minimum(_relaxation(merged, budget_bytes, threshold))
        if found is None:
            return None
        best = max(best, found)
    left = time_limit - (time.monotonic() - began)
    if left > 0:
        milp = _relaxation(merged, budget_bytes, INTEGER_THRESHOLD)
        result = minimise(milp, time_limit=left, gap=_SLACK, should_stop=should_stop)
        if result.status is MilpStatus.INFEASIBLE:
            return None
        best = max(best, (result.bound or 0.0) * (1 - _SLACK))
    return best


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


def _relaxation(merged: MergedProblem, budget_bytes: int, threshold: float) -> Milp:
    layout = Layout.of(merged, _intervals(merged, budget_bytes, threshold), budget_bytes, sweeps=False)
    variables = layout.variables()
    count = len(layout.kept)
    if count:
        variables["k"] = cp.Variable(count, name="k", bounds=[np.zeros(count), np.ones(count)])
        groups = len(layout.groups)
        variables["a"] = cp.Variable(groups, name="a", bounds=[np.zeros(groups), np.full(groups, np.inf)])
    families = (
        constraints.needed_activations,
        constraints.recomputation_inputs,
        constraints.keep_what_is_there,
        constraints.forward_memory,
        present_throughout,
        throughout_bytes,
        recomputation_fits,
        backward_fits,
    )
    rows = [row for family in families for row in family(layout, variables)]
    milp, _ = compile_milp(constraints.step_time_ms(layout, variables), rows, variables)
    return milp


def _intervals(merged: MergedProblem, budget_bytes: int, threshold: float) -> tuple[Group, ...]:
    """Intervals of the backward pass, each ending with an operator that needs an activation (see ``group_stages``)."""
    free = budget_bytes - merged.problem.fixed_bytes
    intervals: list[Group] = []
    for t, needs in enumerate(merged.needs):
        if not needs:
            continue
        limit = threshold * (free - merged.problem.backward[t].idle_bytes)
        together = intervals[-1].needs | needs if intervals else needs
        if intervals and threshold > 0 and merged.bytes(together) <= limit:
            intervals[-1] = Group(intervals[-1].start, t + 1, together)
        else:
            intervals.append(Group(intervals[-1].stop if intervals else 0, t + 1, needs))
    return tuple(intervals)


def present_throughout(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """k_{g,i} ≥ s_{g+1,i} − r_{g,j}, and k_{g,i} ≥ 1 − r_{g,j} where the interval's last operator needs i, made by j.

    What is there at the end and was not made in the interval has been there all the time.
    """
    rows = Rows(variables)
    for (g, x), position in layout.kept.items():
        made = layout.run(g, layout.merged.producer.get(x), 1.0)
        if x in layout.merged.needs[layout.groups[g].stop - 1]:
            rows.add([("k", position, 1.0), *made], 1.0)
        else:
            rows.add([("k", position, 1.0), *made, *layout.keep(g + 1, x, -1.0)], 0.0)
    return rows.at_least()


def throughout_bytes(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """a_g = Σ |x_i| k_{g,i}."""
    rows = Rows(variables)
    sums: list[list[Term]] = [[("a", g, -1.0)] for g in range(len(layout.groups))]
    for (g, x), position in layout.kept.items():
        sums[g].append(("k", position, layout.size(x)))
    for terms in sums:
        rows.add(terms, 0.0)
    return rows.equal()


def recomputation_fits(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """a_g − Σ|x_i| k_{g,i} + r_{g,j}(peak_j + Σ|x_i|) ≤ B − the least gradients of the interval, i read by j (eq. 3).

    Valid whenever j runs in the interval: its inputs are there, and so is all that stays throughout.
    """
    rows = Rows(variables)
    for g, node in layout.rerun:
        reads = layout.merged.nodes[node].reads
        peak = layout.merged.nodes[node].peak_bytes / layout.unit_bytes + sum(layout.size(x) for x in reads)
        idle = min(layout.merged.problem.backward[t].idle_bytes for t in layout.groups[g].stages)
        counted = [term for x in sorted(reads) for term in _throughout(layout, g, x, -layout.size(x))]
        room = layout.room(layout.merged.problem.held_bytes + idle)
        rows.add([("a", g, 1.0), *counted, *layout.run(g, node, peak)], room)
    return rows.at_most()


def backward_fits(layout: Layout, variables: Variables) -> list[cp.Constraint]:
    """Σ|x_i| over what operator t needs, and k_{g,i} of the rest, ≤ B − G_t − y_t − ĉ_t (eq. 2).

    What a later operator of the interval needs counts with 1 − r_{g,j}: there from the start unless made in it.
    """
    rows = Rows(variables)
    for g, group in enumerate(layout.groups):
        uses: dict[int, list[int]] = {}
        for t in group.stages:
            for x in layout.merged.needs[t]:
                uses.setdefault(x, []).append(t)
        for t in group.stages:
            terms: list[Term] = [("a", g, 1.0)]
            room = layout.room(layout.merged.problem.held_bytes + layout.merged.problem.backward[t].busy_bytes)
            for x in sorted(uses):
                if bisect_left(uses[x], t) == len(uses[x]):
                    continue
                terms += _throughout(layout, g, x, -layout.size(x))
                room -= layout.size(x)
                if t not in uses[x]:
                    terms += layout.run(g, layout.merged.producer.get(x), -layout.size(x))
            rows.add(terms, room)
    return rows.at_most()


def _throughout(layout: Layout, group: int, activation: int, coefficient: float) -> Sequence[Term]:
    position = layout.kept.get((group, activation))
    return [] if position is None else [("k", position, coefficient)]
