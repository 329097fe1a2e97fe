"""What memory is worth at a budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from explorer.arguments import several
from explorer.solution import Solution
from explorer.units import amount_of_bytes, shown

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class MemoryPrice:
    """What memory is worth at a budget, in ms of step time for a GiB of it.

    Attributes:
        budget_bytes: where.
        more_ms_per_gib: what another GiB would save, at the rate of the next better schedules; 0 where nothing is to be
            gained.
        less_ms_per_gib: what a GiB less would cost, at the rate of the next smaller schedules; None where there are
            none.
    """

    budget_bytes: int
    more_ms_per_gib: float
    less_ms_per_gib: float | None


def memory_price(curve: Iterable[Solution], budget_bytes: int | str) -> MemoryPrice:
    """What memory is worth at a budget: the slopes, to both sides, of the lower convex hull of a trade-off curve.

    The shortest time for a budget is a staircase: nearly everywhere one byte more changes nothing, so its derivative
    says nothing. The hull of all points leaves out what lies above a line between two others, and its slope is the
    rate at which memory buys time over the stretch between two schedules worth having; it falls as the budget grows.
    (The dual variable of the budget in the linear relaxation is a price too, but of fractions of tensors; what is
    given here can be had, by the two schedules at the ends of the stretch.)

    Args:
        curve: solutions with schedules, as of ``trade_off``, in any order.
        budget_bytes: peak allowed: int bytes, or such as ``"8 GiB"``.

    Raises:
        ValueError: there is no solution with a schedule among them, or the budget is none.
    """
    budget_bytes = amount_of_bytes(budget_bytes, name="budget")
    known = several(curve, "curve", such_as="what explorer.trade_off(profile) returns")
    if others := [x for x in known if not isinstance(x, Solution)]:
        raise ValueError(f"curve has {shown(others[0])}; explorer.trade_off(profile) makes one of solutions")
    points = sorted({(x.peak_bytes, x.time_ms) for x in known if x.peak_bytes is not None and x.time_ms is not None})
    if not points:
        raise ValueError("the curve has no schedules; trade_off makes one")
    hull = _hull(points)
    rates = [(low, high, (slow - quick) / (high - low) * _GIB) for (low, slow), (high, quick) in pairwise(hull)]
    more = next((rate for _, high, rate in rates if budget_bytes < high), 0.0)
    less = next((rate for low, _, rate in reversed(rates) if budget_bytes > low), None)
    return MemoryPrice(budget_bytes, more, less)


def _hull(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The lower convex hull of points in increasing order, up to the quickest of them."""
    quickest = min(range(len(points)), key=lambda n: (points[n][1], points[n][0]))
    hull: list[tuple[int, float]] = []
    for x, y in points[: quickest + 1]:
        if hull and hull[-1][0] == x:
            continue
        while len(hull) > 1:
            (a, b), (c, d) = hull[-2:]
            if (d - b) * (x - a) < (y - b) * (c - a):
                break
            hull.pop()
        hull.append((x, y))
    return hull
