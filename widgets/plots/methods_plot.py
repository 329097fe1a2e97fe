"""Overhead against budget, a line for each method: Checkmate's Figure 4 and MONeT's Figure 3."""

from __future__ import annotations

from itertools import product

import plotly.graph_objects as go

from explorer.harmless import in_figure
from explorer.solvers.methods.comparison import Comparison, Curve
from widgets import style
from widgets.plots.shown import ShownFigure

_COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY, style.TEXT)
_DASHES = ("solid", "dash", "dot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
_HEADROOM = 1.15


def comparison_figure(comparison: Comparison, *, most_overhead: float | None = None) -> go.Figure:
    """Overheads of every method that has a schedule for some budget.

    Args:
        comparison: from ``explorer.trade_off(profile, methods=…)``.
        most_overhead: top of the axis, 0.5 for 50 %; what the methods need if not given.

    Returns:
        A figure: budget, in the unit of the peak without recomputation, against extra time in per cent.
    """
    figure = ShownFigure()
    unit = style.unit_of(comparison.plain_bytes)
    looks = product(_DASHES, _COLOURS)
    highest = 0.0
    for number, (curve, (dash, colour)) in enumerate(zip(comparison.curves, looks, strict=False)):
        points = _points(comparison, curve)
        if not points:
            continue
        highest = max(highest, *(overhead for _, overhead in points))
        figure.add_scatter(
            x=[budget / style.UNITS[unit] for budget, _ in points],
            y=[overhead for _, overhead in points],
            name=curve.title,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": 2},
            marker={"symbol": _SYMBOLS[number % len(_SYMBOLS)], "size": 7, "color": colour},
            hovertemplate=f"%{{x:.4~r}} {unit}, %{{y:+.1f}} %<extra>" + curve.title + "</extra>",
        )
    top = 100 * most_overhead if most_overhead is not None else max(1.0, _HEADROOM * highest)
    figure.add_vline(
        x=comparison.plain_bytes / style.UNITS[unit],
        line={"color": style.TEXT, "dash": "dot", "width": 1},
        annotation={"text": "no recomputation", "font": {"color": style.TEXT}},
    )
    figure.update_layout(
        title=in_figure(f"{comparison.profile.graph.model}, {comparison.profile.device.label}"),
        xaxis={"title": f"budget, {unit}"},
        yaxis={"title": "extra time, %", "range": [min(0.0, _lowest(comparison)) - 0.03 * top, top]},
        template="plotly_white",
        margin={"l": 60, "r": 10, "t": 50, "b": 50},
    )
    return figure


def _points(comparison: Comparison, curve: Curve) -> list[tuple[int, float]]:
    """(budget, overhead in per cent) wherever there is a schedule."""
    found = ((x.budget_bytes, comparison.overhead(x)) for x in curve.solutions)
    return [(budget, 100 * overhead) for budget, overhead in found if overhead is not None]


def _lowest(comparison: Comparison) -> float:
    return min((y for curve in comparison.curves for _, y in _points(comparison, curve)), default=0.0)
