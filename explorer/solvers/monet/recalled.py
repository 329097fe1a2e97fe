"""What earlier solves found of a problem: their schedules are read when they are of use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from explorer.schedule import Schedule
from explorer.solvers.problem.frontier import Frontier


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known for one budget.

    Attributes:
        budget_bytes: peak allowed.
        spent_s: the longest time limit of a solve that did not end before because its schedule was near enough.
        bound_ms: no schedule is quicker.
        excluded: it is proven that no schedule fits.
        time_ms: of the best schedule, None without one.
        peak_bytes: likewise.
    """

    budget_bytes: int
    spent_s: float
    bound_ms: float
    excluded: bool
    time_ms: float | None
    peak_bytes: int | None


class Recalled:
    """Answers whose schedules were not looked at; safe to share between threads.

    Args:
        answers: one for each budget.
        schedule_of: reads the schedule of an answer, by budget; None if there is none any more.
    """

    def __init__(
        self, answers: Iterable[Answer] = (), schedule_of: Callable[[int], Schedule | None] = lambda _: None
    ) -> None:
        """Reads nothing yet."""
        self._unread = {x.budget_bytes: x for x in answers}
        self._read = schedule_of
        self._lock = threading.Lock()

    def useful(self, frontier: Frontier) -> Answer | None:
        """One that is better than what is known, if there is any; the others are forgotten."""
        with self._lock:
            self._unread = {b: x for b, x in self._unread.items() if _improves(x, frontier, x.peak_bytes or 0)}
            return next(iter(self._unread.values()), None)

    def quickest(self, frontier: Frontier, budget_bytes: int) -> Answer | None:
        """The quickest that fits a budget; None if none is better than what is known for that."""
        with self._lock:
            fitting = [x for x in self._unread.values() if _improves(x, frontier, budget_bytes)]
        return min(fitting, key=lambda x: x.time_ms or 0.0, default=None)

    def smallest(self, below_bytes: int) -> Answer | None:
        """The one of least peak; None if none is below so much."""
        with self._lock:
            smaller = [x for x in self._unread.values() if x.peak_bytes is not None and x.peak_bytes < below_bytes]
        return min(smaller, key=lambda x: x.peak_bytes or 0, default=None)

    def schedule(self, answer: Answer) -> Schedule | None:
        """Read an answer's schedule, once; None if there is none any more."""
        with self._lock:
            self._unread.pop(answer.budget_bytes, None)
        return self._read(answer.budget_bytes)


def _improves(answer: Answer, frontier: Frontier, budget_bytes: int) -> bool:
    """Does it fit the budget, and take less than what is known for that?"""
    if answer.time_ms is None or answer.peak_bytes is None or answer.peak_bytes > budget_bytes:
        return False
    best = frontier.best(budget_bytes)
    return best is None or answer.time_ms < best.time_ms
