"""The widget that shows plotly figures, and the layout all plots share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import plotly.graph_objects as go
import plotly.offline
import traitlets

from widgets import style


def _script() -> str:
    """Plotly's own script as the body of a function, then ours."""
    ours = Path(__file__).with_name("frontend") / "plots.js"
    library = f"function definePlotly(module, exports) {{\n{plotly.offline.get_plotlyjs()}\n}}"
    return f"{library}\n{ours.read_text(encoding='utf-8')}"


class Plots(anywidget.AnyWidget):
    """Both figures of an explorer, each sent whole whenever it changes.

    plotly's FigureWidget sends differences instead, and loses them (an empty plot, or one 700 pixels wide) when they
    arrive while the page still draws the figure for the first time; here the state is the figure, at any time.
    """

    _esm = _script()
    timeline = traitlets.Unicode().tag(sync=True)
    overview = traitlets.Unicode().tag(sync=True)

    def show(self, *, timeline: go.Figure | None = None, overview: go.Figure | None = None) -> None:
        """Replace a figure, or both, in one message."""
        with self.hold_sync():
            if timeline is not None:
                self.timeline = _json(timeline)
            if overview is not None:
                self.overview = _json(overview)


def _json(figure: go.Figure) -> str:
    text = figure.to_json()
    assert text is not None, "plotly's to_json always returns text"
    return text


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
