"""The curve of budgets as plain numbers, for the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from explorer.solution import Solution
from widgets import style
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff

LOOKS = (
    (style.ORANGE, "6 4"),
    (style.GREEN, "2 3"),
    (style.PURPLE, "8 3 2 3"),
    (style.BLUE, "10 4"),
    (style.VERMILLION, "10 3 2 3"),
)
"""Colour and dash of other curves, in turn."""
OURS = "this explorer"
_STEEP = 0.06
"""Share of the range of budgets, at its lower end, that may cost more than the axis shows: it would hide the rest."""
_LEAST_PERCENT = 5.0


def key_of(solution: Solution) -> str:
    """What the page calls a schedule."""
    return f"{solution.peak_bytes}-{solution.time_ms}"


def curve_table(scene: Scene) -> dict[str, Any]:
    """Every curve as points of peak, extra time in per cent, budget and step time, with how each is drawn."""
    known = scene.known
    series = [_line(OURS, _points(known, known.best), style.BLUE, width=2.2, picks=True, symbol="circle")]
    for number, (title, solutions) in enumerate(known.others):
        colour, dash = LOOKS[number % len(LOOKS)]
        points = sorted(_points(known, solutions))
        series.append(_line(title, points, colour, width=1.6, dash=dash, symbol="cross"))
    plain = [(known.keep_all.peak_bytes, 0.0, known.keep_all.peak_bytes, known.keep_all.time_ms)]
    series.append(_line("plain PyTorch", plain, style.TEXT, picks=True, symbol="square"))
    current = known.current if known.current is not None and known.current.schedule is not None else None
    bound_ms = None if current is None else current.bound_ms()
    if current is not None and bound_ms is not None:
        peak = current.peak_bytes or current.budget_bytes
        proven = [(peak, known.overhead(bound_ms), current.budget_bytes, bound_ms)]
        series.append(_line("no schedule is quicker", proven, style.GREEN, symbol="triangle"))
    low, high = _reach(known, series)
    return {
        "series": series,
        "current": next(((p, t) for p, t, *_ in _points(known, [current] if current else [])), None),
        "budget": scene.budget_bytes,
        "smallest": known.best[0].peak_bytes if known.best else None,
        "top": scene.top_bytes,
        "unit": style.unit_of(known.keep_all.peak_bytes),
        "low": low,
        "high": high,
    }


def headline_table(scene: Scene) -> dict[str, Any]:
    """What is known for any budget, without its drawings: peak, time and key of each schedule, and the plain step's."""
    plain = scene.keep_all
    points = [[x.peak_bytes, x.time_ms, key_of(x)] for x in scene.known.best]
    unit = style.unit_of(plain.peak_bytes)
    whole = {"peak_bytes": plain.peak_bytes, "time_ms": plain.time_ms, "unit": unit}
    return {"points": points, "budget": scene.budget_bytes, **whole}


def _line(name: str, points: Sequence[tuple[float, ...]], colour: str, **look: Any) -> dict[str, Any]:
    named = bool(look.get("width")) or look["symbol"] == "square"
    return {"name": name, "points": [list(x) for x in points], "colour": colour, "named": named, **look}


def _points(known: TradeOff, solutions: Iterable[Solution]) -> list[tuple[int, float, int, float]]:
    """Of each schedule its peak, extra time, the budget that leads to it, and its time; the smallest peak first."""
    return [
        (x.peak_bytes, known.overhead(x.time_ms), x.peak_bytes, x.time_ms)
        for x in solutions
        if x.peak_bytes is not None and x.time_ms is not None
    ]


def _reach(known: TradeOff, series: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """The axis of extra time: all of it but the steep end."""
    points = [(peak, share) for line in series for peak, share, *_ in line["points"]]
    plain, smallest = known.keep_all.peak_bytes, min((peak for peak, _ in points), default=0)
    gentle = [share for peak, share in points if peak >= smallest + _STEEP * (plain - smallest)]
    now = known.current
    if now is not None and now.time_ms is not None:
        gentle.append(known.overhead(now.time_ms))
    high = max(_LEAST_PERCENT, *(1.12 * x for x in gentle)) if gentle else _LEAST_PERCENT
    low = min((share for _, share in points), default=0.0)
    return min(-0.02 * high, 1.12 * low), high
