"""Solving beside a notebook: a worker process that answers the latest request, and may die.

The worker is this interpreter running ``explorer.solvers.worker``, started as a program, not forked and not through
``multiprocessing``: it imports neither torch nor the user's script.
"""

from __future__ import annotations

import atexit
import logging
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Self

from explorer.device_profile import Profile
from explorer.solution import Solution, Status
from explorer.solvers.frontier import Frontier, Point
from explorer.solvers.options import Optimizations, Options, parse_optimizations
from explorer.solvers.pins import PinsLike, parse_pins

_LOG = logging.getLogger(__name__)
_STDERR_LINES = 3
_EXIT_S = 1.0
_LOG_BYTES = 1 << 16
_LOG_VARIABLE = "SCHEDULE_EXPLORER_SCIP_LOG"  # as explorer.solvers.scip has it, which imports SCIP


@dataclass(frozen=True, slots=True)
class SolveEvent:
    """News about a request.

    Attributes:
        request: its number.
        solution: the best known.
        final: the last event of this request.
    """

    request: int
    solution: Solution
    final: bool


@dataclass(frozen=True, slots=True)
class Setup:
    """First message to a worker, and any later one: what to solve from now on.

    Attributes:
        profile: graph and costs.
        options: how to solve.
        known: schedules known from its predecessor.
        remember: whether to use the memory.
    """

    profile: Profile
    options: Options
    known: tuple[Point, ...]
    remember: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """Message to the worker: solve for a budget, and forget the request before."""

    request: int
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Message to the worker: end a request with what is known."""

    request: int


class SolveSession:
    """Solves for one budget after the other in a process of its own; the latest request wins.

    Args:
        profile: what to solve.
        on_event: called from a background thread with the instant answer, each better schedule, better bounds (a few a
            second at most), and one final event for every request that no later one superseded. If the worker dies, the
            final event has ``Status.FAILED``, the best schedule so far, and says why; the next request starts another.
            A worker that dies between two requests is reported by a warning of this module's logger.
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
        chosen = parse_optimizations(optimizations)
        options = Options(
            "monet", formulation, time_limit, gap, optimizations=chosen, exact=exact, pins=parse_pins(pins)
        )
        if options.pins:
            options.problem(profile).keep_all()  # so that pins that cannot be honoured are refused here
        self._setup = Setup(profile, options, (), remember)
        self._outdated = 0  # requests up to this one were for other options
        self._on_event = on_event
        self._frontier = Frontier()
        self._lock = threading.Lock()
        self._request = 0
        self._latest: Solution | None = None
        self._answered = True
        self._closed = False
        self._worker: _Worker | None = None
        atexit.register(self.close)
        with self._lock:
            self._worker_now()

    def request(self, budget_bytes: int) -> int:
        """Solve for a budget in place of whatever is being solved; returns the request's number at once."""
        if budget_bytes <= 0:
            raise ValueError(f"budget_bytes is {budget_bytes}; it must be positive")
        with self._lock:
            if self._closed:
                raise ValueError("this session is closed")
            self._request += 1
            self._answered = False
            self._latest = Solution(Status.UNKNOWN, budget_bytes)
            worker = self._worker_now()
            worker.forget_log()
            worker.send(Ask(self._request, budget_bytes))
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

    def _worker_now(self) -> _Worker:
        if self._worker is None:
            setup = replace(self._setup, known=self._frontier.points())
            self._worker = _Worker(setup, self._take, self._failed)
        return self._worker

    def _take(self, event: SolveEvent) -> None:
        """Pass an event of the worker on, unless its request was superseded."""
        solution = event.solution
        with self._lock:
            if solution.schedule is not None and event.request > self._outdated:
                assert solution.peak_bytes is not None
                assert solution.time_ms is not None
                self._frontier.add(Point(solution.peak_bytes, solution.time_ms, solution.schedule))
            if self._closed or event.request != self._request or self._answered:
                return
            self._answered = event.final
            self._latest = solution
        self._tell(event)

    def _failed(self, worker: _Worker, reason: str) -> None:
        """The worker died: end its request, and let the next one start another."""
        with self._lock:
            if self._worker is worker:
                self._worker = None
            worker.log.close()
            if self._closed:
                return
            if self._answered or self._latest is None:
                _LOG.warning("the solver died while it was not solving (%s); the next request starts it again", reason)
                return
            self._answered = True
            request, latest = self._request, self._latest
        best = self._frontier.best(latest.budget_bytes)
        kept = "no schedule was found before" if best is None else "the schedule is the best found before"
        message = f"the solver died ({reason}); {kept}; the next request starts it again"
        solution = replace(latest, status=Status.FAILED, message=message)
        if best is not None:
            solution = replace(solution, schedule=best.schedule, time_ms=best.time_ms, peak_bytes=best.peak_bytes)
        self._tell(SolveEvent(request, solution, True))

    def _tell(self, event: SolveEvent) -> None:
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - a user's callback must not end the thread that reads
            _LOG.exception("on_event raised; the session goes on")


