"""The one kind of plotly figure used here, and the layout all plots share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import plotly.graph_objects as go

from widgets import style


class Figure(go.FigureWidget):
    """A figure with fixed traces whose arrays are replaced.

    Each instance ships plotly's whole script, so an explorer has two of them, not one for each plot.
    """

    # As text: given a path, anywidget keeps every closed figure alive.
    _esm = str(go.FigureWidget._esm)

    @contextmanager
    def redraw(self) -> Iterator[None]:
        """Send all changes inside as one message, and keep them for a page that is reloaded."""
        with self.batch_update():
            yield
        # The synced state is written only here and at construction.
        self._repr_mimebundle_()


def base_layout(height: int) -> dict[str, Any]:
    """Transparent, small type, no more furniture than needed."""
    return {
        "height": height,
        "autosize": True,
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "font": {"size": 11, "color": style.TEXT},
        "hoverlabel": {"bgcolor": "#ffffff", "font": {"color": "#222222", "size": 12}, "align": "left"},
        "margin": {"l": 56, "r": 12, "t": 28, "b": 40},
        "uirevision": "fixed",
    }


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with faint lines."""
    grid = {"gridcolor": style.FAINT, "linecolor": style.TEXT, "zerolinecolor": style.FAINT}
    return {"title": {"text": title, "standoff": 6}, "showline": True, "ticks": "outside", **grid, **more}
