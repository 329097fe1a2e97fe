"""A budget of what the caching allocator reserves, or of a whole device: another peak, which only the simulator knows.

What is reserved for a schedule depends on the order of its sizes, and differs by a fifth between schedules of the same
peak. So solve for smaller and smaller peaks until a schedule fits, then between that and the one before; the fastest of
those that fit is the answer. What is allocated is never more than what is reserved: bounds for the whole
budget hold.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from explorer.device_profile import Profile
from explorer.reserved import Allocator, Trace, play, reservation
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.solution import Solution, Status, message_of
from explorer.solvers.problem.frontier import Point, Remembered, point_of
from explorer.units import format_bytes, shown

_FIRST = 0.3  # of the time: for the budget itself, whose bounds are those of the answer
_AGAIN = 0.2  # of the time: for it again, where what was found fits and is not the best yet
_KNOWN = 0.15  # of the time: for schedules found on the way to that
_LAST = 0.05  # of the time: for other schedules found on the way
_MIXED = 0.25  # of the time: to mix them
_SOLVES = 12  # after that one, at most
_STEP = 0.9  # from peak to peak, until a schedule fits
_CLOSE = 0.004  # of the budget: peaks that differ by less are not told apart
_RESERVES = " allocator reserves "


class Of(StrEnum):
    """What a budget is of."""

    ALLOCATED = "allocated"
    """The peak of what tensors and workspaces take."""
    RESERVED = "reserved"
    """The peak of what the caching allocator takes from a device that has enough."""
    DEVICE = "device"
    """What the device has for this process: the allocator may give back what is cached, and must not run out."""


def a_measure(value: Any) -> Of:
    """One of ``Of``.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str) or value not in {x.value for x in Of}:
        raise ValueError(f"of is {shown(value)}; it must be one of {', '.join(repr(x.value) for x in Of)}")
    return Of(value)


@dataclass(frozen=True)
class Fitting:
    """Does a schedule fit, and if not, what would it need?"""

    profile: Profile
    budget_bytes: int
    of: Of
    allocator: Allocator

    def fits(self, solution: Solution) -> bool:
        """Does its schedule, if it has one, as it is run? Updates may stand elsewhere than in the order solved for."""
        return self.of is Of.ALLOCATED or solution.schedule is None or self.enough(solution.schedule)

    def enough(self, schedule: Schedule) -> bool:
        """Is the budget enough for it? What is reserved is what a device of that size has to give without a flush."""
        expandable, flushing = self.allocator is Allocator.EXPANDABLE, self.of is Of.DEVICE
        trace = self._trace(schedule)
        return play(trace, expandable=expandable, limit_bytes=self.budget_bytes, flushing=flushing) is not None

    def needed_bytes(self, schedule: Schedule) -> int:
        """The smallest budget known to be enough for it, which takes long to find."""
        if self.of is Of.RESERVED:
            return self.reserved_bytes(schedule)
        return reservation(self._trace(schedule), self.allocator).smallest_limit_bytes

    def reserved_bytes(self, schedule: Schedule) -> int:
        """At most, on a device that has enough."""
        found = play(self._trace(schedule), expandable=self.allocator is Allocator.EXPANDABLE)
        assert found is not None
        return int(found.reserved_bytes.max(initial=0))

    def _trace(self, schedule: Schedule) -> Trace:
        return Trace.of(self.profile, schedule, simulate(self.profile, schedule))