class _Worker:
    """A running worker process and the three threads that write to it, read from it and read its errors."""

    def __init__(
        self, setup: Setup, on_event: Callable[[SolveEvent], None], on_death: Callable[[_Worker, str], None]
    ) -> None:
        self.on_event, self.on_death = on_event, on_death
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.log = tempfile.NamedTemporaryFile(prefix="schedule-explorer-", suffix=".log")  # noqa: SIM115 - until closed
        self.log_start = 0
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "explorer.solvers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), _LOG_VARIABLE: self.log.name},
            # An interrupt of the notebook's cell is not meant for the solver: a process group of its own. Not a session
            # of its own, which Linux would give as much of the processor as all of the notebook, however nice it is.
            process_group=0,
        )
        self.closing = False
        self.errors: deque[str] = deque(maxlen=_STDERR_LINES)
        self.outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self.send(setup)
        self.threads = [
            threading.Thread(target=target, name=f"solver {name}", daemon=True)
            for name, target in (
                ("requests", self._write),
                ("errors", self._read_errors),
                ("events", self._read),
            )
        ]
        for thread in self.threads:
            thread.start()

    def send(self, message: object) -> None:
        """Queue a message; the caller never waits for the pipe."""
        # Pickled here: what it holds may gain cached values while another thread would pickle it.
        self.outbox.put(pickle.dumps(message))

    def forget_log(self) -> None:
        """Leave what SCIP said so far out of ``read_log``."""
        self.log_start = os.fstat(self.log.fileno()).st_size

    def read_log(self) -> str:
        """What SCIP said since, whole lines, at most about ``_LOG_BYTES`` from the end."""
        end = os.fstat(self.log.fileno()).st_size
        start = max(self.log_start, end - _LOG_BYTES)
        text = os.pread(self.log.fileno(), end - start, start).decode(errors="replace")
        return text if start == self.log_start else text.partition("\n")[2]

    def close(self) -> None:
        """End the process and wait for the threads."""
        self.closing = True
        self.outbox.put(None)
        try:
            self.process.wait(_EXIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(_EXIT_S)
        self.log.close()

    def _write(self) -> None:
        stream = _pipe(self.process.stdin)
        # Closing the pipe is what tells the worker to exit.
        try:
            with stream:
                while (message := self.outbox.get()) is not None:
                    stream.write(message)
                    stream.flush()
        except OSError:
            pass  # it died; the reader of its events says so

    def _read_errors(self) -> None:
        stream = _pipe(self.process.stderr)
        with stream:
            for line in stream:
                self.errors.append(line.decode(errors="replace").strip())

    def _read(self) -> None:
        stream = _pipe(self.process.stdout)
        with stream:
            while True:
                try:
                    event = pickle.load(stream)  # noqa: S301 - from our own process
                except (EOFError, pickle.UnpicklingError, OSError):
                    break
                self.on_event(event)
        self.outbox.put(None)
        code = self.process.wait()
        self.threads[1].join(_EXIT_S)
        if not self.closing:
            reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            said = "; ".join(filter(None, self.errors))
            self.on_death(self, f"{reason}: {said}" if said else reason)


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "every stream of the worker is a pipe"
    return stream
