"""A first answer, and searches that end, by a given moment: also where the kernel has to be compiled first."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.search.annealing import was_compiled

_LOG = logging.getLogger(__name__)
_LOADED_S = 1.0  # loading the compiled kernel takes a quarter of that, compiling it thirty times as long
_COMPILING = 0.05  # share of the time left that is waited for that
_SEEDED_S = 0.2  # for the plans that begin the archive, and
_SEEDING = 0.8  # more of the time left
_HOPELESS_S = 0.5  # as much too late already when the problem is stated, a search is worth what it takes:
_HOPELESS = 3.0  # so many times what it is too late is waited for, and one search made
_SKETCHING = 0.5  # share of the time left for a sketch that fits already
_SHRINK_S = 0.4  # more than a search for the smallest peak takes
_QUICK = 0.1  # effort of one where there is no such time


@contextmanager
def stopping(until: float) -> Iterator[np.ndarray]:
    """The ``stop`` of plan searches, set when the monotonic clock says ``until``."""
    stop = np.zeros(1, np.uint8)
    timer = threading.Timer(max(0.0, min(until - time.monotonic(), threading.TIMEOUT_MAX)), stop.fill, (1,))
    timer.daemon = True
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


def first_answer(knowledge: Knowledge, budget_bytes: int, *, until: float, stop: np.ndarray | None = None) -> None:
    """Find a schedule, or else the smallest budget: by plan search, or by a sketch without its kernel.

    Args:
        knowledge: what is known already; learns what is found.
        budget_bytes: peak allowed.
        until: by the monotonic clock, when there is no more time.
        stop: uint8, shape (1,): another thread may set it to end a search, which time does not end then.
    """
    search = knowledge.search

    def left_s() -> float:
        return until - time.monotonic()

    hopeless = left_s() < -_HOPELESS_S
    loading = was_compiled()
    loaded = search.loaded(timeout=_LOADED_S if loading else min(_LOADED_S, _COMPILING * left_s()))
    if not loaded and not loading:
        _LOG.warning(
            "the search is being compiled, once for an installation: until it is, simple plans answer "
            "('schedule-explorer compile' does it beforehand)"
        )
    with stopping(until) as timed:
        stop = timed if stop is None else stop
        waiting_s = -_HOPELESS * left_s() if hopeless else max(_SEEDED_S, _SEEDING * left_s())
        if not (loaded and search.begun(timeout=waiting_s)):
            if knowledge.frontier.best(budget_bytes) is None:
                search.sketch(budget_bytes, until=until - _SKETCHING * left_s())
            return
        if hopeless:
            search.improve(budget_bytes)
        elif not knowledge.excludes(budget_bytes):
            search.answer(budget_bytes, stop=stop)
        if knowledge.frontier.best(budget_bytes) is not None:
            return
        if left_s() > _SHRINK_S:
            knowledge.seek_minimum(timeout=0.0)
        else:
            search.shrink(effort=_QUICK, stop=stop)
