"""Work beside the kernel's main thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

OPENING, RUNNING, WRITING, PLAYING, COMPARING, SOLVING = KINDS = (
    "opening",
    "running",
    "writing",
    "playing",
    "comparing",
    "solving",
)
"""Kinds of work that are a status and can be cancelled, the most telling first."""
CHARTING = "charting"
"""The curve: seconds, beside anything else; neither a status nor to be cancelled."""


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

    @property
    def kinds(self) -> frozenset[str]:
        """All that are under way."""
        with self._changed:
            return frozenset(self._running)

    def wait_for(self, kind: str, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Wait until ``kind`` has ended, or ``unless`` says so, which is asked again at each ``wake``."""
        with self._changed:
            self._changed.wait_for(lambda: kind not in self._running or unless())

    def wake(self) -> None:
        """Let those who wait ask again what they wait for."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, timeout: float | None) -> bool:
        """Wait until nothing is under way; False if that took longer than ``timeout`` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running, timeout)


class StoppedError(Exception):
    """Someone stopped what runs in this thread."""


class Jobs:
    """Kinds of work, each in a thread of its own while it lasts.

    Args:
        activity: what is under way is noted here, beside what others note.
        on_change: called when one begins or has ended.
        on_stop: called with its kind when one was stopped.
        on_error: called with its kind and what it raised.

    Attributes:
        activity: as it was given.
        failure: what made the latest work fail; None where nothing did, or where it was told or left behind.
    """

    def __init__(
        self,
        activity: Activity,
        *,
        on_change: Callable[[], None],
        on_stop: Callable[[str], None],
        on_error: Callable[[str, Exception], None],
    ) -> None:
        """Nothing is under way."""
        self.activity = activity
        self.failure: Exception | None = None
        self._on_change, self._on_stop, self._on_error = on_change, on_stop, on_error
        self._stopped: set[str] = set()
        self._here = threading.local()  # the kind that runs in a thread

    def ask(self, kind: str, work: Callable[[], None], *, again: Callable[[], bool] = lambda: False) -> None:
        """``start`` what someone asked for. What failed before it is not what they wait for next."""
        self.failure = None
        self.start(kind, work, again=again)

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
        self.activity.wake()

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

    def wait_for(self, kind: str) -> None:
        """Go on when ``kind`` has ended, or end here: as ``look`` where this is stopped meanwhile."""
        self.activity.wait_for(kind, unless=lambda: self.stopped)
        self.look()

    def _do(self, kind: str, work: Callable[[], None], again: Callable[[], bool]) -> None:
        self._here.kind = kind
        while True:
            try:
                work()
            except StoppedError:
                self._on_stop(kind)
            except Exception as error:  # noqa: BLE001 - whatever a user's model raises
                self.failure = error
                self._on_error(kind, error)
            self._stopped.discard(kind)  # what is asked for from now on was not, also where this ended by itself
            if self.activity.end(kind, unless=again):
                break
        self._on_change()