def solve_reserved(
    fitting: Fitting,
    solve: Callable[[int, float], Solution],
    *,
    time_limit: float,
    found_so_far: Callable[[], Sequence[Remembered]] = tuple,
    mix: Callable[[Point, float], Point] | None = None,
) -> Solution:
    """The fastest schedule found that fits.

    Args:
        fitting: what a schedule has to fit.
        solve: finds a schedule with a peak within some bytes, in some seconds.
        time_limit: seconds in all.
        found_so_far: what is known by then and may fit, the quickest first.
        mix: makes one that fits quicker by what others of those do, until a time by the monotonic clock.

    Returns:
        The solution for the budget; its peak is of what is allocated, its message says what is reserved.
    """
    until = time.monotonic() + time_limit
    whole = solve(fitting.budget_bytes, _FIRST * time_limit)
    if whole.schedule is None:
        return whole
    best = None
    if fitting.enough(whole.schedule):
        if whole.status is Status.OPTIMAL or mix is None:
            return replace(whole, message=_told(whole, fitting))
        best = point_of(whole)
        longer = solve(fitting.budget_bytes, _AGAIN * time_limit)
        if longer.schedule is not None and point_of(longer).time_ms <= best.time_ms:
            whole = longer
        if fitting.enough(point_of(whole).schedule):
            return replace(whole, message=_told(whole, fitting))
    looking = _Looking(fitting=fitting, solve=solve, best=best, smallest=point_of(whole))
    # Many schedules are known by now; one that fits spares the way down to it, from peak to peak.
    looking.at_known(found_so_far(), until=time.monotonic() + _KNOWN * time_limit)
    mixed_from = until - (_MIXED if mix else 0.0) * time_limit
    looking.between_peaks(until=mixed_from - _LAST * time_limit)
    looking.at_known(found_so_far(), until=mixed_from)
    if looking.best is None:
        looking.between_peaks(until=until)  # there is nothing to mix
    if looking.best is None:
        allowed, needed = _told_apart(fitting.budget_bytes, fitting.needed_bytes(looking.smallest.schedule))
        tried = f"the one of the smallest peak that was tried needs {needed}"
        message = f"found no schedule that fits {allowed} of {fitting.of.value} memory; {tried}"
        return Solution(Status.UNKNOWN, fitting.budget_bytes, bounds=whole.bounds, message=message)
    found = mix(looking.best, until) if mix else looking.best
    answer = found.in_answer(whole, status=Status.FEASIBLE)
    answer = replace(answer, message=message_of(answer))  # what was proven for its own peak is not of this budget
    return replace(answer, message=_told(answer, fitting))


@dataclass(kw_only=True)
class _Looking:
    """For a schedule that fits.

    Attributes:
        fitting: what it has to fit.
        solve: finds a schedule with a peak within some bytes, in some seconds.
        best: the quickest that fits, so far.
        smallest: of those that do not, the one with the smallest peak.
    """

    fitting: Fitting
    solve: Callable[[int, float], Solution]
    best: Point | None
    smallest: Point

    def at_known(self, known: Sequence[Remembered], *, until: float) -> None:
        """Between what fits and what does not, by time: slower schedules have smaller peaks, and mostly need less."""
        slowest_ms = float("inf") if self.best is None else self.best.time_ms
        first, last = 0, bisect_left(known, slowest_ms, key=lambda x: x.time_ms) - 1
        while first <= last and time.monotonic() < until:
            middle = (first + last) // 2
            point = known[middle].schedule()
            if point is not None and self._fits(point):
                last = middle - 1
            else:
                first = middle + 1

    def between_peaks(self, *, until: float) -> None:
        """Solve for smaller peaks until a schedule fits, then between that and the one before."""
        budget_bytes = self.fitting.budget_bytes
        # Below: the peak of one that fits, or one that no schedule has.
        low, high = 0 if self.best is None else self.best.peak_bytes, budget_bytes
        for left in range(_SOLVES, 0, -1):
            seconds = (until - time.monotonic()) / left
            peak = (low + high) // 2 if low else int(_STEP * high)
            if seconds <= 0 or high - low < _CLOSE * budget_bytes:
                break
            solution = self.solve(peak, seconds)
            if solution.schedule is None and self.best is None:
                if solution.status is not Status.INFEASIBLE:
                    break  # nor would one be found for a smaller peak
                low = peak
            elif solution.schedule is not None and self._fits(point_of(solution)):
                low = peak
            else:
                high = peak

    def _fits(self, point: Point) -> bool:
        fits = self.fitting.enough(point.schedule)
        if fits and (self.best is None or point.time_ms < self.best.time_ms):
            self.best = point
        elif not fits and point.peak_bytes < self.smallest.peak_bytes:
            self.smallest = point
        return fits


def _told_apart(*amounts_bytes: int) -> list[str]:
    """Rounded, with all digits beside it where several are then the same."""
    rounded = [format_bytes(x) for x in amounts_bytes]
    if len(set(rounded)) == len(rounded):
        return rounded
    return [f"{text} ({amount} bytes)" for text, amount in zip(rounded, amounts_bytes, strict=True)]


def reserved_words(message: str) -> str:
    """What the message of a solution says of the allocator, whatever was proven; nothing where it says nothing."""
    return next((x for x in message.split("; ") if _RESERVES in x), "")


def _told(solution: Solution, fitting: Fitting) -> str:
    """Its message, and what is reserved."""
    assert solution.schedule is not None
    reserved_bytes = fitting.reserved_bytes(solution.schedule)
    # It fits the budget, and never takes more than is reserved; less may be enough, which takes long to find.
    enough = format_bytes(min(reserved_bytes, fitting.budget_bytes))
    reserved = f"the {fitting.allocator.value}{_RESERVES}{format_bytes(reserved_bytes)}, and a device of"
    needs = f"{enough} is enough, by a model of it"
    return "; ".join(x for x in (solution.message, f"{reserved} {needs}") if x)
