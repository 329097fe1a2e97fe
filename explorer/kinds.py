"""Profiles and schedules as users give them: taken, or refused in one sentence with the remedy."""

from __future__ import annotations

from pathlib import Path

from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.units import shown


def a_profile(value: object) -> Profile:
    """A profile.

    Raises:
        ValueError: it is something else; says how to come from that to a profile.
    """
    if isinstance(value, Profile):
        return value
    remedy = "explorer.profile(model, batch) and explorer.load_profile(path) make one"
    if isinstance(value, str | Path):
        remedy = f"read it with explorer.load_profile({shown(str(value))})"
    elif _is_model(value):
        remedy = "measure the model with explorer.profile(model, batch, loss=loss)"
    elif isinstance(value, Schedule | Solution):
        remedy = "the profile comes first, then the schedule"
    raise ValueError(f"profile is {shown(value)}; it must be a Profile: {remedy}")


def a_schedule(value: object) -> Schedule:
    """A schedule.

    Raises:
        ValueError: it is something else; says how to come from that to a schedule.
    """
    if isinstance(value, Schedule):
        return value
    remedy = "explorer.solve(profile, budget=…).schedule and explorer.load_schedule(path) are some"
    held = getattr(value, "solution", None) or value  # of ``largest_batch``
    if isinstance(held, Solution) and held.schedule is None:
        why = " ".join(held.message.split())
        raise ValueError(
            f"schedule is {shown(value)} without a schedule ({held.status.value}{': ' if why else ''}{why}); solve for "
            "a larger budget"
        )
    if isinstance(held, Solution):
        remedy = "give its schedule, solution.schedule"
    elif value is None:
        remedy = "a solution without one says why in its message; solve for a larger budget"
    elif isinstance(value, str | Path):
        remedy = f"read it with explorer.load_schedule({shown(str(value))})"
    elif isinstance(value, Profile):
        remedy = "solve for one with explorer.solve(profile, budget=…).schedule; a profile comes before it"
    raise ValueError(f"schedule is {shown(value)}; it must be a Schedule: {remedy}")


def _is_model(value: object) -> bool:
    """Is it a module, or a class of modules? Told without torch."""
    return hasattr(value, "named_parameters")
