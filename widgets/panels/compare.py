"""The compare panel: a schedule held as reference, and the next ones against it."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock

import ipywidgets

from explorer.graph import TrainingGraph
from explorer.harmless import in_html
from explorer.units import format_bytes
from widgets import style
from widgets.elements.button import button
from widgets.elements.plot import Plot
from widgets.elements.table import Row, Table
from widgets.panels.panel import PanelOwner
from widgets.plots.compare_plot import compare_figure
from widgets.plots.figure import Figure
from widgets.scene.compare import Change, Held, changes, differences
from widgets.scene.layers import covers
from widgets.scene.scene import Scene

_MOST = 100
_COLUMNS = ("tensor", "layer", "size", "reference", "this schedule")
_EMPTY = (
    "<p>Hold the schedule shown as the reference; then move the budget, pin something, or choose other options.</p>"
)


class ComparePanel:
    """Two schedules side by side; a tensor in the list selects its layer."""

    name = "compare"
    title = "Compare"
    draws_from = ("profile", "solution", "timeline", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """No reference yet."""
        self._lock = RLock()  # answers are drawn in one thread, clicks come in another
        self._scene: Scene | None = None
        self.reference: Held | None = None
        self._other: Held | None = None
        self.hold = button("Hold as reference", "anchor", "Compare the next schedules with the one shown now")
        self.drop = button("Forget the reference", "times", "Compare with nothing")
        self.said = ipywidgets.HTML(_EMPTY)
        self.plot = Plot("compare")
        self.figures = Table("Both schedules", ["", "reference", "this schedule", "difference"])
        self.changed = Table("Tensors they deal with differently", _COLUMNS, on_pick=owner.select)
        self._below = ipywidgets.VBox([self.plot, self.figures, self.changed])
        self._below.layout.display = "none"
        self.hold.on_click(lambda _: self.hold_now())
        self.drop.on_click(lambda _: self.forget())
        self.box = ipywidgets.VBox([ipywidgets.HBox([self.hold, self.drop]), self.said, self._below])
        self._offer()

    def show(self, scene: Scene) -> None:
        """Compare the schedule shown with the reference."""
        with self._lock:
            self._scene = scene
            self._offer()
            figure = self.figure(scene)
            self._below.layout.display = "none" if figure is None else ""
            if self.reference is None or figure is None:
                self.said.value = self._told("There is no schedule for the present budget to compare with it.")
                return
            held = self._held(scene)
            found = changes(self.reference, held)
            self.said.value = self._told("" if found else "Both deal with every tensor alike.")
            self.plot.draw(figure)
            self.figures.fill(Row("", cells) for cells in differences(self.reference, held))
            self.changed.layout.display = "" if found else "none"
            rows = change_rows(scene.profile.graph, found[:_MOST])
            selected = [row.key for row in rows if row.key and covers(scene.selection, row.key)]
            self.changed.fill(rows, selected=selected, title=self._title(len(found)))

    def figure(self, scene: Scene) -> Figure | None:
        """The reference and the schedule shown; None without one of them."""
        with self._lock:
            if self.reference is None or not self._has_schedule(scene):
                return None
            return compare_figure(self.reference, self._held(scene))

    def hold_now(self) -> None:
        """Take the schedule shown as the reference."""
        with self._lock:
            if self._scene is None or not self._has_schedule(self._scene):
                return
            self.reference = self._held(self._scene)
            self.show(self._scene)

    def forget(self) -> None:
        """Compare with nothing."""
        with self._lock:
            self.reference = None
            if self._scene is not None:
                self.show(self._scene)

    def _told(self, more: str) -> str:
        if self.reference is None:
            return _EMPTY
        return f"<p>Reference: {in_html(self.reference.label)}. {more}</p>"

    def _held(self, scene: Scene) -> Held:
        assert scene.solution is not None, "asked before"
        assert scene.solution.schedule is not None, "asked before"
        schedule = scene.solution.schedule
        if self._other is None or self._other.schedule != schedule:
            label = f"{style.format_gib(scene.solution.budget_bytes)}, {style.format_ms(scene.drawn.time_ms)}"
            self._other = Held.of(scene.profile, label, schedule, scene.drawn)
        return self._other

    def _offer(self) -> None:
        self.hold.disabled = self._scene is None or not self._has_schedule(self._scene)
        self.drop.disabled = self.reference is None

    @staticmethod
    def _has_schedule(scene: Scene) -> bool:
        return scene.solution is not None and scene.solution.schedule is not None

    @staticmethod
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
