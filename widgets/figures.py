"""The widget that shows a plotly figure, and the layout all plots share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import plotly.graph_objects as go
import plotly.offline
import traitlets

from widgets import style

_FRONTEND = Path(__file__).with_name("frontend")


# Read as text: given a path, anywidget keeps a watcher per class that outlives the widgets.
def frontend(name: str) -> str:
    """A file that runs in the page."""
    return (_FRONTEND / name).read_text(encoding="utf-8")


def _module() -> str:
    """Plotly's own script as an ECMAScript module."""
    script = plotly.offline.get_plotlyjs()
    return f"const module = {{ exports: {{}} }};\n{script}\nexport default module.exports.Plotly ?? module.exports;\n"


class Library(anywidget.AnyWidget):
    """Brings plotly's script to the page, once for all plots of an explorer: it weighs five megabytes."""

    _esm = frontend("library.js")
    source = traitlets.Unicode(_module()).tag(sync=True)


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

    def draw(self, figure: go.Figure) -> None:
        """Show a figure in place of the one before."""
        text = figure.to_json()
        assert text is not None, "plotly's to_json always returns text"
        self.figure = text


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
