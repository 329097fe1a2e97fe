"""Solving beside a notebook: a worker process that answers the latest request, and may die."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from explorer.arguments import a_flag
from explorer.budgets import a_budget
from explorer.device_profile import Profile
from explorer.harmless import one_line
from explorer.kinds import a_profile
from explorer.solution import BoundScope, Solution, Status
from explorer.solvers.options import Optimizations, Options, parse_optimizations
from explorer.solvers.problem.frontier import Frontier, Point, judged, point_of
from explorer.solvers.problem.pins import PinsLike, parse_pins
from explorer.solvers.search.plain_schedule import plain_schedule
from explorer.solvers.service.messages import Ask, Cancel, Setup, SolveEvent
from explorer.solvers.service.worker_process import WorkerProcess
from explorer.units import shown

_LOG = logging.getLogger(__name__)


class SolveSession:
    """Solves for one budget after the other in a process of its own; the latest request wins.

    Args:
        profile: what to solve.
        on_event: called from a background thread with the instant answer, each better schedule, better bounds (a few a
            second at most), and one final event for every request that no later one superseded. If the worker dies,
            another is started and goes on from the best schedules and bounds so far, with ``time_limit`` for itself,
            and an event says why (``restart``). If that dies of the same request, or the request was cancelled, its
            final event has ``Status.FAILED``. A worker that dies between two requests is reported by a warning of this
            module's logger.
        formulation: as of ``solve``.
        time_limit: seconds for each request.
        gap: as of ``solve``.
        optimizations: as of ``solve``.
        exact: as of ``solve``.
        pins: as of ``solve``.
        remember: as of ``solve``.

    Raises:
        ValueError: an argument is not allowed, or pins contradict each other.

    A larger budget never gets a worse schedule than a smaller one got before. Use it as a context manager, or call
    ``close``.
    """

    def __init__(
        self,
        profile: Profile,
        *,
        on_event: Callable[[SolveEvent], None],
        formulation: str = "grouped",
        time_limit: float = 10.0,
        gap: float = 0.01,
        optimizations: Optimizations = "all",
        exact: bool = False,
        pins: PinsLike | None = None,
        remember: bool = True,
    ) -> None:
        """Starts the worker, so that it is ready for the first request."""
        a_profile(profile)
        if not callable(on_event):
            raise ValueError(f"on_event is {shown(on_event)}; it must be a function of one event")
        a_flag(remember, "remember")
        chosen = parse_optimizations(optimizations)
        options = Options(
            "monet", formulation, time_limit, gap, optimizations=chosen, exact=exact, pins=parse_pins(pins)
        )
        if options.pins:
            plain_schedule(options.problem(profile))  # so that pins that cannot be honoured are refused here
        self._setup = Setup(profile, options, (), remember)
        self._outdated = 0  # requests up to this one were for other options
        self._on_event = on_event
        self._frontier = Frontier()
        self._lock = threading.Lock()
        self._request = 0
        self._latest: Solution | None = None
        self._answered = True
        self._restarts = False  # if the worker dies of the present request
        self._closed = False
        self._worker: WorkerProcess | None = None
        atexit.register(self.close)
        with self._lock:
            self._worker_now()

    def request(self, budget_bytes: int | str, *, known: Solution | None = None) -> int:
        """Solve for a budget in place of whatever is being solved; returns the request's number at once.

        Args:
            budget_bytes: peak allowed, also as ``solve`` takes it.
            known: found elsewhere with the same options, such as a point of ``trade_off``: no answer to a budget that
                it fits is slower from now on.

        Raises:
            ValueError: what is no budget, a schedule that is not of this profile, or a closed session.
        """
        budget_bytes = a_budget(budget_bytes, self._setup.profile)
        with self._lock:
            if self._closed:
                raise ValueError("this session is closed")
            news = () if known is None else self._learn(known)
            self._request += 1
            self._answered, self._restarts = False, True
            self._latest = Solution(Status.UNKNOWN, budget_bytes)
            worker = self._worker_now()
            worker.forget_log()
            worker.send(Ask(self._request, budget_bytes, news))
            return self._request

    def reconfigure(self, options: Options) -> None:
        """Solve with other options from the next request on, in the same process; what was asked before is superseded.

        Args:
            options: with pins that can be honoured (``Options.problem``): that is not checked again, since whoever
                waits for an answer waits for that too. Pins that cannot be are a death of the worker.

        What was found before is forgotten: another problem's schedules need not be this one's.
        """
        with self._lock:
            if self._closed:
                raise ValueError("this session is closed")
            self._setup = replace(self._setup, options=options)
            self._frontier, self._outdated = Frontier(), self._request
            self._answered, self._latest = True, None
            if self._worker is not None:
                self._worker.send(self._setup)

    def cancel(self) -> None:
        """End the current request, if any, with a final event that has the best schedule so far."""
        with self._lock:
            self._restarts = False
            if not self._answered and self._worker is not None:
                self._worker.send(Cancel(self._request))

    def close(self) -> None:
        """End the worker and its threads; no event comes afterwards. Closing twice is fine."""
        with self._lock:
            self._closed, worker, self._worker = True, self._worker, None
        atexit.unregister(self.close)
        if worker is not None:
            worker.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def scip_log(self) -> str:
        """What SCIP said since the latest request, where that is long its end; empty where it was not asked."""
        with self._lock:
            return "" if self._worker is None else self._worker.read_log()

    @property
    def worker_id(self) -> int | None:
        """Process id of the worker, None where there is none."""
        with self._lock:
            return None if self._worker is None else self._worker.process.pid

    def _learn(self, found: Solution) -> tuple[Point, ...]:
        """What was found elsewhere, where it is of use."""
        if found.schedule is None or found.time_ms is None or found.peak_bytes is None:
            return ()
        best = self._frontier.best(found.peak_bytes)
        if best is not None and best.time_ms <= found.time_ms:
            return ()
        point = judged(self._setup.profile, found.schedule)
        return (point,) if self._frontier.add(point) else ()

    def _worker_now(self, *, held: bool = False) -> WorkerProcess:
        if self._worker is None:
            setup = replace(self._setup, known=self._frontier.points())
            self._worker = WorkerProcess(setup, self._take, self._failed, held=held)
        return self._worker

    def _take(self, event: SolveEvent) -> None:
        """Pass an event of the worker on, unless its request was superseded."""
        solution = event.solution
        with self._lock:
            if solution.schedule is not None and event.request > self._outdated:
                self._frontier.add(point_of(solution))
            if self._closed or event.request != self._request or self._answered:
                return
            self._answered = event.final
            self._latest = solution
        self._tell(event)

    def _failed(self, worker: WorkerProcess, reason: str) -> None:
        """The worker died: another goes on with its request, unless it is the second to die of that."""
        with self._lock:
            if self._worker is worker:
                self._worker = None
            worker.log.close()
            if self._closed:
                return
            if self._answered or self._latest is None:
                _LOG.warning(
                    "the solver died while it was not solving (%s); the next request starts it again", one_line(reason)
                )
                return
            event = self._again(self._latest, reason) or self._given_up(self._latest, reason)
            self._answered, another = event.final, self._worker
        self._tell(event)
        if another is not None:
            another.hear()

    def _again(self, latest: Solution, reason: str) -> SolveEvent | None:
        """Ask another worker for the present request, which was not answered yet; None if that cannot be done."""
        if not self._restarts:
            return None
        self._restarts = False
        try:
            another = self._worker_now(held=True)  # until it was told why there is another
        except Exception as error:  # noqa: BLE001 - no more processes or threads: the request must end
            _LOG.warning("the solver could not be started again: %s", one_line(str(error)))
            return None
        another.send(Ask(self._request, latest.budget_bytes, bound_ms=latest.bound_ms(BoundScope.PROBLEM) or 0.0))
        why = f"the solver died ({reason}); it was started again"
        return SolveEvent(self._request, self._so_far(latest), final=False, restart=why)

    def _given_up(self, latest: Solution, reason: str) -> SolveEvent:
        """The present request's end."""
        solution = self._so_far(latest)
        kept = "no schedule was found before" if solution.schedule is None else "the schedule is the best found before"
        message = f"the solver died ({reason}); {kept}; the next request starts it again"
        return SolveEvent(self._request, replace(solution, status=Status.FAILED, message=message), final=True)

    def _so_far(self, latest: Solution) -> Solution:
        """The latest answer, or the best schedule found for any budget that fits this one."""
        best = self._frontier.best(latest.budget_bytes)
        if best is None or (latest.time_ms is not None and latest.time_ms <= best.time_ms):
            return latest
        status = Status.FEASIBLE if latest.status is Status.UNKNOWN else latest.status
        return best.in_answer(latest, status=status)

    def _tell(self, event: SolveEvent) -> None:
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - a user's callback must not end the thread that reads
            _LOG.exception("on_event raised; the session goes on")
