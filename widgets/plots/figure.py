"""The widget that shows a plotly figure, and the layout all plots share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from explorer.harmless import in_figure
from widgets import style
from widgets.scene.packed import packed_json

Trace = dict[str, Any]
"""A trace by plotly's own names for its attributes; one of ``scatter``, ``bar`` or ``heatmap``."""


@dataclass(frozen=True)
class Figure:
    """What plotly draws, as plain values.

    plotly's own ``go.Figure`` checks every attribute each time: most of what a redraw would cost the notebook's kernel.
    The tests have it check each kind of figure once instead.

    Attributes:
        data: the traces.
        layout: by plotly's names.
        narrow: what the layout has instead where the page is too narrow for plots side by side.
    """

    data: Sequence[Trace]
    layout: dict[str, Any]
    narrow: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """As plotly's script reads it."""
        figure = {"data": list(self.data), "layout": self.layout, "narrow": self.narrow}
        return packed_json(figure)

    def to_dict(self) -> dict[str, Any]:
        """What ``go.Figure`` takes."""
        return {"data": list(self.data), "layout": self.layout}


def scatter(**attributes: Any) -> Trace:
    """Points or a line."""
    return {"type": "scatter", **attributes}


def bar(**attributes: Any) -> Trace:
    """Bars."""
    return {"type": "bar", **attributes}


def heatmap(**attributes: Any) -> Trace:
    """Cells."""
    return {"type": "heatmap", **attributes}


def base_layout(height: int, description: str) -> dict[str, Any]:
    """Transparent, small type, no more furniture than needed; ``description`` is for those who cannot see it."""
    return {
        "height": height,
        "autosize": True,
        "meta": description,
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "template": "none",
        "font": {"size": 11, "color": style.TEXT},
        "hoverlabel": {"bgcolor": "#ffffff", "font": {"color": "#222222", "size": 12}, "align": "left"},
        "margin": {"l": 56, "r": 12, "t": 28, "b": 40},
        "modebar": {"bgcolor": "rgba(0, 0, 0, 0)", "color": style.TEXT, "activecolor": style.BLUE},
        # The reader's zoom outlives a new figure; those of other axes in one plot say so here.
        "uirevision": "kept",
    }


def short_path(layer: str, *, most: int) -> str:
    """The end of a module path, for an axis: about as many characters as there is room for.

    A number never stands without the name before it.
    """
    parts = layer.split(".")
    kept = len(parts)
    while kept > 1 and len(".".join(parts[-kept:])) > most:
        kept -= 1
    while kept < len(parts) and parts[-kept][:1].isdigit():
        kept += 1
    end = in_figure(".".join(parts[-kept:]))
    return end if kept == len(parts) else f"…{end}"


def subtitle(text: str, *, x: float, y: float = 1.0) -> dict[str, Any]:
    """A title above one of several plots; places as fractions of the figure."""
    place = {"x": x, "xref": "paper", "y": y, "yref": "paper", "xanchor": "center", "yanchor": "bottom"}
    return {"text": text, "showarrow": False, "font": {"size": 13}, **place}


def columns(shares: Sequence[float], *, gap: float) -> list[tuple[float, float]]:
    """Start and end of plots side by side, as fractions of the figure's width.

    Args:
        shares: of the width that is left without the gaps.
        gap: between two plots.
    """
    ends = np.cumsum(shares) / sum(shares) * (1 - gap * (len(shares) - 1)) + gap * np.arange(len(shares))
    starts = [0.0, *(ends[:-1] + gap)]
    return [(float(start), float(end)) for start, end in zip(starts, ends, strict=True)]


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with faint lines."""
    grid = {"gridcolor": style.FAINT, "linecolor": style.TEXT, "zeroline": False, "tickcolor": style.TEXT}
    return {
        "title": {"text": title, "standoff": 6},
        "showline": True,
        "ticks": "outside",
        "exponentformat": "none",
        **grid,
        **more,
    }
