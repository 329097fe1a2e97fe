"""The convolutions panel: implementations of the selected layer, and every layer's choices."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets

from explorer.device_profile import Profile
from explorer.harmless import in_html
from widgets import style
from widgets.elements.plot import Plot
from widgets.elements.table import Row, Table
from widgets.panels.panel import PanelOwner
from widgets.plots.convolutions_plot import convolution_figure
from widgets.plots.figure import Figure
from widgets.scene.convolutions import Part, PartImplementation, chosen, convolutions, plain_name, shown_layer, ways
from widgets.scene.layers import covers, module_paths
from widgets.scene.scene import Scene


class ConvolutionsPanel:
    """Workspace against time; a row of the table selects its layer."""

    name = "convolutions"
    title = "Convolutions"
    draws_from = ("profile", "keep_all", "timeline", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self._profile: Profile | None = None
        self._layers: tuple[str, ...] = ()
        self._modules: frozenset[str] = frozenset()
        self.heading = ipywidgets.HTML()
        self.plot = Plot("convolutions")
        self.table = Table("Choices of all layers", ["layer", *(part.value for part in Part)], on_pick=owner.select)
        self.box = ipywidgets.VBox([self.heading, self.plot, self.table])

    def show(self, scene: Scene) -> None:
        """Draw the first convolution of the selected layer, or of the model."""
        if self._profile is not scene.profile:
            self._profile, graph = scene.profile, scene.profile.graph
            self._layers, self._modules = convolutions(graph), frozenset(module_paths(graph))
        layer = shown_layer(self._layers, scene.selection)
        if layer is None:
            self.heading.value = "<p>This model has no convolutions.</p>"
            return
        selected = [x for x in self._layers if covers(scene.selection, x)]
        why = "" if selected else " (select a layer, here or in a plot, to see another)"
        self.heading.value = f"<p>Implementations of <strong>{in_html(layer)}</strong>{why}</p>"
        self.plot.draw(_figure(scene, layer))
        found = chosen(scene.profile, scene.drawn)
        rows = [
            Row(x if x in self._modules else "", (x, *(describe(found[x][part]) for part in Part)))
            for x in self._layers
        ]
        self.table.fill(rows, selected=selected)

    @staticmethod
    def figure(scene: Scene) -> Figure | None:
        """The first convolution of the selected layer, or of the model; None for a model without any."""
        layer = shown_layer(convolutions(scene.profile.graph), scene.selection)
        return None if layer is None else _figure(scene, layer)


def _figure(scene: Scene, layer: str) -> Figure:
    return convolution_figure(layer, ways(scene.profile, scene.drawn, layer))


def describe(used: Sequence[PartImplementation]) -> str:
    """What was chosen for one part, with its time; a dash where it never runs."""
    told = dict.fromkeys(f"{plain_name(way)} {style.format_ms(way.time_ms)}" for way in used)
    return ", ".join(told) or "–"
