"""A first schedule, whatever memory it takes: what recomputes nothing, or a simple one that honours pins."""

from __future__ import annotations

import numpy as np

from explorer.schedule import Schedule, keep_all
from explorer.solvers.problem.problem import Problem
from explorer.solvers.problem.schedules import schedule_of
from explorer.solvers.search.arrays import PlanArrays, plan_arrays
from explorer.solvers.search.kernel import decode, judge
from explorer.solvers.search.simple_plans import starting_plans
from explorer.solvers.search.trace import UNKNOWN, PlanMemory, workspace

_ROOM = 40  # runs in an order, as a multiple of the operators


def plain_schedule(problem: Problem) -> Schedule:
    """What recomputes nothing, as plain PyTorch does; with pins, the first of a few simple plans that honour them.

    Raises:
        ValueError: none of them honours all pins, whatever memory it takes.
    """
    if not problem.pins:
        return keep_all(problem.graph)
    arrays = plan_arrays(problem)
    work = workspace(arrays, length=_ROOM * (len(problem.forward) + len(problem.backward)))
    everything = np.zeros(arrays.gene_count, np.int16)
    everything[: arrays.gene_start[-1]] = 1
    for genes in (everything, *starting_plans(arrays)):
        order = _order(arrays, genes, work)
        if order is not None:
            return schedule_of(problem, order, method="pinned", budget_bytes=None)
    names = ", ".join(f"{name}={choice}" for name, choice in problem.pins.pairs)
    raise ValueError(f"no schedule honours these pins together, as far as simple ones tell: {names}")


def _order(arrays: PlanArrays, genes: np.ndarray, work: PlanMemory) -> list[tuple[int, int]] | None:
    """(operator, form) of every run; None where the plan cannot run."""
    # By the interpreter: compiling takes longer than all of this.
    count, quickest_ms = decode.py_func(arrays, genes, work, UNKNOWN, np.inf)
    if count < 0 or not np.isfinite(judge.py_func(arrays, work, quickest_ms, np.inf, 0.0, np.inf)[1]):
        return None
    order = []
    for form in work.trial.order[:count].tolist():
        site = int(arrays.form_site[form])
        operator = site if site < arrays.forward_count else site - arrays.forward_count
        order.append((operator, form - int(arrays.form_start[site])))
    return order
