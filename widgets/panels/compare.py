"""The compare panel: a schedule held as reference, and the next ones against it."""

from __future__ import annotations

from collections.abc import Iterable

import ipywidgets

from explorer.graph import TrainingGraph
from explorer.harmless import in_html
from explorer.units import format_bytes
from widgets.elements.button import button
from widgets.elements.table import Row, Table
from widgets.panels.panel import PanelOwner
from widgets.scene.compare import Change, Held, changes, differences
from widgets.scene.layers import covers
from widgets.scene.scene import Scene

_MOST = 100
_COLUMNS = ("tensor", "layer", "size", "reference", "this schedule")
_EMPTY = (
    "<p>Hold the schedule shown as the reference; then move the budget, pin something, or choose other options.</p>"
)


class ComparePanel:
    """Two schedules; their memory is drawn over one another in the timeline. A tensor in the list selects its layer."""

    name = "compare"
    title = "Compare"
    question = "What changes from one schedule to the next?"
    draws_from = ("profile", "solution", "timeline", "selection", "reference")

    def __init__(self, owner: PanelOwner) -> None:
        """No reference yet."""
        self.hold = button("Hold as reference", "anchor", "Compare the next schedules with the one shown now")
        self.drop = button("Forget the reference", "times", "Compare with plain PyTorch again")
        self.said = ipywidgets.HTML(_EMPTY)
        self.figures = Table("Both schedules", ["", "reference", "this schedule", "difference"])
        self.changed = Table("Tensors they deal with differently", _COLUMNS, on_pick=owner.select)
        self._below = ipywidgets.VBox([self.figures, self.changed])
        self._below.layout.display = "none"
        self.hold.on_click(lambda _: owner.hold())
        self.drop.on_click(lambda _: owner.release())
        self.box = ipywidgets.VBox([ipywidgets.HBox([self.hold, self.drop]), self.said, self._below])

    def show(self, scene: Scene) -> None:
        """Compare the schedule shown with the reference."""
        held = Held.shown(scene.profile, scene.solution, scene.timeline)
        self.hold.disabled, self.drop.disabled = held is None, scene.reference is None
        both = scene.reference is not None and held is not None
        self._below.layout.display = "" if both else "none"
        if scene.reference is None:
            self.said.value = _EMPTY
            return
        if held is None:
            self.said.value = _told(scene.reference, "There is no schedule for the present budget to compare with it.")
            return
        found = changes(scene.reference, held)
        self.said.value = _told(scene.reference, "" if found else "Both deal with every tensor alike.")
        self.figures.fill(Row("", cells) for cells in differences(scene.reference, held))
        self.changed.layout.display = "" if found else "none"
        rows = change_rows(scene.profile.graph, found[:_MOST])
        selected = [row.key for row in rows if row.key and covers(scene.selection, row.key)]
        self.changed.fill(rows, selected=selected, title=_title(len(found)))


def _told(reference: Held, more: str) -> str:
    drawn = "The dashed outline in the timeline is its memory."
    return f"<p>Reference: {in_html(reference.label)}. {drawn} {more}</p>"


def _title(count: int) -> str:
    more = f", the {_MOST} largest" if count > _MOST else ""
    return f"{count} tensors they deal with differently{more}"


def change_rows(graph: TrainingGraph, found: Iterable[Change]) -> list[Row]:
    """As lines of a table: tensor, layer that makes it, size, what it was, what it is; a line selects its layer."""
    rows = []
    for change in found:
        after = change.after
        layer = "" if after.producer is None else graph.operators[after.producer].layer
        size = format_bytes(after.allocated_bytes)
        fates = change.before.fate.value, after.fate.value
        rows.append(Row(layer, (after.storage.name, layer or "–", size, *fates)))
    return rows
