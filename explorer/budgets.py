"""Budgets as users give them: bytes, or a share of what a plain step takes."""

from __future__ import annotations

from collections.abc import Iterable

from explorer.arguments import several
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.units import is_share, parse_bytes


def a_budget(value: int | str, profile: Profile) -> int:
    """A budget in bytes; per cent are of the peak of a plain step.

    Raises:
        ValueError: it is no budget, see ``parse_bytes``.
    """
    return parse_bytes(value, whole=plain_peak_bytes(profile) if is_share(value) else None)


def plain_peak_bytes(profile: Profile) -> int:
    """The peak of a step that keeps everything."""
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
