"""The timeline panel: memory over the step, and what is in memory at its peak."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ipywidgets

from explorer.simulation import simulate
from explorer.timeline import CATEGORIES
from explorer.units import format_bytes
from widgets import style
from widgets.elements.pictures import StepView
from widgets.elements.table import Row, Table
from widgets.panels.layers import LayersPanel
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.timeline_plot import timeline_figure
from widgets.scene.allocations import Allocation, allocations
from widgets.scene.blocks import Blocks, blocks_of, folded
from widgets.scene.curve import key_of
from widgets.scene.layers import covers
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene
from widgets.scene.step import OUTLINE, columns, measured_line, model_table, step_table

_PALETTE = [
    {"name": x.value, "colour": style.CATEGORY_COLOUR[x], "hatch": style.CATEGORY_HATCH.get(x, "")} for x in CATEGORIES
]
_STEP = ("timeline", "keep_all", "measurement", "reference", "solution", "selection", "profile")
"""What ``step_of`` looks at."""
_COLUMNS = ("layer", "tensor", "type and shape", "what for", "bytes")


class TimelinePanel:
    """Memory over one training step; a click selects the layer that runs there, a playhead tells what happens."""

    name = "timeline"
    title = "Memory during one training step"
    question = "What is in memory when, and what is computed again?"
    draws_from = ("profile", "keep_all", "timeline", "budget_bytes", "measurement", "selection", "known", "reference")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self.plot = StepView(
            on_pick=owner.select,
            on_budget=lambda budget: owner.set_trait("budget_bytes", budget),
            outline_of=self._outline,
            on_walk=owner.walk,
        )
        self.table = Table("In memory at the peak", _COLUMNS, folded=True, on_pick=owner.select)
        self.box = ipywidgets.VBox([self.plot, self.table])
        self.box.add_class("schedule-explorer-wide")
        self._scene: Scene | None = None
        self._outlines: dict[str, dict[str, Any]] = {}

    def show(self, scene: Scene) -> None:
        """Draw the schedule's step before that of plain PyTorch, or of the schedule that is held."""
        before, self._scene = self._scene, scene
        if before is None or before.profile is not scene.profile or before.keep_all is not scene.keep_all:
            self._outlines = {}
            self.plot.table = packed_json(table_of(scene))
        if before is None or any(getattr(before, x) is not getattr(scene, x) for x in _STEP):
            self.plot.step = packed_json(step_of(scene))
        self.plot.known = [key_of(x) for x in scene.known.best]
        self._list_peak(scene)

    def _list_peak(self, scene: Scene) -> None:
        profile, timeline = scene.profile, scene.drawn
        operator = profile.graph.operators[timeline.operators[timeline.peak_run]]
        at = f"run {timeline.peak_run + 1} of {len(timeline.operators)}: {operator.name}"
        rows = allocation_rows(allocations(profile, timeline, timeline.peak_run), blocks_of(profile.graph))
        self.table.fill(
            rows,
            selected=[x.key for row in rows for x in (row, *row.folded) if x.key and covers(scene.selection, x.key)],
            title=f"In memory at the peak ({at}" + (f" in {operator.layer})" if operator.layer else ")"),
        )

    def _outline(self, key: str) -> dict[str, Any] | None:
        """A known schedule's columns, for a page whose hand is on the budget."""
        scene = self._scene
        if scene is None:
            return None
        if key not in self._outlines:
            found = next((x for x in scene.known.best if key_of(x) == key), None)
            if found is None or found.schedule is None:
                return None
            timeline = simulate(scene.profile, found.schedule)
            outline = json.loads(packed_json(columns(timeline, most=OUTLINE)))
            layers = LayersPanel.figure(replace(scene, solution=found, timeline=timeline))
            self._outlines[key] = outline | {"layers": layers.to_json()}
        return self._outlines[key]

    @staticmethod
    def figure(scene: Scene) -> Figure:
        """The schedule's timeline, or the plain step's, for files."""
        return timeline_figure(
            scene.profile,
            scene.drawn,
            budget_bytes=scene.budget_bytes,
            ceiling_bytes=scene.keep_all.peak_bytes,
            measurement=scene.measurement,
            selected=scene.selected,
        )


def table_of(scene: Scene) -> dict[str, Any]:
    """What the page needs of every step of a profile: names, colours, and the plain step."""
    return {"model": model_table(scene.profile), "palette": _PALETTE, "plain": columns(scene.keep_all)}


def step_of(scene: Scene) -> dict[str, Any]:
    """What the page draws of a scene's step: itself, what stands behind it, and where the budget is."""
    drawn = scene.drawn
    ghost: dict[str, Any] | None = None
    if scene.reference is not None:
        ghost = {"label": "reference", "step": columns(scene.reference.timeline), "held": True}
    return {
        "step": step_table(scene.profile, drawn),
        "ghost": ghost,
        "plain": drawn is scene.keep_all,
        "measured": None if scene.measurement is None else measured_line(drawn, scene.measurement),
        "budget": scene.budget_bytes,
        "least": scene.known.best[0].peak_bytes if scene.known.best else None,
        "top": scene.top_bytes,
        "unit": style.unit_of(scene.keep_all.peak_bytes),
        "selection": scene.selection,
    }


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
