"""The trade-off panel: overhead against memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.figures import Plot
from widgets.panel import Scene
from widgets.trade_off_plot import trade_off_figure

if TYPE_CHECKING:
    from widgets.explorer import Explorer


class TradeOffPanel:
    """Every budget's price; a click on a point chooses its budget."""

    name = "trade_off"
    title = "Extra time against memory"

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self.plot = self.box = Plot("trade_off", on_pick=lambda budget: explorer.set_trait("budget_bytes", budget))

    def show(self, scene: Scene) -> None:
        """Draw all that is known."""
        self.plot.draw(trade_off_figure(scene.known))
