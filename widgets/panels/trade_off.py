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
    """Every budget's price; a click on a point chooses its budget; the list adds and removes others."""

    name = "trade_off"
    title = "Extra time against memory"
    draws_from = ("known",)

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self._explorer = explorer
        self.plot = Plot("trade_off", on_pick=lambda budget: explorer.set_trait("budget_bytes", budget))
        self.others = ipywidgets.Dropdown(
            description="Compare with",
            options=self._options(),
            tooltip="Add the curve of another method or choice of implementations",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="300px"),
        )
        self.others.observe(self._choose, "value")
        self.box = ipywidgets.VBox([self.plot, self.others])

    def show(self, scene: Scene) -> None:
        """Draw all that is known."""
        self.plot.draw(trade_off_figure(scene.known))
        if self._options() != self.others.options:
            self.others.options = self._options()

    def _options(self) -> tuple[tuple[str, str], ...]:
        """Each curve has its place whatever is shown: the page sends the place, perhaps of a list it saw before."""
        curves = self._explorer.curves
        first = ("another curve" if curves else "nothing else", "")
        titles = ((f"remove {x.title}" if name in curves else x.title, name) for name, x in known_curves().items())
        return (first, *titles, *([("remove all", _REMOVE)] if curves else []))

    def _choose(self, change: Any) -> None:
        curves, name = self._explorer.curves, change["new"]
        if name == _REMOVE:
            self._explorer.curves = []
        elif name:
            self._explorer.curves = [x for x in curves if x != name] if name in curves else [*curves, name]
