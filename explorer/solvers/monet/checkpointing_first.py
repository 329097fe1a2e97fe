"""Begin with checkpointing alone: its schedules are the joint problem's too, and its search has far fewer to try.

So what may choose more is no slower than what may choose less, even where time is short.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from itertools import islice

from explorer.solution import Finder
from explorer.solvers.monet.first_answer import stopping
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.options import Options

_SEARCHES = 1000


def learn_checkpointing(
    knowledge: Knowledge,
    budget_bytes: int,
    options: Options,
    *,
    time_limit: float = float("inf"),
    until: float = float("inf"),
    steps: int = _SEARCHES,
    should_stop: Callable[[], bool] | None = None,
) -> None:
    """Search for a schedule with PyTorch's own implementations alone, and tell the knowledge of the joint problem.

    Args:
        knowledge: learns the best schedule found; its plan search then starts from that too.
        budget_bytes: peak allowed.
        options: of the joint problem; without optimizations, or with pins, nothing is done.
        time_limit: seconds, after which no other search begins.
        until: by the monotonic clock, when the search that is under way ends too; nothing is begun where what comes
            before the first one would take till then.
        steps: at most this many searches.
        should_stop: polled between searches; true ends them.
    """
    if not options.strategy.checkpointing_first or not options.optimizations or options.pins:
        return
    if knowledge.excludes(budget_bytes):
        return
    began = time.monotonic()
    search = knowledge.checkpointing(exact=options.exact)
    if not search.seeded(timeout=min(until - time.monotonic(), threading.TIMEOUT_MAX)):
        return
    with stopping(until) as stop:
        for x in islice(options.strategy.searches(options.seed), steps):
            best = search.improve(budget_bytes, effort=x.effort, starts=x.starts, seed=x.seed, stop=stop)
            ideal = best is not None and best.time_ms <= search.problem.base_time_ms
            over = time.monotonic() - began > time_limit or (should_stop is not None and should_stop())
            if ideal or over or stop[0]:
                break
    best = search.best(budget_bytes)
    if best is not None:
        knowledge.add_schedule(best.schedule, Finder.CHECKPOINTING)
