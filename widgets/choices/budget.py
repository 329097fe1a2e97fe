"""Budgets as people choose them: typed in, from a list, or one after the other."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from explorer.units import parse_bytes
from widgets import style

_NUMBER = re.compile(r"\s*[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:e[+-]?\d+)?\s*", re.IGNORECASE)
_GPU_GIB = (4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 141, 192)
_SHARES = (90, 80, 70, 60, 50, 40, 30, 20)


@dataclass(frozen=True, slots=True)
class Mark:
    """A budget with a name.

    Attributes:
        bytes: the budget.
        label: what it is.
        short: the same in a word, under the slider; empty for one that only the list of presets has.
    """

    bytes: int
    label: str
    short: str = ""


def parse_budget(typed: str, plain_bytes: int) -> int:
    """What was typed, in bytes.

    Args:
        typed: a number in the unit that the slider has, a number with a unit, or per cent of a plain step's peak
            (``"80 %"``); with a point or a comma.
        plain_bytes: that peak.

    Raises:
        ValueError: it is none of these, or not positive.
    """
    if _NUMBER.fullmatch(typed):
        return parse_bytes(f"{typed.strip()} {style.unit_of(plain_bytes)}")
    return parse_bytes(typed, whole=plain_bytes)


def presets(smallest_bytes: int, plain_bytes: int) -> tuple[Mark, ...]:
    """Budgets worth a name, the largest first: those of PyTorch, of common GPUs, and shares of PyTorch's peak.

    Args:
        smallest_bytes: the smallest feasible budget known.
        plain_bytes: the peak of a plain step.
    """
    found = [
        Mark(plain_bytes, "PyTorch's peak", "PyTorch"),
        Mark(smallest_bytes, "smallest feasible", "smallest"),
        *(Mark(int(plain_bytes * share / 100), f"{share} % of PyTorch's peak") for share in _SHARES),
        *(Mark(gib * style.GIB, f"a GPU with {gib} GiB", f"{gib} GiB") for gib in _GPU_GIB),
    ]
    inside = [mark for mark in found if smallest_bytes <= mark.bytes <= plain_bytes]
    return tuple(sorted(inside, key=lambda mark: -mark.bytes))


def sweep(smallest_bytes: int, plain_bytes: int, *, steps: int = 16) -> tuple[int, ...]:
    """Budgets from PyTorch's peak down to the smallest."""
    return tuple(dict.fromkeys(np.linspace(plain_bytes, smallest_bytes, steps).astype(np.int64).tolist()))
