"""Where each tensor lies: runs to the right, addresses upwards, a rectangle each; and which operators moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from explorer.graph import TrainingGraph
from explorer.harmless import in_figure
from explorer.schedule import Schedule
from explorer.timeline import CATEGORIES, Category
from explorer.units import format_bytes
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, bar, base_layout, scatter, short_path
from widgets.scene.addresses import AddressMap, Rectangle
from widgets.scene.layers import NO_MODULE

MOST_DRAWN = 1500
"""Rectangles drawn; more are too thin to be seen, and slow."""
_THIN = 200
"""Of a rectangle less high than such a part of the buffer, an edge would be all that is seen."""
_NAMED = 32  # characters
_HEIGHT, _WIDTH = 420, 900  # pixels
_LEGEND_BELOW = {"height": _HEIGHT + 80, "legend": {"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"}}
"""Where there is little room: beside a plot it would take most of the width."""
_MIB = 2**20
_DARK = (Category.ACTIVATION_GRADIENTS, Category.BUFFERS)
"""Black would be hard to read on them."""


def unit_of(amount_bytes: int) -> tuple[int, str]:
    """Bytes of the unit in which an axis up to this amount has readable numbers, and its name."""
    return (style.GIB, "GiB") if amount_bytes >= style.GIB else (_MIB, "MiB")


def addresses_figure(
    found: AddressMap, *, view: str = "", selected_layers: frozenset[str] = frozenset(), chosen: int | None = None
) -> Figure:
    """A map of a buffer; each rectangle's ``customdata`` is its block and its layer.

    Args:
        found: what to draw; of very many the largest.
        view: of whose axes a reader's zoom is, where one plot shows several.
        selected_layers: whose rectangles have an outline.
        chosen: the block that can be dragged.
    """
    unit, name = unit_of(found.buffer_bytes)
    drawn = sorted(found.rectangles, key=lambda x: -x.bytes * (x.last + 1 - x.first))[:MOST_DRAWN]
    # The legend has the looks of the first.
    drawn.sort(key=lambda x: x.layer in selected_layers)
    traces = [
        _rectangles([x for x in drawn if x.category is category], category, unit, selected_layers, of=found)
        for category in CATEGORIES
    ]
    traces.append(_collisions(found, unit))
    traces += [_line("load", found.load_bytes, found.runs, unit, style.VERMILLION, "dash")]
    whole, of = (found.reserved_bytes, "reserved") if found.reserved_bytes else (found.buffer_bytes, "buffer")
    if whole != found.load_bytes:
        traces.append(_line(of, whole, found.runs, unit, style.TEXT, "solid"))
    layout = dict(
        **_base("Address of every tensor", zoom=f"{view}, {found.runs} runs in {name}"),
        barmode="overlay",
        bargap=0,
        hovermode="closest",
        # A name stands where there is room for it.
        uniformtext={"minsize": 9, "mode": "hide"},
        legend={"itemwidth": 30, "maxheight": 1},
        shapes=[] if chosen is None else [_handle(found.of(chosen), unit)],
        xaxis=axis("run", range=[0, found.runs], showgrid=False),
        yaxis=axis(f"address ({name})", range=[0, 1.06 * max(whole, found.buffer_bytes, found.load_bytes) / unit]),
    )
    return Figure([x for x in traces if x["x"]], layout, _LEGEND_BELOW)


def _base(description: str, *, zoom: str) -> dict[str, Any]:
    """What the figures of this plot share.

    Args:
        description: for those who cannot see it.
        zoom: what it has in common with a later figure to which the reader's zoom is of use.
    """
    margin = {"l": 56, "r": 12, "t": 34, "b": 44}
    return base_layout(_HEIGHT, description) | {"margin": margin, "uirevision": zoom}


def _rectangles(
    found: Sequence[Rectangle],
    category: Category,
    unit: int,
    selected_layers: frozenset[str],
    *,
    of: AddressMap,
) -> Trace:
    outlined = [x.layer in selected_layers for x in found]
    return bar(
        name=category.value,
        orientation="h",
        base=[x.first for x in found],
        x=[x.last + 1 - x.first for x in found],
        y=[(x.offset_bytes + x.bytes / 2) / unit for x in found],
        width=[x.bytes / unit for x in found],
        text=[in_figure(x.name[:_NAMED]) for x in found],
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        constraintext="inside",
        customdata=[[x.block, x.layer] for x in found],
        hovertext=[_told(x) for x in found],
        hovertemplate="%{hovertext}<extra></extra>",
        insidetextfont={"color": "#ffffff" if category in _DARK else "#000000"},
        marker={
            "color": style.CATEGORY_COLOUR[category],
            "pattern": {"shape": style.CATEGORY_HATCH.get(category, ""), "size": 6, "fillmode": "overlay"},
            "line": {
                "width": [_outline(x, of, selected=y) for x, y in zip(found, outlined, strict=True)],
                "color": ["#000000" if x else "rgba(0, 0, 0, 0.35)" for x in outlined],
            },
        },
    )


def _outline(x: Rectangle, of: AddressMap, *, selected: bool) -> float:
    """Pixels; of what is thin, an edge would be all that is seen."""
    if not selected:
        return 0.5 if x.bytes * _THIN > of.buffer_bytes else 0.0
    thickness = min(x.bytes * _HEIGHT / of.buffer_bytes, (x.last + 1 - x.first) * _WIDTH / of.runs)
    return min(2.5, max(0.5, thickness / 4))


def _collisions(found: AddressMap, unit: int) -> Trace:
    """What two want at once."""
    runs = [(max(x.first, y.first), min(x.last, y.last) + 1) for x, y in found.collisions]
    addresses = [(max(x.offset_bytes, y.offset_bytes), min(x.end_bytes, y.end_bytes)) for x, y in found.collisions]
    return bar(
        name="collision",
        orientation="h",
        base=[first for first, _ in runs],
        x=[end - first for first, end in runs],
        y=[(low + high) / 2 / unit for low, high in addresses],
        width=[(high - low) / unit for low, high in addresses],
        hovertext=[f"{in_figure(x.name)} and {in_figure(y.name)}<br>want one address" for x, y in found.collisions],
        hovertemplate="%{hovertext}<extra></extra>",
        marker={
            "color": "#000000",
            "pattern": {"shape": "x", "size": 6, "fillmode": "overlay", "fgcolor": "#ffffff"},
            "line": {"width": 1.5, "color": style.VERMILLION},
        },
    )


def _told(x: Rectangle) -> str:
    """Everything of a rectangle."""
    lines = [f"<b>{in_figure(x.name)}</b>", in_figure(f"{x.shape} of {x.layer or NO_MODULE}".strip())]
    lines += [f"{x.category.value}, {format_bytes(x.bytes)} at {format_bytes(x.offset_bytes)}"]
    return "<br>".join([*lines, f"runs {x.first + 1} to {x.last + 1}"])


def _line(name: str, amount_bytes: int, runs: int, unit: int, colour: str, dash: str) -> Trace:
    return scatter(
        name=name,
        x=[0, runs],
        y=[amount_bytes / unit] * 2,
        mode="lines",
        line={"width": 2, "color": colour, "dash": dash},
        hovertemplate=f"{name} {format_bytes(amount_bytes)}<extra></extra>",
    )


def _handle(chosen: Sequence[Rectangle], unit: int) -> dict[str, object]:
    """What can be dragged: an outline around a block."""
    first = chosen[0]
    return {
        "name": "handle",
        "type": "rect",
        "x0": first.first,
        "x1": chosen[-1].last + 1,
        "y0": first.offset_bytes / unit,
        "y1": first.end_bytes / unit,
        "line": {"width": 3, "color": "#000000", "dash": "dot"},
        "fillcolor": "rgba(0, 0, 0, 0.12)",
    }


def order_figure(graph: TrainingGraph, schedule: Schedule, *, selected: frozenset[int] = frozenset()) -> Figure:
    """What moved where: each operator's place in the captured order, to the right, and in the schedule's, upwards.

    Args:
        graph: of the schedule.
        schedule: in an order of its own.
        selected: operators to mark.
    """
    order = [x for x in schedule.order if x < len(graph.operators)]
    captured = {x: at for at, x in enumerate(sorted(order))}
    now = {x: at for at, x in enumerate(order)}
    moved = schedule.moved(graph)
    traces = [
        scatter(
            name="as captured",
            x=[0, len(order)],
            y=[0, len(order)],
            mode="lines",
            line={"width": 1, "color": style.TEXT, "dash": "dot"},
            hoverinfo="skip",
        )
    ]
    for name, colour, symbol, sign in (
        ("earlier", style.BLUE, "triangle-down", -1),
        ("later", style.VERMILLION, "triangle-up", 1),
    ):
        these = [x for x in moved if np.sign(now[x] - captured[x]) == sign]
        places = [(captured[x], now[x]) for x in these]
        traces += [
            scatter(
                x=[y for at, _ in places for y in (at, at, None)],
                y=[y for at, to in places for y in (at, to, None)],
                mode="lines",
                line={"width": 1, "color": colour},
                hoverinfo="skip",
                showlegend=False,
            ),
            scatter(
                name=f"runs {name} ({len(these)})",
                x=[at for at, _ in places],
                y=[to for _, to in places],
                mode="markers",
                marker={
                    "symbol": symbol,
                    "size": [11 if x in selected else 7 for x in these],
                    "color": colour,
                    "line": {"width": [2 if x in selected else 0 for x in these], "color": "#000000"},
                },
                ids=[str(x) for x in these],
                customdata=[[None, graph.operators[x].layer] for x in these],
                hovertext=[_moved(graph, x, now[x] - captured[x]) for x in these],
                hovertemplate="%{hovertext}<extra></extra>",
            ),
        ]
    layout = dict(
        **_base(f"{len(moved)} operators in another place", zoom=f"order of {len(order)}"),
        hovermode="closest",
        xaxis=axis("place in the captured order", range=[0, len(order)]),
        yaxis=axis("place in this order", range=[0, len(order)]),
    )
    return Figure([x for x in traces if x["x"]], layout, _LEGEND_BELOW)


def _moved(graph: TrainingGraph, operator: int, by: int) -> str:
    found = graph.operators[operator]
    return "<br>".join(
        [
            f"<b>{in_figure(found.name)}</b>",
            in_figure(short_path(found.layer, most=60) if found.layer else NO_MODULE),
            f"{abs(by)} places {'later' if by > 0 else 'earlier'}",
        ]
    )
