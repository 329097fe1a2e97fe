"""The matrix panel: stages by operators."""

from __future__ import annotations

from threading import RLock

import ipywidgets

from widgets.elements.plot import Plot
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.matrix_plot import matrix_figure
from widgets.scene.scene import Scene


class MatrixPanel:
    """What is kept and what is computed again, stage by stage; a click selects the operator's layer."""

    name = "matrix"
    title = "Schedule matrix"
    question = "At which stage is which activation in memory, and when is it computed again?"
    draws_from = ("profile", "keep_all", "timeline", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self.plot = Plot("matrix", on_pick=owner.select)
        self.only = ipywidgets.Checkbox(description="Only the selected layer", indent=False)
        self.only.observe(lambda _: self._narrow(), "value")
        self.box = ipywidgets.VBox([self.only, self.plot])
        self._scene: Scene | None = None
        self._lock = RLock()  # answers are drawn in one thread, clicks come in another

    def show(self, scene: Scene) -> None:
        """Draw the schedule's stages."""
        with self._lock:
            self._scene = scene
            self.only.disabled = not scene.selected
            self._draw()

    def _narrow(self) -> None:
        with self._lock:
            self._draw()

    def _draw(self) -> None:
        if self._scene is None:
            return
        scene = self._scene
        only = self.only.value and bool(scene.selected)
        self.plot.draw(self.figure(scene, only_selected=only))

    @staticmethod
    def figure(scene: Scene, *, only_selected: bool = False) -> Figure:
        """The schedule's stages; all of them, whatever is selected, unless someone wants ``only_selected``."""
        graph, selected = scene.profile.graph, scene.selected
        return matrix_figure(graph, scene.drawn, selected=selected, only_selected=only_selected)
