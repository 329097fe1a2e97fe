"""The matrix panel: stages by operators."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING

import ipywidgets

from widgets.figures import Plot
from widgets.matrix_plot import matrix_figure
from widgets.panel import Scene

if TYPE_CHECKING:
    from widgets.explorer import Explorer


class MatrixPanel:
    """What is kept and what is computed again, stage by stage; a click selects the operator's layer."""

    name = "matrix"
    title = "Schedule matrix"
    draws_from = ("profile", "keep_all", "timeline", "selection")

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self.plot = Plot("matrix", on_pick=explorer.select)
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
        self.plot.draw(matrix_figure(scene.profile.graph, scene.drawn, selected=scene.selected, only_selected=only))
