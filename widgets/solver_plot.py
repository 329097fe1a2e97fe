"""How a solve went: the best schedule and the bounds below it, and the gap between them, over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from widgets import style
from widgets.figures import axis, base_layout
from widgets.panel import News

_TITLES = ("Step time of the best schedule, and what no schedule beats (ms)", "Gap between them (%)")


def solver_figure(news: Sequence[News]) -> go.Figure:
    """Incumbent, bounds and gap; a line is as long as the solve.

    Args:
        news: of one solve, oldest first.
    """
    figure = make_subplots(rows=1, cols=2, column_widths=[0.6, 0.4], horizontal_spacing=0.08, subplot_titles=_TITLES)
    for trace in _traces(news):
        figure.add_trace(trace, row=1, col=1)
    for trace in _gaps(news):
        figure.add_trace(trace, row=1, col=2)
    figure.update_annotations(font={"size": 13})
    figure.update_layout(
        **base_layout(290, "; ".join(_TITLES)),
        hovermode="x",
        legend={"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top"},
    )
    figure.update_xaxes(**axis("time since asked (s)", rangemode="tozero"))
    figure.update_yaxes(**axis(""), col=1)
    figure.update_yaxes(**axis("", rangemode="tozero"), col=2)
    return figure


def _traces(news: Sequence[News]) -> Iterator[go.Scatter]:
    looks: tuple[tuple[str, Callable[[News], float | None], dict], ...] = (
        ("best schedule", lambda x: x.time_ms, {"color": style.VERMILLION, "width": 2}),
        ("bound for all schedules", lambda x: x.bound_ms, {"color": style.GREEN, "width": 2, "dash": "dash"}),
        ("bound for the grouping", lambda x: x.grouping_ms, {"color": style.PURPLE, "width": 2, "dash": "dot"}),
    )
    for name, value, line in looks:
        known = [(x.elapsed_s, found) for x in news if (found := value(x)) is not None]
        yield _line(name, known, line, "%{y:,.1f} ms")


def _gaps(news: Sequence[News]) -> Iterator[go.Scatter]:
    known = [
        (x.elapsed_s, 100 * max(0.0, 1 - x.bound_ms / x.time_ms)) for x in news if x.time_ms and x.bound_ms is not None
    ]
    yield _line("gap", known, {"color": style.BLUE, "width": 2}, "%{y:.2f} %")


def _line(name: str, known: Sequence[tuple[float, float]], line: dict, hover: str) -> go.Scatter:
    return go.Scatter(
        name=name,
        x=[x for x, _ in known],
        y=[y for _, y in known],
        mode="lines+markers",
        line=line | {"shape": "hv"},
        marker={"size": 5},
        hovertemplate=f"{name} {hover}<extra></extra>",
        cliponaxis=False,
    )
