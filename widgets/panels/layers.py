"""The per-layer panel (MONeT's Figure 5)."""

from __future__ import annotations

from threading import RLock

import ipywidgets

from widgets.elements.pictures import MOVING_LAYERS
from widgets.elements.plot import Plot
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.layers_plot import layers_figure
from widgets.scene.blocks import blocks_of
from widgets.scene.layers import FEW, group_layers
from widgets.scene.scene import Scene


class LayersPanel:
    """What each layer saves and costs; a click selects it."""

    name = "layers"
    title = "Layers"
    question = "Which layers give their memory up, and what does each pay for it?"
    draws_from = ("profile", "keep_all", "timeline", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self.plot = Plot("layers", on_pick=owner.select, follows=MOVING_LAYERS)
        self.single = ipywidgets.Checkbox(
            description="Every block by itself", indent=False, layout=ipywidgets.Layout(display="none")
        )
        self.single.observe(lambda _: self._unfold(), "value")
        self.box = ipywidgets.VBox([self.plot, self.single])
        self._scene: Scene | None = None
        self._lock = RLock()  # answers are drawn in one thread, clicks come in another

    def show(self, scene: Scene) -> None:
        """Draw the bars of the schedule shown."""
        with self._lock:
            if self._scene is None or self._scene.profile is not scene.profile:
                self.single.layout.display = None if _has_blocks(scene) else "none"
            self._scene = scene
            self._draw()

    def _unfold(self) -> None:
        with self._lock:
            self._draw()

    def _draw(self) -> None:
        if self._scene is not None:
            self.plot.draw(self.figure(self._scene, single=self.single.value))

    @staticmethod
    def figure(scene: Scene, *, single: bool = False) -> Figure:
        """The bars of the schedule shown; equal blocks of a deep model are one, unless ``single``."""
        return layers_figure(scene.profile, scene.keep_all, scene.drawn, selection=scene.selection, single=single)


def _has_blocks(scene: Scene) -> bool:
    """Are there so many repeated blocks that equal ones are shown as one?"""
    blocks = blocks_of(scene.profile.graph)
    labels = group_layers(scene.profile.graph).labels
    return len(labels) > FEW and any(blocks.place(label) is not None for label in labels)
