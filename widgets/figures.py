"""The widget that shows a plotly figure, and the layout all plots share."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import plotly.offline
import traitlets

from widgets import style

_FRONTEND = Path(__file__).with_name("frontend")


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
    """

    data: Sequence[Trace]
    layout: dict[str, Any]

    def to_json(self) -> str:
        """As plotly's script reads it."""
        return json.dumps({"data": list(self.data), "layout": self.layout}, default=_packed, separators=(",", ":"))

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


def _packed(array: Any) -> Any:
    """An array as plotly's script takes it without parsing numbers."""
    if isinstance(array, np.integer):
        return int(array)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise TypeError(f"a figure holds {type(array).__name__}, which is not for the page")
    # There are no 64-bit integers in a page's arrays; of fractions no screen shows more than half of the digits.
    kept = array if array.itemsize == 1 else array.astype(np.float32 if array.dtype.kind == "f" else np.float64)
    kept = np.ascontiguousarray(kept.view(np.uint8) if kept.dtype == bool else kept)
    packed = {"dtype": kept.dtype.str[1:], "bdata": base64.b64encode(kept.tobytes()).decode()}
    return packed if kept.ndim == 1 else packed | {"shape": ", ".join(map(str, kept.shape))}


# Read as text: given a path, anywidget keeps a watcher per class that outlives the widgets.
def frontend(name: str) -> str:
    """A file that runs in the page."""
    return (_FRONTEND / name).read_text(encoding="utf-8")


@cache
def _module() -> bytes:
    """Plotly's own script as an ECMAScript module, compressed: five megabytes become less than two."""
    script = plotly.offline.get_plotlyjs()
    module = f"const module = {{ exports: {{}} }};\n{script}\nexport default module.exports.Plotly ?? module.exports;\n"
    return gzip.compress(module.encode(), compresslevel=1, mtime=0)


class Library(anywidget.AnyWidget):
    """Brings plotly's script to the page, once for all plots of an explorer."""

    _esm = frontend("library.js")
    source = traitlets.Bytes().tag(sync=True)

    def __init__(self) -> None:
        """With the script."""
        super().__init__(source=_module())


class Plot(anywidget.AnyWidget):
    """A figure, sent whole whenever it changes.

    plotly's FigureWidget sends differences instead, and loses them (an empty plot, or one 700 pixels wide) when they
    arrive while the page still draws the figure for the first time; here the state is the figure, at any time. Needs a
    ``Library`` on the same page.

    Args:
        name: becomes part of the class of its element.
        on_pick: called with the ``customdata`` of a point that is clicked.
    """

    _esm = frontend("plot.js")
    name = traitlets.Unicode().tag(sync=True)
    figure = traitlets.Unicode().tag(sync=True)

    def __init__(self, name: str, *, on_pick: Callable[[Any], None] | None = None, **more: Any) -> None:
        """Empty until something is drawn."""
        super().__init__(name=name, **more)
        if on_pick is not None:
            self.on_msg(lambda _, content, __: on_pick(content["picked"]))

    def draw(self, figure: Figure) -> None:
        """Show a figure in place of the one before."""
        self.figure = figure.to_json()


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
        # The reader's zoom outlives a new figure.
        "uirevision": "kept",
    }


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
