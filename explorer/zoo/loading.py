"""Schedules by path or name: saved ones, and those that come with the package."""

from __future__ import annotations

import re
from pathlib import Path

from explorer.arguments import a_path
from explorer.profiles.loading import bundled_path, bundled_profiles, load_profile
from explorer.schedule import Schedule, read_schedule
from explorer.zoo.entries import SHARES, SMALLEST, Entry, zoo

_NAME = re.compile(r"([\w.-]+)@([\d.]*\d|[a-z]+)")


def load_schedule(path: str | Path) -> Schedule:
    """Read a schedule.

    Args:
        path: a file that ``Schedule.save`` wrote; or a bundled profile's name, an at sign, and a share of PyTorch's
            peak or ``smallest``: ``"resnet50-a100-80gb@0.5"``. ``schedule-explorer zoo`` lists those there are.

    Raises:
        ValueError: the file is missing, truncated, changed, or of another version; there is no such schedule, or the
            profile has been made anew since.
    """
    path = a_path(path, instead=", or the name of a bundled schedule, such as 'resnet50-a100-80gb@0.5'")
    named = _NAME.fullmatch(str(path))
    is_bare = len(path.parts) == 1 and path.suffix != ".json"
    if named is None and is_bare and not path.exists() and (known := _meant(path.name)):
        raise ValueError(
            f"path is {str(path)!r}, which is no file; a bundled schedule has a name such as {f'{known}@0.5'!r} or "
            f"{f'{known}@{SMALLEST}'!r}: a profile, and a share of PyTorch's peak or {SMALLEST}"
        )
    if named is None or path.is_file():
        return read_schedule(path)
    return _schedule_of(entry_named(named[1], named[2]))


def _meant(text: str) -> str | None:
    """The profile that a name means which is none of a schedule; None where it looks like none of a profile."""
    name = text.partition("@")[0]
    try:
        return bundled_path(name).name.removesuffix(".json.gz") if name else None
    except ValueError:
        return "resnet50-a100-80gb" if "@" in text else None


def entry_named(profile: str, share: str) -> Entry:
    """The entry of a bundled profile, by its name or that of a model alone, and a share.

    Raises:
        ValueError: there is none; says which there are.
    """
    name = bundled_path(profile).name.removesuffix(".json.gz")
    share = share if share == SMALLEST else _share(share)
    for entry in zoo():
        if (entry.profile, entry.share) == (name, share):
            return entry
    raise ValueError(
        f"no bundled schedule {f'{name}@{share}'!r}; shares of PyTorch's peak: {', '.join(map(str, SHARES))} and "
        f"{SMALLEST} (schedule-explorer zoo lists what there is; explorer.solve makes one for any budget)"
    )


def _share(text: str) -> str:
    """``"0.50"`` as ``"0.5"``."""
    try:
        return str(float(text))
    except ValueError:
        return text


def _schedule_of(entry: Entry) -> Schedule:
    """Its schedule, if it is of the profile that there is now."""
    if entry.peak_bytes is None:
        raise ValueError(
            f"no schedule of {entry.profile!r} is known to fit {entry.share} of PyTorch's peak, {entry.budget_bytes} "
            f"bytes: the smallest takes {entry.smallest_bytes}, and is {f'{entry.profile}@{SMALLEST}'!r}"
        )
    schedule = read_schedule(entry.path)
    if entry.is_older_than_profile:
        raise ValueError(f"the bundled schedule {entry.name!r} is older than its profile: {_change(entry, schedule)}")
    return schedule


def _change(entry: Entry, schedule: Schedule) -> str:
    """What became of the profile since, and the remedy."""
    if entry.profile not in bundled_profiles():
        return "there is none of that name any more"
    difference = schedule.identity.difference(load_profile(entry.profile).graph.identity)
    what = difference or "its times and bytes were made anew, of the same graph"
    return f"{what}; python -m benchmarks.schedule_zoo {entry.profile} makes it anew"
