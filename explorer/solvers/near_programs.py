"""Improve an answer by integer programs that recompute only near where it is needed (``monet.nearby``)."""

from __future__ import annotations

import time
from collections.abc import Callable

from explorer.solvers.options import Options
from explorer.solvers.planner import Planner

_DEPTHS = (2, 4, 8)
_STARTS = 8  # schedules whose recomputation stays possible, and that the program starts from
_PRECISION = 0.1  # of the gap asked for: the program leaves out something, it should not lose as much again


def solve_nearby(
    planner: Planner,
    budget_bytes: int,
    options: Options,
    *,
    time_limit: float,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Solve programs of greater and greater depth, each from what is known, until one is not solved in time.

    Args:
        planner: what is known already, at least one schedule that fits; learns every schedule found.
        budget_bytes: peak allowed.
        options: the gap.
        time_limit: seconds; a look at the clock may come some seconds late for large graphs.
        should_stop: polled; true ends it.
    """
    from explorer.solvers.monet import grouped  # here because cvxpy takes a second to import
    from explorer.solvers.monet.nearby import nearby
    from explorer.solvers.scip import minimise

    ends = time.monotonic() + time_limit
    model = grouped.build(planner.problem, budget_bytes, threshold=0.0)
    columns = 0
    for depth in _DEPTHS:
        fitting = [x.schedule for x in planner.frontier.points() if x.peak_bytes <= budget_bytes][-_STARTS:]
        near = nearby(model, fitting, depth=depth)
        size, columns = columns, near.milp.objective.size
        if columns == size or time.monotonic() > ends:
            return
        result = minimise(
            near.milp,
            time_limit=ends - time.monotonic(),
            gap=_PRECISION * options.gap,
            start=[x for x in map(near.encode, reversed(fitting)) if x is not None],
            on_incumbent=lambda x, _, near=near: planner.add_schedule(near.decode(x)),
            should_stop=should_stop,
        )
        if not result.proven:
            return
