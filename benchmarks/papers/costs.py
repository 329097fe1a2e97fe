"""Rows of the jobs' results: parts, curves, and what lies between two budgets."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers import jobs, published
from benchmarks.papers.exhibit import Label, Row, source, stored

GIB = 2**30
COSTS = (
    "ResNet-50, UNet and VGG-16 by the costs that MONeT's authors measured on a P100; GoogLeNet and MobileNet-V2 by "
    "estimates for one, as no costs of theirs are published."
)
_MINUTE = 60.0
_NEARLY = 0.995  # of a budget: what was measured there is a little off what was asked for
MIXED = (Label.SIMULATED, Label.ESTIMATED)


def read_parts(job: str, *, quick: bool, zoo: Path | None = None, only: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Stored, or made now. Overheads by published costs are over what PyTorch took by them (``pytorch_ms``)."""
    parts = stored(job) if quick else list(getattr(jobs, job)(zoo, only))
    return [_over_pytorch(x) if x.get("published_costs") and "plain_ms" in x else x for x in parts]


def _over_pytorch(part: dict[str, Any]) -> dict[str, Any]:
    ratio = part["plain_ms"] / published.pytorch_ms(part["part"])
    rows = [x if x["overhead"] is None else {**x, "overhead": (1 + x["overhead"]) * ratio - 1} for x in part["rows"]]
    return {**part, "rows": rows}


def after_a_minute(part: dict[str, Any]) -> dict[str, Any]:
    """With MONeT's own instances as solved for a minute on a quiet machine (docs/figures.md) in place of ``monet``."""
    if not part["published_costs"]:
        return part
    plain_ms = published.pytorch_ms(part["part"])
    solved = [
        {
            "method": "monet",
            "budget_bytes": x["budget_gib"] * GIB,
            "overhead": None if x["objective_ms"] is None else x["objective_ms"] / plain_ms - 1,
        }
        for x in stored("../published")
        if x["instance"] == f"{part['part']}-all" and x["seconds"] == _MINUTE
    ]
    return {**part, "rows": [*solved, *(x for x in part["rows"] if x["method"] != "monet")]}


def sources_of(job: str, *, quick: bool) -> tuple[str, ...]:
    """What stands below an exhibit."""
    return (source(job),) if quick else ("Made now.",)


def row_of(part: dict[str, Any], **keys: Any) -> Row:
    """The first row with these values."""
    return next(x for x in part["rows"] if all(x[key] == value for key, value in keys.items()))


def whole_bytes(part: dict[str, Any]) -> float:
    """PyTorch's memory as published: the captured peak of an instance is that of its slowest convolutions."""
    return (
        published.MEMORY_AT_TEN_PER_CENT_GB[part["part"]][0] * GIB if part["published_costs"] else part["plain_bytes"]
    )


def points_of(part: dict[str, Any], method: str) -> list[tuple[float, float]]:
    """Budgets and overheads of a method, budgets increasing."""
    return sorted(
        (x["budget_bytes"], x["overhead"]) for x in part["rows"] if x["method"] == method and x["overhead"] is not None
    )


def curve_of(part: dict[str, Any], method: str, *, whole: float) -> tuple[list[float], list[float]]:
    """The same as shares of ``whole`` and per cent."""
    points = points_of(part, method)
    return [x / whole for x, _ in points], [100 * y for _, y in points]


def overhead_within(part: dict[str, Any], method: str, budget_bytes: int) -> float | None:
    """Between two budgets by a straight line."""
    points = points_of(part, method)
    if not points or budget_bytes < _NEARLY * points[0][0]:
        return None
    return float(np.interp(budget_bytes, [x for x, _ in points], [y for _, y in points]))


@dataclass(frozen=True)
class Least:
    """The smallest budget that does.

    Attributes:
        budget_bytes: between two that were tried by a straight line.
        at_most: the smallest one tried does already, so that less may do.
    """

    budget_bytes: float
    at_most: bool = False


def memory_at(part: dict[str, Any], method: str, overhead: float) -> Least | None:
    """The smallest budget at which a method takes no more than that."""
    points = points_of(part, method)
    if points and points[0][1] <= overhead:
        return Least(points[0][0], at_most=True)
    for (low, slow), (high, fast) in pairwise(points):
        if fast <= overhead:
            return Least(low + (high - low) * (slow - overhead) / (slow - fast))
    return None


def budget_of(part: dict[str, Any], method: str) -> float | None:
    """The largest budget at which a method was tried and has a schedule."""
    return max((x for x, _ in points_of(part, method)), default=None)


def as_percent(value: float | None) -> str:
    """With its sign; a dash for None."""
    return "–" if value is None else f"{100 * value:+.1f} %"


def as_gib(value: Least | None, *, beyond: float | None = None) -> str:
    """To a tenth; a dash for None, or that it is more than ``beyond``."""
    if value is None:
        return "–" if beyond is None else f"more than {beyond / GIB:g}"
    return f"{'≤ ' if value.at_most else ''}{value.budget_bytes / GIB:.1f}"
