"""One budget's solve: what its threads share, and when it is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.wording import Progress
from explorer.solvers.options import Options


class Solve:
    """Made anew for each budget that is asked for.

    Args:
        knowledge: what is known already; learns every schedule and bound found.
        budget_bytes: peak allowed.
        options: formulation, time limit, gap and strategy.
        should_stop: polled, also from other threads; true ends it.

    Attributes:
        progress: how far it has come.
        ended: set when its threads are to end.
        exhausted: set when integer programs and bounds have ended.
        stop: uint8, shape (1,), set with ``ended``: ends a plan search at once.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        budget_bytes: int,
        options: Options,
        *,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        """Its time begins."""
        self.knowledge, self.budget_bytes, self.options = knowledge, budget_bytes, options
        self._should_stop = should_stop
        self.progress = Progress(budget_bytes)
        self.ended, self.exhausted = threading.Event(), threading.Event()
        self.stop = np.zeros(1, np.uint8)

    def end(self) -> None:
        """Let all threads come to an end."""
        self.ended.set()
        self.stop[0] = 1

    @property
    def stopped(self) -> bool:
        """Does nobody want to know any more?"""
        return self._should_stop is not None and self._should_stop()

    @property
    def left_s(self) -> float:
        """Of the time limit."""
        return self.options.time_limit - (time.monotonic() - self.progress.began)

    @property
    def gap(self) -> float:
        """How far the best schedule may be from the fastest, as a share of its time."""
        return self.knowledge.gap(self.budget_bytes)

    @property
    def best_ms(self) -> float:
        """Time of the best schedule known; infinite without one."""
        best = self.knowledge.frontier.best(self.budget_bytes)
        return float("inf") if best is None else best.time_ms

    def over(self) -> bool:
        """Is there a reason to end: proven, excluded, out of time, stopped, or nothing left to solve?"""
        if self.ended.is_set() or self.stopped or self.left_s <= 0:
            return True
        return self.knowledge.decided(self.budget_bytes, gap=self.options.gap)
