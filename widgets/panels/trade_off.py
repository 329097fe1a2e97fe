"""The trade-off panel: overhead against memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets

from widgets.curves import known_curves
from widgets.figures import Plot
from widgets.panel import Scene
from widgets.trade_off_plot import trade_off_figure

if TYPE_CHECKING:
    from widgets.explorer import Explorer

_REMOVE = "-"


class TradeOffPanel:
    """Every budget's price; a click on a point chooses its budget, and the list adds the curves of other methods."""

    name = "trade_off"
    title = "Extra time against memory"
    draws_from = ("known",)

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self._explorer = explorer
        self.plot = Plot("trade_off", on_pick=lambda budget: explorer.set_trait("budget_bytes", budget))
        self.others = ipywidgets.Dropdown(
            description="Compare with",
            options=[("nothing else", ""), *((x.title, name) for name, x in known_curves().items())],
            tooltip="Add the curve of another method or choice of implementations",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="300px"),
        )
        self.others.observe(self._add, "value")
        self.box = ipywidgets.VBox([self.plot, self.others])

    def show(self, scene: Scene) -> None:
        """Draw all that is known."""
        self.plot.draw(trade_off_figure(scene.known))
        shown = [("remove all", _REMOVE)] if self._explorer.curves else []
        left = [(x.title, name) for name, x in known_curves().items() if name not in self._explorer.curves]
        options = [("nothing else" if not shown else "another curve", ""), *left, *shown]
        if tuple(options) != tuple(self.others.options):
            self.others.options = options

    def _add(self, change: Any) -> None:
        if change["new"] == _REMOVE:
            self._explorer.curves = []
        elif change["new"]:
            self._explorer.curves = [*self._explorer.curves, change["new"]]
