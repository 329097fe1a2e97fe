"""When parameters are updated, as one more decision: at the end, within the backward pass, or whichever is faster.

An update within the backward pass needs no gradient to be kept, and takes more time, one parameter after the other; and
what it takes beside a large parameter may come while activations are still there. So neither is better for all budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from explorer.device_profile import Profile
from explorer.solution import Bound, BoundScope, Solution, Status, message_of
from explorer.solvers.neither import neither
from explorer.solvers.reserving import reserved_words
from explorer.units import shown

_NO_OPTIMIZER = "update is {!r}, and this profile has no optimizer: profile(…, optimizer=…)"
CHOICES = ("end", "within", "best")


def solve_with_updates(profile: Profile, update: str, solve: Callable[[Profile, float], Solution]) -> Solution:
    """Solve for a profile whose updates are when they are asked for.

    Args:
        profile: with an optimizer.
        update: one of ``CHOICES``.
        solve: solves for a profile, with a share of the time.

    Returns:
        The solution; its schedule's identity says when parameters are updated. Of ``"best"``, bounds are those of both;
        where updates within are impossible, it is the one at the end.

    Raises:
        ValueError: ``update`` is none of these, or the profile knows no such updates.
    """
    if update not in CHOICES:
        raise ValueError(f"update is {shown(update)}; allowed: {', '.join(map(repr, CHOICES))}, or None")
    if update != "best":
        return solve(with_updates(profile, update), 1.0)
    if profile.graph.iteration.optimizer is None:
        raise ValueError(_NO_OPTIMIZER.format(update))
    at_end = with_updates(profile, "end")
    if not profile.can_update_within:
        return solve(at_end, 1.0)
    end, within = (solve(x, 0.5) for x in (at_end, with_updates(profile, "within")))
    better, other = sorted((end, within), key=lambda x: (x.schedule is None, x.time_ms or 0.0, x.peak_bytes or 0))
    elapsed_s = end.elapsed_s + within.elapsed_s
    if better.schedule is None:
        return replace(neither(end, within), elapsed_s=elapsed_s)
    bounds = _of_both(better, other)
    status = better.status if bounds or better.status is not Status.OPTIMAL else Status.FEASIBLE
    found = replace(better, bounds=bounds, status=status, elapsed_s=elapsed_s)
    if bounds == better.bounds:
        return found
    return replace(found, message="; ".join(x for x in (message_of(found), reserved_words(better.message)) if x))


def with_updates(profile: Profile, update: str) -> Profile:
    """The same profile with updates at the ``"end"``, or ``"within"`` the backward pass.

    Raises:
        ValueError: it knows no such updates.
    """
    iteration = profile.graph.iteration
    if iteration.optimizer is None:
        raise ValueError(_NO_OPTIMIZER.format(update))
    return profile.in_iteration(replace(iteration, within=update == "within"))


def _of_both(better: Solution, other: Solution) -> tuple[Bound, ...]:
    """No schedule of either kind takes less; nothing, where one of them has no bound yet."""
    if other.status is Status.INFEASIBLE:
        return better.bounds
    known = [x.bound_ms(BoundScope.PROBLEM) for x in (better, other)]
    proven = [x for x in known if x is not None]
    return (Bound(min(proven), BoundScope.PROBLEM),) if len(proven) == len(known) else ()
