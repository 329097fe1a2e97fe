"""The schedules worth remembering: no other has both a smaller peak and a shorter time."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.solution import Finder, Solution, Status


@dataclass(frozen=True, slots=True)
class Point:
    """A schedule with its simulated peak and time, and what found it."""

    peak_bytes: int
    time_ms: float
    schedule: Schedule
    finder: Finder = Finder.GIVEN

    def in_answer(self, solution: Solution, *, status: Status) -> Solution:
        """An answer with this schedule, which may have been found in a search for another budget."""
        asked_bytes = solution.budget_bytes
        own = self.schedule.budget_bytes == asked_bytes
        return replace(
            solution,
            status=status,
            schedule=self.schedule if own else replace(self.schedule, budget_bytes=asked_bytes),
            time_ms=self.time_ms,
            peak_bytes=self.peak_bytes,
            finder=self.finder,
        )


@dataclass(frozen=True, eq=False, slots=True)
class Remembered:
    """Something that a search came across.

    Attributes:
        time_ms: of a step.
        schedule: makes a schedule of it, with its peak and time; None where it cannot run after all.
    """

    time_ms: float
    schedule: Callable[[], Point | None]


def judged(profile: Profile, schedule: Schedule, finder: Finder = Finder.GIVEN) -> Point:
    """A schedule with what the simulator says of it."""
    timeline = simulate(profile, schedule)
    return Point(timeline.peak_bytes, timeline.time_ms, schedule, finder)


def point_of(solution: Solution) -> Point:
    """The schedule of a solution that has one, as it was judged."""
    assert solution.schedule is not None
    assert solution.peak_bytes is not None
    assert solution.time_ms is not None
    return Point(solution.peak_bytes, solution.time_ms, solution.schedule, solution.finder or Finder.GIVEN)


class Frontier:
    """Pareto set of schedules, by peak and time; safe to share between threads.

    Whoever answers from it never gives a worse schedule for a larger budget.
    """

    def __init__(self) -> None:
        """Empty."""
        self._points: list[Point] = []
        self._lock = threading.Lock()

    def add(self, point: Point) -> bool:
        """Remember ``point``, and forget what it dominates.

        Returns:
            Whether it is new: nothing known has at most its peak and at most its time.
        """
        with self._lock:
            at = bisect_right(self._points, point.peak_bytes, key=lambda x: x.peak_bytes)
            if at and self._points[at - 1].time_ms <= point.time_ms:
                return False
            start = bisect_left(self._points, point.peak_bytes, key=lambda x: x.peak_bytes)
            end = start
            while end < len(self._points) and self._points[end].time_ms >= point.time_ms:
                end += 1
            self._points[start:end] = [point]
            return True

    def best(self, budget_bytes: int) -> Point | None:
        """The quickest schedule whose peak is within the budget, None if there is none."""
        with self._lock:
            at = bisect_right(self._points, budget_bytes, key=lambda x: x.peak_bytes)
            return self._points[at - 1] if at else None

    def points(self) -> tuple[Point, ...]:
        """All of them: peaks increase, times decrease."""
        with self._lock:
            return tuple(self._points)
