"""The graph panel: the captured step by module, with what becomes of its tensors."""

from __future__ import annotations

import ipywidgets

from widgets.elements.pictures import GraphView
from widgets.panels.panel import PanelOwner
from widgets.scene.compare import Held
from widgets.scene.module_graph import module_graph
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene


class GraphPanel:
    """Modules as boxes in the order in which they run; a click selects one, and repeated blocks open."""

    name = "graph"
    title = "Graph"
    question = "Which module's tensors are kept, which are computed again, and what flows where?"
    draws_from = ("profile", "solution", "timeline", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self.plot = GraphView(on_pick=owner.select)
        self.said = ipywidgets.HTML()
        self.box = ipywidgets.VBox([self.said, self.plot])

    def show(self, scene: Scene) -> None:
        """Draw the modules as the schedule shown deals with them."""
        held = Held.shown(scene.profile, scene.solution, scene.timeline)
        self.said.value = "<p>There is no schedule for this budget.</p>" if held is None else ""
        self.plot.graph = "" if held is None else packed_json(module_graph(scene.profile, held.explained))
        self.plot.selection = scene.selection
