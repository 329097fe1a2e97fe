"""Improve an answer by integer programs that recompute only near where it is needed (``monet.nearby``)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from explorer.solution import Finder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.options import Options

if TYPE_CHECKING:
    from explorer.solvers.formulation.nearby import NearbyModel
    from explorer.solvers.programs.milp import MilpResult

_DEPTHS = (2, 4, 8)
_STARTS = 8  # schedules whose recomputation stays possible, and that the program starts from
_PRECISION = 0.1  # of the gap asked for: the program leaves out something, it should not lose as much again


def solve_nearby(knowledge: Knowledge, budget_bytes: int, options: Options, *, time_limit: float) -> None:
    """Solve programs of greater and greater depth, each from what is known, until one is not solved in time.

    Args:
        knowledge: what is known already; learns every schedule found. Nothing is done where its answer is proven.
        budget_bytes: peak allowed.
        options: the gap.
        time_limit: seconds; stating a program, which takes seconds for large graphs, is not interrupted.
    """
    from explorer.solvers.formulation import grouped  # here because cvxpy takes a second to import
    from explorer.solvers.formulation.nearby import nearby

    ends = time.monotonic() + time_limit
    if _settled(knowledge, budget_bytes, options.gap):
        return
    model = grouped.build(knowledge.problem, budget_bytes, threshold=0.0)
    columns = 0
    for depth in _DEPTHS:
        known = [x.schedule for x in knowledge.frontier.points() if x.peak_bytes <= budget_bytes][: -_STARTS - 1 : -1]
        near = nearby(model, known, depth=depth)
        size, columns = columns, near.milp.objective.size
        left_s = ends - time.monotonic()
        if columns == size or left_s <= 0 or _settled(knowledge, budget_bytes, options.gap):
            return
        starts = [x for x in map(near.encode, known) if x is not None]
        if not _solve(knowledge, near, starts, time_limit=left_s, gap=_PRECISION * options.gap).proven:
            return


def _solve(
    knowledge: Knowledge, near: NearbyModel, starts: list[np.ndarray], *, time_limit: float, gap: float
) -> MilpResult:
    from explorer.solvers.programs.scip import minimise

    def learn(x: np.ndarray, _: float) -> None:
        knowledge.add_schedule(near.decode(x), Finder.PROGRAM)

    return minimise(near.milp, time_limit=time_limit, gap=gap, starts=starts, on_incumbent=learn)


def _settled(knowledge: Knowledge, budget_bytes: int, gap: float) -> bool:
    """Is the answer proven, or that there is none?"""
    return knowledge.excludes(budget_bytes) or knowledge.near_enough(budget_bytes, gap=gap)
