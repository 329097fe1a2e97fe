"""Checkpointing alone: its schedules are the joint problem's too, and its search has far fewer to try.

So what may choose more is no slower than what may choose less, even where time is short.
"""

from __future__ import annotations

from itertools import islice

import numpy as np

from explorer.solution import Finder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.options import Options


def learn_checkpointing(
    knowledge: Knowledge, budget_bytes: int, options: Options, *, searches: int, stop: np.ndarray | None = None
) -> None:
    """Search for a schedule with PyTorch's own implementations alone, and let the joint problem's solve know it.

    Args:
        knowledge: learns the best schedule found; its plan search then starts from that too.
        budget_bytes: peak allowed.
        options: of the joint problem; without optimizations, or with pins, nothing is done.
        searches: how many.
        stop: uint8, shape (1,): another thread may set it to end this.
    """
    wanted = options.strategy.checkpointing and options.optimizations and not options.pins
    if not wanted or knowledge.excludes(budget_bytes):
        return
    search = knowledge.checkpointing(exact=options.exact)
    for x in islice(options.strategy.searches(options.seed), searches):
        best = search.improve(budget_bytes, effort=x.effort, starts=x.starts, seed=x.seed, stop=stop)
        if (stop is not None and stop[0]) or (best is not None and best.time_ms <= search.problem.base_time_ms):
            break
    best = search.best(budget_bytes)
    if best is not None:
        knowledge.add_schedule(best.schedule, Finder.CHECKPOINTING)
