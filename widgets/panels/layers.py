"""The per-layer panel (MONeT's Figure 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.figures import Plot
from widgets.layers_plot import layers_figure
from widgets.panel import Scene

if TYPE_CHECKING:
    from widgets.explorer import Explorer


class LayersPanel:
    """What each layer saves and costs; a click selects it."""

    name = "layers"
    title = "Memory saved and time added per layer"
    draws_from = ("profile", "keep_all", "timeline", "selection")

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self.plot = self.box = Plot("layers", on_pick=explorer.select)

    def show(self, scene: Scene) -> None:
        """Draw the bars of the schedule shown."""
        self.plot.draw(layers_figure(scene.profile, scene.keep_all, scene.drawn, selection=scene.selection))
