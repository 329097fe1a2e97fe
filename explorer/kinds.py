"""Profiles, schedules and budgets as users give them: taken, or refused in one sentence with the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from explorer.arguments import several
from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.units import is_share, parse_bytes, shown


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


def a_graph(value: object) -> TrainingGraph:
    """A training graph.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, TrainingGraph):
        return value
    remedy = "give the profile's graph, profile.graph" if isinstance(value, Profile) else "profile.graph is one"
    raise ValueError(f"graph is {shown(value)}; it must be a TrainingGraph: {remedy}")


def a_budget(value: int | str, profile: Profile) -> int:
    """A budget in bytes; per cent are of the peak of a plain step.

    Raises:
        ValueError: it is no budget, see ``parse_bytes``.
    """
    return parse_bytes(value, whole=plain_peak_bytes(profile) if is_share(value) else None)


def plain_peak_bytes(profile: Profile) -> int:
    """The peak of a step that keeps everything."""
    from explorer.schedule import keep_all  # here because these check what they are given by this module
    from explorer.simulation import simulate

    return simulate(profile, keep_all(profile.graph)).peak_bytes


def budgets(values: Iterable[int | str], profile: Profile) -> list[int]:
    """Several budgets.

    Raises:
        ValueError: they are none, or one of them is no budget.
    """
    found = [a_budget(x, profile) for x in several(values, "budgets", such_as="['8 GiB', '80 %']")]
    if not found:
        raise ValueError("budgets is empty; give some, such as ['8 GiB', '80 %']")
    return found


def _is_model(value: object) -> bool:
    """Is it a module, or a class of modules? Told without torch."""
    return hasattr(value, "named_parameters")
