"""Workspace against time of a convolution's implementations (MONeT's Figure 7)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from explorer.harmless import in_figure
from explorer.units import format_bytes
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, columns, scatter, subtitle
from widgets.scene.convolutions import Part, PartImplementation, plain_name

_MIB = 2**20
_LINE = 16  # characters that fit beside a point
_NEAR_X, _NEAR_Y = 0.45, 0.09  # of the longest of each axis: room for a name


def convolution_figure(layer: str, ways: Sequence[PartImplementation]) -> Figure:
    """A plot for each part, chosen implementations marked by a filled diamond.

    Args:
        layer: for the title.
        ways: of its convolutions.
    """
    again = any(way.runs for way in ways if way.part is Part.RECOMPUTE)
    there = {way.part for way in ways}
    notes = {part: "" if part in there else " (none)" for part in Part}
    if not again:
        notes[Part.RECOMPUTE] = " (not recomputed)"
    titles = [part.value + notes[part] for part in Part]
    titles[0] = f"{in_figure(layer)}: {titles[0]}"
    places = columns([1.0] * len(Part), gap=0.05)
    traces: list[Trace] = []
    axes: dict[str, dict] = {}
    for number, (part, place) in enumerate(zip(Part, places, strict=True)):
        of_part = [way for way in ways if way.part is part]
        which = str(number + 1) if number else ""
        # Said outright: plotly finds no range of its own where there is nothing to draw.
        widest = max((way.workspace_bytes / _MIB for way in of_part), default=0.0) or 1.0
        longest = max((way.time_ms for way in of_part), default=0.0) or 1.0
        drawn = _traces(of_part, _labels(of_part, widest, longest), widest=widest, legend=number == 0)
        traces += (x | {"xaxis": f"x{which}", "yaxis": f"y{which}"} for x in drawn)
        workspace, time = [-0.06 * widest, 1.2 * widest], [0, 1.2 * longest]
        # Another layer's points may lie outside what the reader has zoomed to.
        axes[f"xaxis{which}"] = axis(
            "workspace (MiB)", range=workspace, domain=place, anchor=f"y{which}", uirevision=layer
        )
        axes[f"yaxis{which}"] = axis("" if number else "time (ms)", range=time, anchor=f"x{which}", uirevision=layer)
    layout = dict(
        **base_layout(290, f"Workspace against time of the implementations of {layer}"),
        annotations=[subtitle(title, x=sum(place) / 2) for title, place in zip(titles, places, strict=True)],
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top"},
        **axes,
    )
    return Figure(traces, layout)


def _labels(ways: Sequence[PartImplementation], widest: float, longest: float) -> dict[PartImplementation, str]:
    """A name beside each point; points too close for that share one, at the chosen, and the others have none."""
    found: dict[PartImplementation, list[str]] = {}
    for way in sorted(ways, key=lambda x: x.runs == 0):
        near = (
            x
            for x in found
            if abs(x.workspace_bytes - way.workspace_bytes) / _MIB < _NEAR_X * widest
            and abs(x.time_ms - way.time_ms) < _NEAR_Y * longest
        )
        found.setdefault(next(near, way), []).append(plain_name(way))
    return {way: ", ".join(dict.fromkeys(names)) for way, names in found.items()}


def _traces(
    ways: Sequence[PartImplementation], labels: dict[PartImplementation, str], *, widest: float, legend: bool
) -> Iterator[Trace]:
    """Unchosen, chosen; both are always listed, so that the legend is the same for every layer."""
    groups = (
        (
            "to be had",
            [x for x in ways if not x.runs],
            {"symbol": "circle-open", "size": 9, "color": style.BLUE, "line": {"width": 2}},
        ),
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
        yield scatter(
            name=name,
            legendgroup=name,
            showlegend=legend,
            x=[x.workspace_bytes / _MIB for x in members],
            y=[x.time_ms for x in members],
            # Else plotly mistakes one for another where the number of empty names changes, and drops some.
            ids=[f"{x.operator} {x.implementation}" for x in members],
            text=["<br>".join(map(in_figure, wrap(labels.get(x, ""), _LINE))) for x in members],
            # Towards where there is room.
            textposition=["middle right" if x.workspace_bytes / _MIB < widest / 2 else "middle left" for x in members],
            textfont={"size": 10},
            mode="markers+text",
            marker=marker,
            hovertext=[_hover(x) for x in members],
            hovertemplate="%{hovertext}<extra></extra>",
            cliponaxis=False,
        )


def _hover(way: PartImplementation) -> str:
    lines = [f"<b>{in_figure(way.implementation)}</b>"]
    if way.both:
        lines.append("gradients of weight and input at once")
    lines.append(f"{style.format_ms(way.time_ms)}, workspace {format_bytes(way.workspace_bytes)}")
    if way.runs:
        lines.append(f"chosen for {way.runs} run{'s' if way.runs > 1 else ''}")
    return "<br>".join(lines)
