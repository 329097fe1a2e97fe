"""The latest of what comes faster than it can be used."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """Hands items to a function in one thread; an item that waits is replaced by a newer one.

    Args:
        use: called with one item at a time.
        interval_s: least time between two calls, except for urgent items.
        share: of the time, that calls may take; the interval grows where they take long, except for urgent items.
        busy: asked after an interval; says whether since it was last asked others had too much to do.
        patient_s: least time between two calls for as long as that is so, except for urgent items.
    """

    def __init__(
        self,
        use: Callable[[T], None],
        *,
        interval_s: float,
        share: float,
        busy: Callable[[], bool] = lambda: False,
        patient_s: float = 0.0,
    ) -> None:
        """Start the thread."""
        self._use = use
        self._interval_s = interval_s
        self._share = share
        self._busy = busy
        self._patient_s = patient_s
        self._changed = threading.Condition()
        self._waiting: list[T] = []
        self._urgent = False
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="schedule-explorer-draw", daemon=True)
        self._thread.start()

    def put(self, item: T, *, urgent: bool = False) -> None:
        """Replace what waits by ``item``; an urgent one does not wait for the interval."""
        with self._changed:
            self._waiting = [item]
            self._urgent = self._urgent or urgent
            self._changed.notify_all()

    def close(self) -> None:
        """Stop; what waits is dropped. Returns when nothing is in use any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _loop(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                item, self._urgent = self._waiting.pop(), False
            began = time.thread_time()
            self._use(item)
            rest_s = max(self._interval_s, (time.thread_time() - began) / self._share)
            self._busy()
            self._rest(rest_s)
            if self._busy():
                self._rest(self._patient_s - rest_s)

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._urgent or self._closed, timeout=max(0.0, seconds))


class Computing:
    """Says whether the main thread computed since it was last asked: a cell of a notebook, mostly.

    By the processor time that it took, so that a cell which only waits does not count. Where a thread's time cannot be
    read, as on macOS, the answer is no.
    """

    _SHARE = 0.5

    def __init__(self) -> None:
        """From now on."""
        main = threading.main_thread().ident
        known = hasattr(time, "pthread_getcpuclockid") and main is not None
        self._clock = time.pthread_getcpuclockid(main) if known and main is not None else None
        self._before = self._times()

    def __call__(self) -> bool:
        """Did it, for more than half of the time?"""
        (passed, took), self._before = self._before, self._times()
        passed, took = self._before[0] - passed, self._before[1] - took
        return took > self._SHARE * passed

    def _times(self) -> tuple[float, float]:
        return time.monotonic(), 0.0 if self._clock is None else time.clock_gettime(self._clock)
