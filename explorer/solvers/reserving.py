"""A budget of what the caching allocator reserves, or of a whole device: another peak, which only the simulator knows.

What is reserved for a schedule depends on the order of its sizes, and differs by a fifth between schedules of the same
peak. So solve for smaller and smaller peaks until a schedule fits, then between that and the one before; the fastest of
those that fit is the answer. What is allocated is never more than what is reserved: bounds for the whole
budget hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from explorer.device_profile import Profile
from explorer.reserved import Allocator, Trace, play, reservation
from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.solution import Solution, Status, message_of
from explorer.solvers.problem.frontier import Point
from explorer.units import format_bytes, shown

_FIRST = 0.3  # of the time: for the budget itself, whose bounds are those of the answer
_KNOWN = 0.15  # of the time: for schedules found on the way to that
_LAST = 0.05  # of the time: for other schedules found on the way
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
        if self.of is Of.ALLOCATED or solution.schedule is None:
            return True
        return self.needed_bytes(solution.schedule) <= self.budget_bytes

    def needed_bytes(self, schedule: Schedule) -> int:
        """The smallest budget known to be enough for it; the budget itself where that is."""
        trace = Trace.of(self.profile, schedule, simulate(self.profile, schedule))
        expandable = self.allocator is Allocator.EXPANDABLE
        if self.of is Of.DEVICE:
            if play(trace, expandable=expandable, limit_bytes=self.budget_bytes) is not None:
                return self.budget_bytes
            return max(self.budget_bytes + 1, reservation(trace, self.allocator).smallest_limit_bytes)
        unlimited = play(trace, expandable=expandable)
        assert unlimited is not None
        return max(self.budget_bytes, int(unlimited.reserved_bytes.max(initial=0)))


def solve_reserved(
    fitting: Fitting,
    solve: Callable[[int, float], Solution],
    *,
    time_limit: float,
    found_so_far: Callable[[], Iterable[Point]] = tuple,
) -> Solution:
    """The fastest schedule found that fits.

    Args:
        fitting: what a schedule has to fit.
        solve: finds a schedule with a peak within some bytes, in some seconds.
        time_limit: seconds in all.
        found_so_far: all schedules that ``solve`` has found, by increasing peak: of those with one peak it gives one.

    Returns:
        The solution for the budget; its peak is of what is allocated, its message says what is reserved.
    """
    until = time.monotonic() + time_limit
    budget = fitting.budget_bytes
    whole = solve(budget, _FIRST * time_limit)
    if whole.schedule is None:
        return whole
    needed = least_needed = fitting.needed_bytes(whole.schedule)
    if needed <= budget:
        return replace(whole, message=_told(whole, fitting))
    # Many schedules are known by now; one that fits spares the way down to it, from peak to peak.
    known_until = time.monotonic() + _KNOWN * time_limit
    best = _quicker(None, found_so_far(), whole=whole, fitting=fitting, until=known_until)
    low, high = 0 if best is None else best.peak_bytes or 0, budget
    for left in range(_SOLVES, 0, -1):
        seconds = (until - _LAST * time_limit - time.monotonic()) / left
        peak = (low + high) // 2 if low else int(_STEP * high)
        if seconds <= 0 or high - low < _CLOSE * budget:
            break
        found = solve(peak, seconds)
        needed = fitting.needed_bytes(found.schedule) if found.schedule is not None else None
        if needed is not None and needed <= budget:
            best = min((x for x in (best, found) if x is not None), key=lambda x: x.time_ms or 0.0)
            low = peak
        elif needed is None and best is None:
            break  # nor is there a schedule with a smaller peak
        else:
            least_needed = min(least_needed, needed or least_needed)
            high = peak
    best = _quicker(best, found_so_far(), whole=whole, fitting=fitting, until=until)
    if best is None:
        allowed, least = _told_apart(budget, least_needed)
        tried = f"the least that one of those tried needs is {least}"
        message = f"found no schedule that fits {allowed} of {fitting.of.value} memory; {tried}"
        return Solution(Status.UNKNOWN, budget, bounds=whole.bounds, message=message)
    answer = replace(best, budget_bytes=budget, bounds=whole.bounds, status=Status.FEASIBLE)
    answer = replace(answer, message=message_of(answer))  # what was proven for its own peak is not of this budget
    return replace(answer, message=_told(answer, fitting))


def _told_apart(*amounts_bytes: int) -> list[str]:
    """Rounded, with all digits beside it where several are then the same."""
    rounded = [format_bytes(x) for x in amounts_bytes]
    if len(set(rounded)) == len(rounded):
        return rounded
    return [f"{text} ({amount} bytes)" for text, amount in zip(rounded, amounts_bytes, strict=True)]


def _quicker(
    best: Solution | None, points: Iterable[Point], *, whole: Solution, fitting: Fitting, until: float
) -> Solution | None:
    """The quickest of all schedules that fits, as far as there is time to see."""
    slowest_ms = float("inf") if best is None or best.time_ms is None else best.time_ms
    for point in sorted(points, key=lambda x: x.time_ms):
        if time.monotonic() > until or point.time_ms >= slowest_ms:
            break
        if point.peak_bytes <= fitting.budget_bytes and fitting.needed_bytes(point.schedule) <= fitting.budget_bytes:
            return point.in_answer(whole, status=Status.FEASIBLE)
    return best


def reserved_words(message: str) -> str:
    """What the message of a solution says of the allocator, whatever was proven; nothing where it says nothing."""
    return next((x for x in message.split("; ") if _RESERVES in x), "")


def _told(solution: Solution, fitting: Fitting) -> str:
    """Its message, and what is reserved."""
    assert solution.schedule is not None
    allocator = fitting.allocator.value
    line = simulate(fitting.profile, solution.schedule, allocator=allocator)
    found = line.reservation
    assert found is not None
    reserved = f"the {allocator}{_RESERVES}{format_bytes(found.peak_bytes)}, and a device of"
    needs = f"{format_bytes(found.smallest_limit_bytes)} is enough, by a model of it"
    return "; ".join(x for x in (solution.message, f"{reserved} {needs}") if x)
