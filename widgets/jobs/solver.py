"""The solver behind an explorer: its session, and what it said about the latest budget."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Lock

from explorer.device_profile import Profile
from explorer.solution import BoundScope, Finder, Solution, Status, message_of
from explorer.solvers import SessionInOrders, SolveEvent, SolveSession
from explorer.solvers.problem.frontier import point_of
from widgets import text
from widgets.choices.choice import Choice
from widgets.jobs.latest import Computing, Latest
from widgets.scene.scene import News

Session = SolveSession | SessionInOrders

PATIENCE_S = 5.0
"""For the first schedule of a budget, before anything else takes its share of the processor."""
_APART = 10**9  # the numbers of two sessions' requests
_DRAW_INTERVAL_S = 0.5  # a page without a GPU draws for half of that
_DRAW_SHARE = 0.1  # of the time: the rest is for the cells of the notebook
_PATIENT_S = 2.0  # between two drawings while such a cell computes: page and kernel may share its processor


class Solver:
    """A session; events of its latest request, as often as a person can follow.

    Args:
        on_event: called from a background thread. It never gets an event of a request that was superseded before the
            call; ``is_latest`` says whether one was since.
    """

    def __init__(self, on_event: Callable[[SolveEvent], None]) -> None:
        """No session yet."""
        self._on_event = on_event
        self._lock = Lock()
        self._session: Session | None = None
        self._request = self._passed = -1
        self._started = self._first = 0  # what is added to the numbers of requests: of the session made last, and asked
        self._asked_at = 0.0
        self._heard = Event()
        self._answers = False  # did this session's process say anything of a request so far?
        self._news: list[News] = []
        self._log: list[str] = []
        self._events: Latest[SolveEvent] = Latest(
            self._pass, interval_s=_DRAW_INTERVAL_S, share=_DRAW_SHARE, busy=Computing(), patient_s=_PATIENT_S
        )

    @property
    def open(self) -> bool:
        """Is there a session?"""
        return self._session is not None

    @property
    def news(self) -> tuple[News, ...]:
        """Of the latest request."""
        with self._lock:
            return tuple(self._news)

    @property
    def log(self) -> tuple[str, ...]:
        """Of the latest request."""
        with self._lock:
            return tuple(self._log)

    @property
    def scip_log(self) -> str:
        """What SCIP said since the latest request."""
        session = self._session
        return "" if session is None else session.scip_log

    def start(self, profile: Profile, choice: Choice) -> Session:
        """A session that ``use`` takes, or that the caller closes: its process starts while other things are done."""
        make = SessionInOrders if choice.order else SolveSession
        first = self._started = self._started + _APART
        return make(
            profile,
            # What an earlier session says late must not look like what this one says.
            on_event=lambda event: self._receive(replace(event, request=first + event.request)),
            optimizations=choice.optimizations,
            exact=choice.exact,
            time_limit=choice.time_limit,
            pins=choice.pins,
        )

    def use(self, session: Session) -> Session | None:
        """Ask this session, which was started last, from now on; the one before, for the caller to close."""
        with self._lock:
            before, self._session, self._first, self._request = self._session, session, self._started, -1
            self._answers = False
            self._news, self._log = [], []
        return before

    def reconfigure(self, choice: Choice) -> None:
        """Ask for something else from the next request on; the choice was checked."""
        with self._lock:
            assert self._session is not None, "opened"
            self._session.reconfigure(choice.options)

    def request(self, budget_bytes: int, *, known: Solution | None = None) -> None:
        """Solve for a budget; whatever was asked before is superseded. ``known``: a schedule found elsewhere."""
        with self._lock:
            assert self._session is not None, "opened"
            self._news, self._log = [], []
            self._asked_at = time.monotonic()
            self._heard.clear()
            self._request = self._first + self._session.request(budget_bytes, known=known)
            if known is not None and known.finder is Finder.RECALLED and not self._answers:
                self._tell_meanwhile(known, budget_bytes)

    def _tell_meanwhile(self, known: Solution, budget_bytes: int) -> None:
        """What an earlier solve found: the session's process has work to do for seconds before it can say so itself.

        What was proven then is of a smaller budget, and says nothing of this one.
        """
        told = point_of(known).in_answer(Solution(Status.UNKNOWN, budget_bytes), status=Status.FEASIBLE)
        event = SolveEvent(self._request, replace(told, message=message_of(told)), final=False)
        self._note(event)
        self._events.put(event, urgent=True)

    def wait_for_news(self, timeout: float) -> None:
        """Wait until the latest request has its first answer, or for ``timeout`` seconds."""
        self._heard.wait(timeout)

    def is_latest(self, event: SolveEvent) -> bool:
        """Was nothing asked since?"""
        return event.request == self._request

    def cancel(self) -> None:
        """End the latest request with what is known."""
        if self._session is not None:
            self._session.cancel()

    def close(self) -> None:
        """End the session, of which nothing is heard any more, and the thread."""
        with self._lock:
            session, self._session, self._request = self._session, None, -1
        if session is not None:
            session.close()
        self._events.close()

    def _receive(self, event: SolveEvent) -> None:
        """Called by the session, in its thread; drawing happens in another."""
        with self._lock:
            if event.request == self._request:
                self._answers = True
                self._note(event)
                self._heard.set()
        self._events.put(event, urgent=event.final or bool(event.restart) or event.request != self._passed)

    def _note(self, event: SolveEvent) -> None:
        solution = event.solution
        bound_ms, grouping_ms = (solution.bound_ms(x) for x in (BoundScope.PROBLEM, BoundScope.GROUPING))
        # By a clock of its own: what was remembered tells how long it took when it was found.
        elapsed_s = time.monotonic() - self._asked_at
        news = News(elapsed_s, solution.time_ms, bound_ms, grouping_ms, solution.finder)
        before = self._news[-1] if self._news else None
        line = text.log_line(news, before, solution if event.final else None, restart=event.restart)
        self._log += [line] if line else []
        self._news.append(news)

    def _pass(self, event: SolveEvent) -> None:
        if self.is_latest(event):
            self._passed = event.request  # first: what comes while it is drawn can wait
            self._on_event(event)
