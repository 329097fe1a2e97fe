"""The table of the schedules that come with the package."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from explorer.profiles.loading import bundled_path, bundled_profiles
from explorer.storage import storage_format

SCHEMA = 2
FOLDER = Path(__file__).parent
SHARES = (0.8, 0.6, 0.5, 0.4)
"""Of the peak of a plain step, those that there are schedules for."""
SMALLEST = "smallest"
"""In place of a share: the smallest peak for which a schedule is known."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known for one bundled profile and one budget.

    Attributes:
        profile: a bundled profile's name.
        profile_sha256: of its file, as it was when this was made.
        problem: what was solved, as the memory of past solves calls it (``problem_key``): for the very same one these
            schedules and bounds are known without a search.
        share: of the peak of a plain step, as in the name; ``"smallest"`` for the smallest peak.
        budget_bytes: what was asked.
        plain_peak_bytes: of a step that keeps everything.
        plain_time_ms: of that step.
        peak_bytes: of the schedule; None where none fits.
        time_ms: of the schedule; None where none fits.
        bound_ms: no schedule for this budget is faster than this (``BoundScope.PROBLEM``); None if nothing is proven.
        smallest_bytes: the smallest peak for which a schedule is known.
    """

    profile: str
    profile_sha256: str
    problem: str
    share: str
    budget_bytes: int
    plain_peak_bytes: int
    plain_time_ms: float
    peak_bytes: int | None
    time_ms: float | None
    bound_ms: float | None
    smallest_bytes: int

    @property
    def name(self) -> str:
        """What ``load_schedule`` takes."""
        return f"{self.profile}@{self.share}"

    @property
    def path(self) -> Path:
        """Where the schedule lies, if there is one."""
        return FOLDER / f"{self.name}.json.gz"

    @property
    def overhead(self) -> float | None:
        """Time added, as a share of a plain step's; negative where the schedule is faster."""
        return None if self.time_ms is None else self.time_ms / self.plain_time_ms - 1

    @property
    def gap(self) -> float | None:
        """(time − bound) / time: how far from the fastest at most; None where nothing is proven."""
        if self.time_ms is None or self.bound_ms is None:
            return None
        return max(0.0, 1 - self.bound_ms / self.time_ms)

    @property
    def is_older_than_profile(self) -> bool:
        """Has the profile been made anew, or gone, since?"""
        return self.profile not in bundled_profiles() or fingerprint(bundled_path(self.profile)) != self.profile_sha256


@dataclass(frozen=True, slots=True)
class Zoo:
    """All entries, in the order of profiles and falling budgets."""

    entries: tuple[Entry, ...]


def zoo() -> tuple[Entry, ...]:
    """Every entry, those without a schedule and those older than their profile included."""
    return storage_format.read(FOLDER / "zoo.json.gz", Zoo, schema=SCHEMA).entries


@cache
def _by_problem() -> dict[str, tuple[Entry, ...]]:
    found: dict[str, tuple[Entry, ...]] = {}
    for entry in zoo():
        found[entry.problem] = (*found.get(entry.problem, ()), entry)
    return found


def entries_of(problem: str) -> tuple[Entry, ...]:
    """Those of a problem that have a schedule; none of a problem that nothing comes with."""
    return tuple(x for x in _by_problem().get(problem, ()) if x.peak_bytes is not None)


def write_zoo(entries: Iterable[Entry]) -> None:
    """Replace the table."""
    ranks = {share: rank for rank, share in enumerate((*map(str, SHARES), SMALLEST))}
    in_order = sorted(entries, key=lambda x: (x.profile, ranks.get(x.share, len(ranks))))
    storage_format.write(FOLDER / "zoo.json.gz", Zoo(tuple(in_order)), schema=SCHEMA)


@cache
def fingerprint(path: Path) -> str:
    """Of a file: equal for equal files."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
