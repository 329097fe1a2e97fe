"""The per-layer panel (MONeT's Figure 5)."""

from __future__ import annotations

from widgets.elements.plot import Plot
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.layers_plot import layers_figure
from widgets.scene.scene import Scene


class LayersPanel:
    """What each layer saves and costs; a click selects it."""

    name = "layers"
    title = "Memory saved and time added per layer"
    draws_from = ("profile", "keep_all", "timeline", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self.plot = self.box = Plot("layers", on_pick=owner.select)

    def show(self, scene: Scene) -> None:
        """Draw the bars of the schedule shown."""
        self.plot.draw(self.figure(scene))

    @staticmethod
    def figure(scene: Scene) -> Figure:
        """The bars of the schedule shown."""
        return layers_figure(scene.profile, scene.keep_all, scene.drawn, selection=scene.selection)
