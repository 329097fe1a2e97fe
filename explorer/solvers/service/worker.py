"""The process behind ``SolveSession``: messages on standard input, events on standard output, both pickled.

Torch-free. The main thread answers at once; a second one refines the latest request with the integer program; a third
reads messages, and ends the process when the session's end of the pipe is gone.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import IO

import numpy as np

from explorer.solution import Solution, Status
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.monet.wording import Progress, solution_of
from explorer.solvers.service.cache import AnswerCache, label_of, problem_key
from explorer.solvers.service.memory import recalled
from explorer.solvers.service.messages import Ask, Cancel, Setup, SolveEvent

_LADDER, _LADDER_EFFORT = 24, 0.3  # budgets that are looked at in idle time, and how closely
_COMPILED_S = 60.0
_BRIDGE_EFFORT = 0.3  # of each search, between two looks at what was asked meanwhile
_NICE = 19  # the notebook's own cells come first


class _Subject:
    """What is solved, what is known of it, and what earlier processes remembered."""

    def __init__(self, setup: Setup, cache: AnswerCache) -> None:
        self.setup, self.cache = setup, cache
        self.options = setup.options
        self.knowledge = Knowledge(setup.options.problem(setup.profile))
        for point in setup.known:
            self.knowledge.add(point)
        self.key = problem_key(setup.profile, setup.options)
        if setup.remember:
            self.knowledge.recall(*recalled(cache, self.key))

    def ladder(self, stop: np.ndarray) -> Iterator[bool]:
        """Look at what is remembered, then search at one budget after the other; each is a true.

        ``stop`` as in ``PlanSearch.improve``.
        """
        while self.knowledge.read_on():
            yield True
        search = self.knowledge.search
        step = (search.keep_all_peak_bytes - search.floor.peak_bytes) / _LADDER
        for rung in range(_LADDER):
            self.pursuit(int(search.keep_all_peak_bytes - rung * step)).look(effort=_LADDER_EFFORT, stop=stop)
            yield True

    def pursuit(self, budget_bytes: int) -> Pursuit:
        """The way of one budget."""
        return Pursuit(self.knowledge, budget_bytes, self.options)

    def remember(self, budget_bytes: int, *, whole: bool) -> None:
        """Keep what is known for a budget; ``whole``: the solve ended by itself."""
        spent_s = self.knowledge.counted_s(budget_bytes, options=self.options) if whole else 0.0
        answer, schedule = self.knowledge.answer(budget_bytes, spent_s=spent_s)
        if whole:
            self.knowledge.note(answer)  # so that who returns to this budget is answered at once
        if self.setup.remember:
            self.cache.remember(self.key, answer, schedule, label=label_of(self.setup.profile, self.options))


@dataclass
class _Job:
    ask: Ask
    subject: _Subject
    began: float = field(default_factory=time.monotonic)
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    superseded: bool = False


class _Wake:
    """Message to the main thread: there may be time for the ladder."""


class _Mail:
    """Messages as they come.

    Attributes:
        asked: set while some wait, so that a search in idle time ends at once.
        newer: set while a request or another problem waits, so that the answer to an older request does.
    """

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[object] = queue.SimpleQueue()
        self.asked, self.newer = np.zeros(1, np.uint8), np.zeros(1, np.uint8)
        self.lock = threading.Lock()
        self.waiting: list[bool] = []

    def put(self, message: object) -> None:
        with self.lock:
            self.note([*self.waiting, isinstance(message, Ask | Setup)])
            self.messages.put(message)

    def get(self) -> object:
        message = self.messages.get()
        with self.lock:
            self.note(self.waiting[1:])
        return message

    def note(self, waiting: list[bool]) -> None:
        self.waiting = waiting
        self.asked[0], self.newer[0] = bool(waiting), any(waiting)

    def empty(self) -> bool:
        return self.messages.empty()


class _Server:
    def __init__(self, setup: Setup, events: IO[bytes], messages: _Mail) -> None:
        self.events = events
        self.messages = messages
        self.lock = threading.Lock()
        self.job: _Job | None = None
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.loaded = threading.Event()
        self.bridged = np.zeros(1, np.uint8)  # set with ``loaded``: ends a search at once
        self.cache = AnswerCache()
        self.subject = _Subject(setup, self.cache)

    def serve(self) -> None:
        threading.Thread(target=self.refine, name="refine", daemon=True).start()
        ladder = self.subject.ladder(self.messages.asked)
        while True:
            # Idle time fills the ladder of budgets, so that the next answer starts from a good one.
            while self.idle() and self.messages.empty() and self.ready() and next(ladder, False):
                pass
            message = self.messages.get()
            if isinstance(message, Cancel) and self.job is not None and self.job.ask.request == message.request:
                self.cancel(self.job)
            elif isinstance(message, Ask):
                self.learn(message)
                if not self.messages.newer[0]:
                    self.answer(message)
            elif isinstance(message, Setup):
                self.supersede()
                self.subject = _Subject(message, self.cache)
                ladder = self.subject.ladder(self.messages.asked)

    def idle(self) -> bool:
        return self.job is None or self.job.ended.is_set()

    def ready(self) -> bool:
        """Are the search's kernel and all modules there? Who waits for that answers nobody, or makes it take longer."""
        return self.loaded.is_set() and self.subject.knowledge.search.ready(timeout=0.0)

    def supersede(self) -> None:
        if self.job is not None:
            self.job.superseded = True
            self.job.stop.set()
        self.job = None

    def cancel(self, job: _Job) -> None:
        job.stop.set()
        if not self.loaded.is_set():  # whoever refines would end it, and is not there yet
            knowledge, progress = job.subject.knowledge, Progress(job.ask.budget_bytes)
            self.send(job, solution_of(knowledge, progress, gap=job.subject.options.gap, stopped=True), final=True)
            self.supersede()

    def learn(self, ask: Ask) -> None:
        """Take what is known already, also from a request that is superseded: the next one does not bring it again."""
        knowledge = self.subject.knowledge
        for point in ask.known:
            knowledge.add(point)
        if ask.bound_ms:
            knowledge.note_bound(ask.budget_bytes, ask.bound_ms)

    def answer(self, ask: Ask) -> None:
        self.supersede()
        subject = self.subject
        knowledge = subject.knowledge
        self.job = job = _Job(ask, subject)
        pursuit = subject.pursuit(ask.budget_bytes)
        settled = pursuit.settled()
        if settled is not None:
            self.send(job, settled, final=True)
            job.ended.set()
            return
        # At once what is known, though it be a trap that a first search leads out of.
        known = pursuit.known()
        if known is not None:
            self.send(job, known, final=False)
        solution = pursuit.begin(stop=self.messages.newer)
        # Before the kernel is there, nothing was searched: the smallest budget named so far is none to leave it at.
        final = solution.status is Status.INFEASIBLE and knowledge.search.ready(timeout=0.0)
        if known is None or solution.time_ms != known.time_ms:
            self.send(job, solution, final=final)
        if final:
            job.ended.set()
        else:
            self.jobs.put(job)
            self.bridge(job)

    def bridge(self, job: _Job) -> None:
        """Search for the first request while the integer program's modules are still being loaded."""
        knowledge, budget = job.subject.knowledge, job.ask.budget_bytes
        for search in job.subject.options.strategy.searches(0):
            wanted = self.messages.empty() and not job.stop.is_set() and not self.loaded.is_set()
            if not wanted or not knowledge.search.ready(timeout=0.0) or knowledge.excludes(budget):
                return
            before = knowledge.frontier.best(budget)
            best = knowledge.search.improve(
                budget,
                effort=_BRIDGE_EFFORT,
                starts=search.starts,
                seed=search.seed,
                echoes=search.echoes,
                stop=self.bridged,
            )
            if best is not before and not self.loaded.is_set():  # else refinement tells of it
                self.send(job, solution_of(knowledge, Progress(budget), gap=0.0), final=False)

    def refine(self) -> None:
        # Takes seconds: now, not while the first request waits for its bound; but its schedule comes first.
        with suppress(Exception):  # the request that needs the kernel says what is wrong with it
            self.subject.knowledge.search.ready(timeout=_COMPILED_S)
        for module in ("bound", "grouped"):
            with suppress(ImportError):  # the request that needs it says so
                import_module(f"explorer.solvers.formulation.{module}")
        # First: refinement would wait for a search that comes last.
        self.bridged[0] = 1
        _come_last()
        gc.freeze()  # what there is stays; from now on there may be garbage
        gc.enable()
        self.loaded.set()
        self.messages.put(_Wake())
        while True:
            job = self.jobs.get()
            if job.superseded:
                continue
            knowledge, options = job.subject.knowledge, job.subject.options
            failed = False
            try:
                # Its time begins now that all is loaded, and no request before it is solved any more.
                solution = job.subject.pursuit(job.ask.budget_bytes).finish(
                    on_solution=lambda found, job=job: self.send(job, found, final=False),
                    should_stop=job.stop.is_set,
                )
            except Exception as error:  # noqa: BLE001 - the next request may fare better
                traceback.print_exc()
                failed = True
                message = f"the solver failed: {type(error).__name__}: {error}"
                known = solution_of(knowledge, Progress(job.ask.budget_bytes), gap=options.gap)
                solution = replace(known, status=Status.FAILED, message=message)
            # First: whoever has the last event may end this process.
            try:
                job.subject.remember(job.ask.budget_bytes, whole=not failed and not job.stop.is_set())
            except Exception:  # noqa: BLE001 - the answer is the same without
                traceback.print_exc()
            self.send(job, solution, final=True)
            job.ended.set()
            self.messages.put(_Wake())

    def send(self, job: _Job, solution: Solution, *, final: bool) -> None:
        # What was searched while the integer program's modules were still being loaded counts as well.
        solution = replace(solution, elapsed_s=time.monotonic() - job.began)
        with self.lock:
            if not job.superseded:
                pickle.dump(SolveEvent(job.ask.request, solution, final), self.events)
                self.events.flush()


