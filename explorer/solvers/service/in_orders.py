"""A session in two orders at once: the captured one, and that with the least memory; the better answer counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any, Self

from explorer.budgets import a_budget
from explorer.device_profile import Profile
from explorer.solution import Solution, Status
from explorer.solvers.options import Options
from explorer.solvers.ordering.joint import Reordered, better, in_one_order
from explorer.solvers.problem.frontier import Frontier, judged, point_of
from explorer.solvers.service.messages import SolveEvent
from explorer.solvers.service.session import SolveSession


class SessionInOrders:
    """Solves for one budget after the other as ``SolveSession`` does, by two of these, each in a process of its own.

    Args:
        profile: what to solve.
        on_event: as of ``SolveSession``; a request's final event comes when both orders' are there. Solutions belong to
            the profile as it was captured, with bounds for schedules in the answer's order.
        options: as of ``SolveSession``.

    Raises:
        ValueError: as ``SolveSession``.
    """

    def __init__(self, profile: Profile, *, on_event: Callable[[SolveEvent], None], **options: Any) -> None:
        """Finds the order, and starts the workers."""
        reordered = Reordered.of(profile)
        self._profile, self._on_event = profile, on_event
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of telling: events of two threads, one after the other
        self._frontier = Frontier()
        self._request, self._budget_bytes = 0, 0
        self._asked: list[int] = []
        self._heard: list[SolveEvent | None] = []
        self._translate = [in_one_order, reordered.solution]
        profiles = [profile] if reordered.as_captured else [profile, reordered.profile]
        self._sessions: list[SolveSession] = []
        try:
            for number, x in enumerate(profiles):
                self._sessions.append(SolveSession(x, on_event=partial(self._take, number), **options))
        except BaseException:  # such as no process to be had for the second
            self.close()
            raise

    def request(self, budget_bytes: int | str, *, known: Solution | None = None) -> int:
        """As of ``SolveSession``; ``known`` may be in any order."""
        budget_bytes = a_budget(budget_bytes, self._profile)
        with self._lock:
            captured = known
            if known is not None and known.schedule is not None:
                self._frontier.add(judged(self._profile, known.schedule))
                captured = None if known.schedule.moved(self._profile.graph) else known
            self._request += 1
            self._budget_bytes = budget_bytes
            self._heard = [None] * len(self._sessions)
            news = [captured, None]
            self._asked = [x.request(budget_bytes, known=y) for x, y in zip(self._sessions, news, strict=False)]
            return self._request

    def reconfigure(self, options: Options) -> None:
        """As of ``SolveSession``."""
        with self._lock:
            self._frontier, self._asked = Frontier(), []
            for session in self._sessions:
                session.reconfigure(options)

    def cancel(self) -> None:
        """As of ``SolveSession``."""
        for session in self._sessions:
            session.cancel()

    def close(self) -> None:
        """As of ``SolveSession``."""
        for session in self._sessions:
            session.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    @property
    def scip_log(self) -> str:
        """What SCIP said of both orders, one after the other."""
        return "\n".join(filter(None, (x.scip_log for x in self._sessions)))

    def _take(self, number: int, event: SolveEvent) -> None:
        """Pass on what is known now that one of the sessions has said something."""
        with self._turn:
            with self._lock:
                if not self._is_latest(number, event):
                    return
            translated = replace(event, solution=self._translate[number](event.solution))
            told = self._merged(number, translated)
            if told is not None:
                self._on_event(told)

    def _is_latest(self, number: int, event: SolveEvent) -> bool:
        return number < len(self._asked) and event.request == self._asked[number]

    def _merged(self, number: int, event: SolveEvent) -> SolveEvent | None:
        """None if it is of a request that was superseded."""
        with self._lock:
            if not self._is_latest(number, event):
                return None
            self._heard[number] = event
            heard = [x for x in self._heard if x is not None]
            best = reduce(better, (x.solution for x in heard))
            best = replace(best, elapsed_s=max(x.solution.elapsed_s for x in heard))
            final = len(heard) == len(self._sessions) and all(x.final for x in heard)
            return SolveEvent(self._request, self._no_worse(best), final, event.restart)

    def _no_worse(self, found: Solution) -> Solution:
        """No worse than what was found before, for this budget or a smaller one."""
        if found.schedule is not None:
            self._frontier.add(point_of(found))
        best = self._frontier.best(self._budget_bytes)
        if best is None or (found.time_ms is not None and found.time_ms <= best.time_ms):
            return found
        # What is proven is of another order than this one's, or of none.
        status = Status.FEASIBLE if found.schedule is None and found.status is not Status.FAILED else found.status
        return best.in_answer(replace(found, bounds=()), status=status)
