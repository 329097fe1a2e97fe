"""The timeline panel: memory over the step, and what is in memory at its peak."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets

from explorer.units import format_bytes
from widgets.elements.plot import Plot
from widgets.elements.table import Row, Table
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.timeline_plot import Captions, timeline_figure
from widgets.scene.allocations import Allocation, allocations
from widgets.scene.blocks import Blocks, blocks_of, folded
from widgets.scene.layers import covers
from widgets.scene.scene import Scene

_COLUMNS = ("layer", "tensor", "type and shape", "what for", "bytes")


class TimelinePanel:
    """Memory over one training step; a click selects the layer that runs there."""

    name = "timeline"
    title = "Memory during one training step"
    draws_from = ("profile", "keep_all", "timeline", "budget_bytes", "measurement", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self.plot = Plot("timeline", on_pick=owner.select)
        self.table = Table("In memory at the peak", _COLUMNS, folded=True, on_pick=owner.select)
        self.box = ipywidgets.VBox([self.plot, self.table])
        self.box.add_class("schedule-explorer-wide")
        self._captions: Captions | None = None

    def show(self, scene: Scene) -> None:
        """Draw the schedule's timeline, or the plain step's against the budget."""
        profile, timeline = scene.profile, scene.drawn
        if self._captions is None or self._captions.profile is not profile:
            self._captions = Captions(profile)
        self.plot.draw(self.figure(scene, captions=self._captions))
        operator = profile.graph.operators[timeline.operators[timeline.peak_run]]
        at = f"run {timeline.peak_run + 1} of {len(timeline.operators)}: {operator.name}"
        rows = allocation_rows(allocations(profile, timeline, timeline.peak_run), blocks_of(profile.graph))
        self.table.fill(
            rows,
            selected=[x.key for row in rows for x in (row, *row.folded) if x.key and covers(scene.selection, x.key)],
            title=f"In memory at the peak ({at}" + (f" in {operator.layer})" if operator.layer else ")"),
        )

    @staticmethod
    def figure(scene: Scene, *, captions: Captions | None = None) -> Figure:
        """The schedule's timeline, or the plain step's; ``captions`` as ``timeline_figure`` has them."""
        return timeline_figure(
            scene.profile,
            scene.drawn,
            budget_bytes=scene.budget_bytes,
            ceiling_bytes=scene.keep_all.peak_bytes,
            measurement=scene.measurement,
            selected=scene.selected,
            captions=captions,
        )


def allocation_rows(found: tuple[Allocation, ...], blocks: Blocks, *, most: int = 15) -> list[Row]:
    """The largest as rows of a table, and what the others come to; equal ones in repeated blocks are one row."""
    alike = folded(found, blocks, layer=lambda x: x.layer, equal=lambda x: (x.shape, x.category, x.bytes))
    alike.sort(key=lambda x: -sum(y.bytes for y in x[1]))
    rows = [_allocation_row(name, members) for name, members in alike[:most]]
    if rest := [x for _, members in alike[most:] for x in members]:
        rows.append(Row("", ("", f"{len(rest)} smaller ones", "", "", format_bytes(sum(x.bytes for x in rest)))))
    return rows


def _allocation_row(name: str, members: Sequence[Allocation]) -> Row:
    first, count = members[0], len(members)
    singles = tuple(
        Row(x.layer, (x.layer or "–", x.name, x.shape, x.category.value, format_bytes(x.bytes))) for x in members
    )
    if count == 1:
        return singles[0]
    of = f"{format_bytes(sum(x.bytes for x in members))} ({count} × {format_bytes(first.bytes)})"
    more = f"{first.name} and {count - 1} more"
    return Row(first.layer, (name, more, first.shape, first.category.value, of), singles)
