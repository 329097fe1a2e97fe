"""Improve an answer by integer programs that recompute only near where it is needed (``formulation.nearby``)."""

from __future__ import annotations

import time

from explorer.solution import Finder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.options import Options
from explorer.solvers.programs.scip import minimise

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
    if knowledge.decided(budget_bytes, gap=options.gap):
        return
    model = grouped.build(knowledge.problem, budget_bytes, threshold=0.0)
    columns = 0
    for depth in _DEPTHS:
        known = [x.schedule for x in knowledge.frontier.points() if x.peak_bytes <= budget_bytes][: -_STARTS - 1 : -1]
        near = nearby(model, known, depth=depth)
        size, columns = columns, near.milp.objective.size
        left_s = ends - time.monotonic()
        if columns == size or left_s <= 0 or knowledge.decided(budget_bytes, gap=options.gap):
            return
        result = minimise(
            near.milp,
            time_limit=left_s,
            gap=_PRECISION * options.gap,
            starts=[x for x in map(near.encode, known) if x is not None],
            on_incumbent=lambda x, _, near=near: knowledge.add_schedule(near.decode(x), Finder.PROGRAM),
        )
        if not result.proven:
            return
