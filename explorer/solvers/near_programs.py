"""Improve an answer by integer programs that recompute only near where it is needed (``monet.nearby``)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from explorer.solvers.options import Options
from explorer.solvers.planner import Planner

if TYPE_CHECKING:
    from explorer.solvers.monet.nearby import NearbyModel
    from explorer.solvers.scip import MilpResult

_DEPTHS = (2, 4, 8)
_STARTS = 8  # schedules whose recomputation stays possible, and that the program starts from
_PRECISION = 0.1  # of the gap asked for: the program leaves out something, it should not lose as much again


def solve_nearby(planner: Planner, budget_bytes: int, options: Options, *, time_limit: float) -> None:
    """Solve programs of greater and greater depth, each from what is known, until one is not solved in time.

    Args:
        planner: what is known already; learns every schedule found. Nothing is done where its answer is proven.
        budget_bytes: peak allowed.
        options: the gap.
        time_limit: seconds; stating a program, which takes seconds for large graphs, is not interrupted.
    """
    from explorer.solvers.monet import grouped  # here because cvxpy takes a second to import
    from explorer.solvers.monet.nearby import nearby

    ends = time.monotonic() + time_limit
    if _settled(planner, budget_bytes, options.gap):
        return
    model = grouped.build(planner.problem, budget_bytes, threshold=0.0)
    columns = 0
    for depth in _DEPTHS:
        known = [x.schedule for x in planner.frontier.points() if x.peak_bytes <= budget_bytes][: -_STARTS - 1 : -1]
        near = nearby(model, known, depth=depth)
        size, columns = columns, near.milp.objective.size
        left_s = ends - time.monotonic()
        if columns == size or left_s <= 0 or _settled(planner, budget_bytes, options.gap):
            return
        starts = [x for x in map(near.encode, known) if x is not None]
        if not _solve(planner, near, starts, time_limit=left_s, gap=_PRECISION * options.gap).proven:
            return


def _solve(
    planner: Planner, near: NearbyModel, starts: list[np.ndarray], *, time_limit: float, gap: float
) -> MilpResult:
    from explorer.solvers.scip import minimise

    def learn(x: np.ndarray, _: float) -> None:
        planner.add_schedule(near.decode(x))

    return minimise(near.milp, time_limit=time_limit, gap=gap, start=starts, on_incumbent=learn)


def _settled(planner: Planner, budget_bytes: int, gap: float) -> bool:
    """Is the answer proven, or that there is none?"""
    return planner.excludes(budget_bytes) or planner.near_enough(budget_bytes, gap=gap)
