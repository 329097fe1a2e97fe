"""The timeline panel: memory over the step, and what is in memory at its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ipywidgets

from widgets.figures import Plot
from widgets.holdings import holding_rows, holdings
from widgets.layers import covers
from widgets.panel import Scene
from widgets.table import Table
from widgets.timeline_plot import Captions, timeline_figure

if TYPE_CHECKING:
    from widgets.explorer import Explorer

_COLUMNS = ("layer", "tensor", "type and shape", "what for", "bytes")


class TimelinePanel:
    """Memory over one training step; a click selects the layer that runs there."""

    name = "timeline"
    title = "Memory during one training step"
    draws_from = ("profile", "keep_all", "timeline", "budget_bytes", "measurement", "selection")

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self.plot = Plot("timeline", on_pick=explorer.select)
        self.table = Table("In memory at the peak", _COLUMNS, folded=True, on_pick=explorer.select)
        self.box = ipywidgets.VBox([self.plot, self.table])
        self.box.add_class("schedule-explorer-wide")
        self._captions: Captions | None = None

    def show(self, scene: Scene) -> None:
        """Draw the schedule's timeline, or the plain step's against the budget."""
        profile, timeline = scene.profile, scene.drawn
        if self._captions is None or self._captions.profile is not profile:
            self._captions = Captions(profile)
        figure = timeline_figure(
            profile,
            timeline,
            budget_bytes=scene.budget_bytes,
            ceiling_bytes=scene.keep_all.peak_bytes,
            measurement=scene.measurement,
            selected=scene.selected,
            captions=self._captions,
        )
        self.plot.draw(figure)
        operator = profile.graph.operators[timeline.operators[timeline.peak_run]]
        at = f"run {timeline.peak_run + 1} of {len(timeline.operators)}: {operator.name}"
        rows = holding_rows(holdings(profile, timeline, timeline.peak_run))
        self.table.fill(
            rows,
            selected=[row.key for row in rows if row.key and covers(scene.selection, row.key)],
            title=f"In memory at the peak ({at}" + (f" in {operator.layer})" if operator.layer else ")"),
        )
