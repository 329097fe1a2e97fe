"""The plots of a scene, as its panels draw them while nothing is clicked in them."""

from __future__ import annotations

from widgets.panels.implementations import ImplementationsPanel
from widgets.panels.layers import LayersPanel
from widgets.panels.matrix import MatrixPanel
from widgets.panels.solver import SolverPanel
from widgets.panels.timeline import TimelinePanel
from widgets.panels.trade_off import TradeOffPanel
from widgets.plots.figure import Figure
from widgets.scene.scene import Scene

_PANELS = (TimelinePanel, TradeOffPanel, LayersPanel, MatrixPanel, ImplementationsPanel, SolverPanel)  # in this order


def figures(scene: Scene) -> dict[str, Figure]:
    """Every plot that a scene alone makes, by the name of its panel."""
    drawn = {panel.name: panel.figure(scene) for panel in _PANELS}
    return {name: figure for name, figure in drawn.items() if figure is not None}
