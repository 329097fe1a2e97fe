"""What a sweep says: which device for a model, and the largest batch by device."""

from __future__ import annotations

from itertools import cycle

import plotly.graph_objects as go

from explorer.harmless import in_figure
from explorer.solvers.methods.table import METHODS
from explorer.sweeping.answers import fastest, largest
from explorer.sweeping.table import Row, Sweep
from explorer.units import format_bytes, shown
from widgets import style
from widgets.plots.shown import ShownFigure

_COLOURS = (style.BLUE, style.VERMILLION, style.GREEN, style.ORANGE, style.PURPLE, style.SKY)


def devices_figure(sweep: Sweep, model: str) -> go.Figure:
    """Which device for a model: samples a second on each, with the best batch, budget and method that fit it.

    Args:
        sweep: from ``explorer.sweep`` or ``explorer.load_sweep``.
        model: one of its models.

    Raises:
        ValueError: the sweep has no such model.
    """
    models = list(dict.fromkeys(x.model for x in sweep.rows))
    if model not in models:
        raise ValueError(f"the sweep has no model {shown(model)}; it has {', '.join(map(repr, models))}")
    found = fastest(sweep)
    devices = dict.fromkeys(x.device for x in sweep.rows if x.model == model)
    rows = {x: found.get((model, x)) for x in devices}
    in_order = sorted(rows, key=lambda x: _speed(rows[x]))
    figure = ShownFigure()
    figure.add_bar(
        x=[_speed(rows[x]) for x in in_order],
        y=[in_figure(x) for x in in_order],
        orientation="h",
        marker={"color": style.BLUE},
        text=[_said(rows[x]) for x in in_order],
        textposition="auto",
        hovertemplate="%{y}: %{x:.4~r} samples/s<br>%{text}<extra></extra>",
    )
    _dress(figure, f"{model}: which device", x="samples a second", y="")
    return figure


def batches_figure(sweep: Sweep) -> go.Figure:
    """The largest batch of each model that has a schedule which fits the device, by device."""
    found = largest(sweep)
    devices = list(dict.fromkeys(x.device for x in sweep.rows))
    figure = ShownFigure()
    for model, colour in zip(dict.fromkeys(x.model for x in sweep.rows), cycle(_COLOURS), strict=False):
        rows = [found.get((model, x)) for x in devices]
        figure.add_bar(
            x=[in_figure(x) for x in devices],
            y=[0 if x is None else x.samples for x in rows],
            name=in_figure(model),
            marker={"color": colour},
            text=[_said(x) for x in rows],
            textposition="none",
            hovertemplate="%{x}: batch %{y}<br>%{text}<extra>" + in_figure(model) + "</extra>",
        )
    _dress(figure, "Largest batch by device", x="", y="samples")
    return figure


def _speed(row: Row | None) -> float:
    return 0.0 if row is None else row.samples_per_s or 0.0


def _said(row: Row | None) -> str:
    """How that is reached."""
    if row is None:
        return "nothing fits"
    return in_figure(f"batch {row.samples}, {METHODS[row.method].title}, {format_bytes(row.peak_bytes or 0)}")


def _dress(figure: go.Figure, title: str, *, x: str, y: str) -> None:
    figure.update_layout(
        title=in_figure(title),
        xaxis={"title": x},
        yaxis={"title": y},
        template="plotly_white",
        margin={"l": 110, "r": 10, "t": 50, "b": 50},
    )
