"""The widget that shows a plotly figure, and the one that brings plotly to the page."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import anywidget
import plotly.offline
import traitlets

from widgets.elements.frontend_file import widget_script
from widgets.plots.figure import Figure


@cache
def _module() -> bytes:
    """Plotly's own script as an ECMAScript module, compressed: five megabytes become less than two."""
    script = plotly.offline.get_plotlyjs()
    module = f"const module = {{ exports: {{}} }};\n{script}\nexport default module.exports.Plotly ?? module.exports;\n"
    return gzip.compress(module.encode(), compresslevel=1, mtime=0)


class Library(anywidget.AnyWidget):
    """Brings plotly's script to the page, once for all plots of an explorer."""

    _esm = widget_script("library.js")
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
        on_drag: called when the figure's shape called ``handle`` was dragged, with how far up, in units of the axis;
            with 0 where it was only clicked.
        follows: name of an event of the page that brings a figure to show for as long as a hand moves the budget.
    """

    _esm = widget_script("points.js", "cells.js", "plot.js")
    name = traitlets.Unicode().tag(sync=True)
    figure = traitlets.Unicode().tag(sync=True)
    follows = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        name: str,
        *,
        follows: str = "",
        on_pick: Callable[[Any], None] | None = None,
        on_drag: Callable[[float], None] | None = None,
    ) -> None:
        """Empty until something is drawn."""
        super().__init__(name=name, follows=follows)
        heard = {"picked": on_pick, "dragged": on_drag and partial(self._dragged, on_drag)}
        for key, handler in heard.items():
            if handler is not None:
                self.on_msg(lambda _, content, __, key=key, handler=handler: key in content and handler(content[key]))

    def _dragged(self, on_drag: Callable[[float], None], by: float) -> None:
        try:
            on_drag(by)
        finally:
            self.send({"answered": True})  # after the figure, if there is another

    def draw(self, figure: Figure) -> None:
        """Show a figure in place of the one before."""
        self.figure = figure.to_json()
