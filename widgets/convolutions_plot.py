"""Workspace against time of a convolution's implementations (MONeT's Figure 7)."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from explorer.units import format_bytes
from widgets import style
from widgets.convolutions import Part, Way, plain_name
from widgets.figures import axis, base_layout

_MIB = 2**20


def convolution_figure(layer: str, ways: Sequence[Way]) -> go.Figure:
    """A plot for each part, chosen implementations marked by a filled diamond.

    Args:
        layer: for the title.
        ways: of its convolutions.
    """
    again = any(way.runs for way in ways if way.part is Part.RECOMPUTE)
    titles = [part.value + ("" if again or part is not Part.RECOMPUTE else " (not recomputed)") for part in Part]
    figure = make_subplots(rows=1, cols=len(Part), subplot_titles=titles, horizontal_spacing=0.05)
    for column, part in enumerate(Part, start=1):
        of_part = [way for way in ways if way.part is part]
        for trace in _traces(of_part, legend=column == 1):
            figure.add_trace(trace, row=1, col=column)
        # Said outright: plotly finds no range of its own where there is nothing to draw.
        widest = max((way.workspace_bytes / _MIB for way in of_part), default=0.0) or 1.0
        longest = max((way.time_ms for way in of_part), default=0.0) or 1.0
        figure.update_xaxes(**axis("workspace (MiB)", range=[-0.06 * widest, 1.2 * widest]), col=column)
        figure.update_yaxes(**axis("time (ms)" if column == 1 else "", range=[0, 1.2 * longest]), col=column)
    figure.update_annotations(font={"size": 13})
    figure.update_layout(
        **base_layout(290, f"Workspace against time of the implementations of {layer}"),
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top"},
    )
    return figure


def _traces(ways: Sequence[Way], *, legend: bool) -> Iterator[go.Scatter]:
    """Unchosen, chosen; both are always listed, so that the legend is the same for every layer."""
    groups = (
        ("to be had", [x for x in ways if not x.runs], {"symbol": "circle-open", "size": 9, "color": style.BLUE}),
        (
            "chosen",
            [x for x in ways if x.runs],
            {
                "symbol": "diamond",
                "size": 13,
                "color": style.VERMILLION,
                "line": {"width": 1, "color": "#ffffff"},
            },
        ),
    )
    for name, members, marker in groups:
        yield go.Scatter(
            name=name,
            legendgroup=name,
            showlegend=legend,
            x=[x.workspace_bytes / _MIB for x in members],
            y=[x.time_ms for x in members],
            text=[html.escape(plain_name(x)) for x in members],
            textposition="top center",
            textfont={"size": 10},
            mode="markers+text",
            marker=marker,
            hovertext=[_hover(x) for x in members],
            hovertemplate="%{hovertext}<extra></extra>",
            cliponaxis=False,
        )


def _hover(way: Way) -> str:
    lines = [f"<b>{html.escape(way.implementation)}</b>"]
    if way.both:
        lines.append("gradients of weight and input at once")
    lines.append(f"{style.format_ms(way.time_ms)}, workspace {format_bytes(way.workspace_bytes)}")
    if way.runs:
        lines.append(f"chosen for {way.runs} run{'s' if way.runs > 1 else ''}")
    return "<br>".join(lines)
