"""A first schedule, whatever memory it takes: what recomputes nothing, or a simple one that honours pins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from explorer.schedule import Schedule, keep_all
from explorer.solvers.problem.problem import Problem
from explorer.solvers.problem.schedules import schedule_of

if TYPE_CHECKING:
    from explorer.solvers.search.arrays import PlanArrays

_ROOM = 40  # runs in an order, as a multiple of the operators


def plain_schedule(problem: Problem) -> Schedule:
    """What recomputes nothing, as plain PyTorch does; with pins, the first of a few simple plans that honour them.

    Raises:
        ValueError: none of them honours all pins, whatever memory it takes.
    """
    if not problem.pins:
        return keep_all(problem.graph)
    from explorer.solvers.search.arrays import plan_arrays
    from explorer.solvers.search.simple_plans import starting_plans
    from explorer.solvers.search.sketching import interpreted
    from explorer.solvers.search.trace import workspace

    arrays = plan_arrays(problem)
    work = workspace(arrays, length=_ROOM * (len(problem.forward) + len(problem.backward)))
    everything = np.zeros(arrays.gene_count, np.int16)
    everything[: arrays.gene_start[-1]] = 1
    for genes in (everything, *starting_plans(arrays)):
        # By the interpreter: compiling takes longer than all of this.
        _, runs = interpreted(arrays, genes, work, np.inf)
        if runs >= 0:
            order = order_of(arrays, work.trial.order[:runs].tolist())
            return schedule_of(problem, order, method="pinned", budget_bytes=None)
    names = ", ".join(f"{name}={choice}" for name, choice in problem.pins.pairs)
    raise ValueError(f"no schedule honours these pins together, as far as simple ones tell: {names}")


def order_of(arrays: PlanArrays, runs: list[int]) -> list[tuple[int, int]]:
    """(Operator, form) of every run of a decoded plan, whose runs are numbers of forms in the arrays."""
    sites = arrays.form_site[runs].astype(np.int64)
    # A recomputation has a site of its own, between first runs and backward operators, but no id.
    operators = np.where(sites < arrays.forward_count, sites, sites - arrays.forward_count)
    forms = np.array(runs, np.int64) - arrays.form_start[sites]
    return list(zip(operators.tolist(), forms.tolist(), strict=True))