def _read(source: IO[bytes], messages: _Mail) -> None:
    try:
        while True:
            messages.put(pickle.load(source))  # noqa: S301 - from our own process
    except (EOFError, OSError, pickle.UnpicklingError):
        # The session is gone. A thread inside SCIP would hold up an orderly exit.
        os._exit(0)


def _come_last() -> None:
    """Let everyone else have the processor first: all threads of this process, and those that they start.

    Not before all is loaded: beside others that take all of the processor that would be minutes, which no time limit
    ends.
    """
    threads = Path("/proc/self/task")
    if threads.is_dir():  # on Linux each is as nice as it was made
        for thread in threads.iterdir():
            with suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, int(thread.name), _NICE)
    elif hasattr(os, "nice"):
        os.nice(_NICE)


def main() -> None:
    """Serve until standard input ends."""
    events = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not mix with events
    gc.disable()  # all that is made until the first answer stays: to look for garbage in it took a third of that time
    setup = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our own process
    messages = _Mail()
    threading.Thread(target=_read, args=(sys.stdin.buffer, messages), name="messages", daemon=True).start()
    try:
        _Server(setup, events, messages).serve()
    except BrokenPipeError:
        os._exit(0)
    except BaseException:  # noqa: BLE001 - an orderly exit would wait for the thread that reads
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
