"""The timeline panel: memory over the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widgets.figures import Plot
from widgets.panel import Scene
from widgets.timeline_plot import timeline_figure

if TYPE_CHECKING:
    from widgets.explorer import Explorer


class TimelinePanel:
    """Memory over one training step; a click selects the layer that runs there."""

    name = "timeline"
    title = "Memory during one training step"

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self.plot = self.box = Plot("timeline", on_pick=explorer.select)
        self.box.add_class("schedule-explorer-wide")

    def show(self, scene: Scene) -> None:
        """Draw the schedule's timeline, or the plain step's against the budget."""
        figure = timeline_figure(
            scene.profile,
            scene.drawn,
            budget_bytes=scene.budget_bytes,
            ceiling_bytes=scene.keep_all.peak_bytes,
            measurement=scene.measurement,
            selected=scene.selected,
        )
        self.plot.draw(figure)
