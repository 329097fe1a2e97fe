"""What a ``SolveSession`` says of a request, and after how long."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

from explorer.solution import BoundScope, Solution, Status
from explorer.solvers import SolveEvent

SCOPES = (BoundScope.PROBLEM, BoundScope.GROUPING)
GAPS = (0.05, 0.01)


class Heard:
    """Keeps events with the time at which each came; ``note`` is a session's ``on_event``."""

    def __init__(self) -> None:
        """Has heard nothing yet."""
        self._events: queue.Queue[tuple[float, SolveEvent]] = queue.Queue()

    def note(self, event: SolveEvent) -> None:
        """From the session's thread."""
        self._events.put((time.perf_counter(), event))

    def until_final(self, request: int) -> Iterator[tuple[float, SolveEvent]]:
        """The events of a request and when they came (``time.perf_counter``), up to its last; waits for them."""
        while True:
            at, event = self._events.get()
            if event.request == request:
                yield at, event
                if event.final:
                    return

    def moments(self, request: int, began: float) -> tuple[dict[str, float], float, Solution]:
        """Seconds since ``began`` until each milestone of a request, and until its end; and what the end was."""
        reached: dict[str, float] = {}
        at, solution = began, None
        for at, event in self.until_final(request):
            solution = event.solution
            for name in milestones(solution):
                reached.setdefault(name, at - began)
        assert solution is not None, "every request has a last event"
        return reached, at - began, solution


def milestones(solution: Solution) -> list[str]:
    """What this solution reaches, such as ``"schedule"`` or ``"5% problem"``: proven to that, for all schedules."""
    found = [] if solution.schedule is None or solution.status is Status.FAILED else ["schedule"]
    for scope in SCOPES:
        gap = solution.gap(scope)
        found += [f"{limit:.0%} {scope.name.lower()}" for limit in GAPS if gap is not None and gap <= limit]
    return found
