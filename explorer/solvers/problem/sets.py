"""Sets of storages or activations."""

from __future__ import annotations

from collections.abc import Iterable


def in_all(parts: Iterable[Iterable[int]]) -> set[int]:
    """What every one of some sets contains; nothing where there is none."""
    found = [set(x) for x in parts]
    return set.intersection(*found) if found else set()
