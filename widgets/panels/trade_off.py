"""The trade-off panel: overhead against memory."""

from __future__ import annotations

from typing import Any

import ipywidgets

from widgets.choices.curves import known_curves
from widgets.elements.pictures import CurveView
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.trade_off_plot import trade_off_figure
from widgets.scene.curve import curve_table
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene

_REMOVE = "-"


class TradeOffPanel:
    """Every budget's price; a click on a point chooses its budget; the list adds and removes others."""

    name = "trade_off"
    title = "Extra time against memory"
    question = "What does each budget cost?"
    draws_from = ("known", "budget_bytes", "measurement", "reference", "timeline")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self._owner = owner
        self.plot = CurveView(on_budget=lambda budget: owner.set_trait("budget_bytes", budget))
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
        self.plot.known = packed_json(curve_table(scene))
        if self._options() != self.others.options:
            self.others.options = self._options()

    @staticmethod
    def figure(scene: Scene) -> Figure:
        """All that is known, for files."""
        return trade_off_figure(scene.known)

    def _options(self) -> tuple[tuple[str, str], ...]:
        """Each curve has its place whatever is shown: the page sends the place, perhaps of a list it saw before."""
        curves = self._owner.curves
        first = ("another curve" if curves else "nothing else", "")
        titles = ((f"remove {x.title}" if name in curves else x.title, name) for name, x in known_curves().items())
        return (first, *titles, *([("remove all", _REMOVE)] if curves else []))

    def _choose(self, change: Any) -> None:
        curves, name = self._owner.curves, change["new"]
        if name == _REMOVE:
            self._owner.set_trait("curves", [])
        elif name:
            without = [x for x in curves if x != name]
            self._owner.set_trait("curves", without if name in curves else [*curves, name])
