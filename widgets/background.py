"""Work beside the kernel's main thread."""

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


class Activity:
    """Which kinds of work are under way; someone can wait until none is."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._changed = threading.Condition()
        self._running: set[str] = set()

    def begin(self, kind: str) -> bool:
        """Note that ``kind`` is under way; False if it was already."""
        with self._changed:
            fresh = kind not in self._running
            self._running.add(kind)
            return fresh

    def end(self, kind: str, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """Note that ``kind`` has ended; False, and nothing is noted, if ``unless`` says that there is more to do.

        Whoever brings more to do and then calls ``begin`` is heard: by ``unless``, or by beginning anew.
        """
        with self._changed:
            if unless():
                return False
            self._running.discard(kind)
            self._changed.notify_all()
            return True

    def __contains__(self, kind: str) -> bool:
        """Is it under way?"""
        with self._changed:
            return kind in self._running

    def __bool__(self) -> bool:
        """Is anything under way?"""
        with self._changed:
            return bool(self._running)

    @property
    def kinds(self) -> frozenset[str]:
        """All that are under way."""
        with self._changed:
            return frozenset(self._running)

    def wait_for(self, kind: str) -> None:
        """Wait until ``kind`` has ended."""
        with self._changed:
            self._changed.wait_for(lambda: kind not in self._running)

    def wait(self, timeout: float | None) -> bool:
        """Wait until nothing is under way; False if that took longer than ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)


class StoppedError(Exception):
    """Someone stopped what runs in this thread."""


class Jobs:
    """Kinds of work, each in a thread of its own while it lasts.

    Args:
        on_change: called when one begins or has ended.
        on_stop: called with its kind when one was stopped.
        on_error: called with its kind and what it raised.
    """

    def __init__(
        self,
        *,
        on_change: Callable[[], None],
        on_stop: Callable[[str], None],
        on_error: Callable[[str, Exception], None],
    ) -> None:
        """Nothing is under way."""
        self.activity = Activity()
        self._on_change, self._on_stop, self._on_error = on_change, on_stop, on_error
        self._stopped: set[str] = set()
        self._here = threading.local()  # the kind that runs in a thread

    def start(self, kind: str, work: Callable[[], None], *, again: Callable[[], bool] = lambda: False) -> None:
        """Do ``work`` unless its kind is under way, and once more each time ``again`` says so at its end."""
        if self.activity.begin(kind):
            self._stopped.discard(kind)
            self._on_change()
            name = f"schedule-explorer-{kind}"
            threading.Thread(target=self._do, args=(kind, work, again), name=name, daemon=True).start()

    def stop(self) -> None:
        """Let each that is under way end where it next looks."""
        self._stopped |= self.activity.kinds

    @property
    def inside(self) -> bool:
        """Does this thread do such work?"""
        return hasattr(self._here, "kind")

    @property
    def stopped(self) -> bool:
        """Was what runs in this thread stopped?"""
        return self._here.kind in self._stopped

    def look(self) -> None:
        """Go on, or end here: raises StoppedError if what runs in this thread was stopped."""
        if self.stopped:
            raise StoppedError

    def _do(self, kind: str, work: Callable[[], None], again: Callable[[], bool]) -> None:
        self._here.kind = kind
        while True:
            try:
                work()
            except StoppedError:
                self._stopped.discard(kind)  # what is asked for from now on was not
                self._on_stop(kind)
            except Exception as error:  # noqa: BLE001 - whatever a user's model raises
                self._on_error(kind, error)
            if self.activity.end(kind, unless=again):
                break
        self._on_change()
