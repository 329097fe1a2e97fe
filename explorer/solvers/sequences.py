"""The longest sequence that fits a budget: no profile of one length tells another's, so each is made anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from explorer.arguments import a_whole_number
from explorer.device_profile import Profile
from explorer.kinds import a_profile
from explorer.solution import Solution, Status, message_of
from explorer.solvers.options import Optimizations
from explorer.solvers.solving import smallest_budget, solve
from explorer.units import amount_of_bytes, shown

_LONGEST = 2**24


@dataclass(frozen=True)
class SequenceLength:
    """What was found.

    Attributes:
        length: the longest for which a schedule was found; 0 if there is none even for the shortest.
        excluded: the shortest for which none was found; None where everything that may be tried fits.
        profile: for ``length``; None without one.
        solution: the best schedule found within the budget, for that profile; None without one.
    """

    length: int
    excluded: int | None
    profile: Profile | None
    solution: Solution | None


def largest_sequence(
    profile_of: Callable[[int], Profile],
    *,
    budget: int | str,
    multiple: int = 128,
    most: int = 2**17,
    time_limit: float = 10.0,
    optimizations: Optimizations = "all",
    exact: bool = False,
) -> SequenceLength:
    """Search for the longest sequence whose training step fits a budget by any schedule.

    ``largest_sequence(lambda n: explorer.estimate(model, batch_of(n), device="H100"), budget="78 GiB")``: attention's
    time, masks and positions do not grow in proportion, so lengths are profiled, not extrapolated. The smallest budget
    of two lengths tells where to look for the next one, which takes a few profiles in all.

    Args:
        profile_of: makes the profile for a length, measured or estimated.
        budget: peak allowed: bytes or ``"78 GiB"``; not per cent, for there is no one length that they are of.
        multiple: only multiples of this are tried.
        most: none longer than this is tried.
        time_limit: seconds for the smallest budget of each length, and for the schedule in the end.
        optimizations: as in ``solve``.
        exact: as in ``solve``.

    Raises:
        ValueError: an argument is not allowed, or ``profile_of`` gives something else than a profile.
    """
    if not callable(profile_of):
        raise ValueError(f"profile_of is {shown(profile_of)}; it must be a function from a length to a profile")
    budget_bytes = amount_of_bytes(budget, name="budget")
    step = a_whole_number(multiple, "multiple", least=1, most=_LONGEST)
    end = a_whole_number(most, "most", least=step, most=_LONGEST) // step
    fits: tuple[int, int, Profile] | None = None  # in steps, with its smallest budget
    over: tuple[int, int] | None = None
    least: Solution | None = None
    count = 1
    while True:
        profile = a_profile(profile_of(count * step))
        smallest = smallest_budget(profile, time_limit=time_limit, optimizations=optimizations, exact=exact)
        assert smallest.minimum is not None
        least_bytes = smallest.minimum.budget_bytes
        if least_bytes <= budget_bytes:
            fits, least = (count, least_bytes, profile), smallest
        else:
            over = (count, least_bytes)
        low, high = (0 if fits is None else fits[0]), (end + 1 if over is None else over[0])
        if high - low <= 1:
            break
        count = min(2 * count, end) if over is None else _between(fits, over, budget_bytes)
    excluded = None if over is None else over[0] * step
    if fits is None:
        return SequenceLength(0, excluded, None, None)
    solution = solve(
        fits[2], budget=budget_bytes, time_limit=time_limit, optimizations=optimizations, exact=exact, remember=False
    )
    if solution.schedule is None and least is not None and least.schedule is not None:
        # There was less time to make that one smaller than it took to find it by itself.
        solution = replace(least, status=Status.FEASIBLE, budget_bytes=budget_bytes, message=message_of(least))
    return SequenceLength(fits[0] * step, excluded, fits[2], solution)


def _between(fits: tuple[int, int, Profile] | None, over: tuple[int, int], budget_bytes: int) -> int:
    """Where the budget lies on a line through what two lengths need; never at either, nor far from the middle."""
    low, low_bytes = (0, 0) if fits is None else fits[:2]
    high, high_bytes = over
    share = (budget_bytes - low_bytes) / max(1, high_bytes - low_bytes)
    room = (high - low) // 8
    return min(max(low + int((high - low) * share), low + 1 + room), high - 1 - room)
