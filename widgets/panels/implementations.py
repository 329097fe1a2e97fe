"""The implementations panel: the ways to run an operator of the selected layer, and what was chosen in all layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from threading import RLock
from typing import Any

import ipywidgets

from explorer.harmless import in_html
from explorer.units import format_bytes
from widgets import style
from widgets.elements.plot import Plot
from widgets.elements.table import Row, Table
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.implementations_plot import implementations_figure
from widgets.scene.blocks import blocks_of, folded
from widgets.scene.implementations import Calls, Choices, Part, Way, differ_in_workspace_alone
from widgets.scene.layers import covers
from widgets.scene.scene import Scene

_ALL = "all operators"
_COLUMNS = ("layer and operator", "forward", "recompute", "backward, weight gradient", "input gradient")
_OF_COLUMN = (
    (Part.FORWARD,),
    (Part.RECOMPUTE,),
    (Part.BACKWARD, Part.WEIGHT_GRADIENT, Part.UPDATE),
    (Part.INPUT_GRADIENT,),
)
_WAY_COLUMNS = ("implementation", "of", "time", "workspace", "makes", "over what it reads", "reads of forward", "runs")
_ADDED = " Memory added: results and workspace, less what of them takes the memory of something that is read."
_NO_CHOICE = "Every operator of this model has one implementation: there is nothing to choose."


class ImplementationsPanel:
    """Memory against time; a row of the table selects its layer."""

    name = "implementations"
    title = "Implementations"
    question = "How can an operator be run, and which way was chosen?"
    draws_from = ("profile", "keep_all", "timeline", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self._owner = owner
        self._lock = RLock()  # answers are drawn in one thread, clicks come in another
        self._scene: Scene | None = None
        self._choices: Choices | None = None
        self._shown: Calls | None = None
        self._filling = False  # the lists, which choose their first entry when they get others
        self.heading = ipywidgets.HTML()
        self.kind = _dropdown("Operators", [(_ALL, "")], "What the table lists, and the plot can show")
        self.calls = _dropdown("Implementations of", [], "Of the selected layer, or one of each sort; drawn below")
        self.plot = Plot("implementations")
        self.ways = Table("", _WAY_COLUMNS, folded=True)
        self.table = Table("Choices of all layers", _COLUMNS, on_pick=lambda key: self._pick(int(key)))
        self.kind.observe(lambda _: self._narrow(), "value")
        self.calls.observe(lambda _: self._choose(), "value")
        row = ipywidgets.HBox([self.kind, self.calls], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self._there = ipywidgets.VBox([row, self.plot, self.ways, self.table])
        self.box = ipywidgets.VBox([self.heading, self._there])

    def show(self, scene: Scene) -> None:
        """Draw an operator of the selected layer, or of the model."""
        with self._lock:
            before, self._scene = self._scene, scene
            if self._choices is None or self._choices.profile is not scene.profile:
                self._choices, self._shown = Choices(scene.profile), None
                self._fill(self.kind, [(_ALL, ""), *((x, x) for x in self._choices.kinds)], "")
            if before is None or before.selection != scene.selection:
                self._shown = (
                    None if self._shown is None or not covers(scene.selection, self._shown.layer) else self._shown
                )
            self._draw()

    @staticmethod
    def figure(scene: Scene) -> Figure | None:
        """Of the operator with the most ways in the selected layer, or the model; None where there is no choice."""
        choices = Choices(scene.profile)
        calls = choices.foremost(scene.selection)
        return None if calls is None else implementations_figure(calls.label, choices.ways(calls, scene.drawn))

    @property
    def _wanted(self) -> str:
        """The kind of operators asked for; empty for all."""
        return self.kind.value or ""

    def _narrow(self) -> None:
        with self._lock:
            if self._filling:
                return
            if self._shown is not None and self._wanted not in ("", self._shown.kind):
                self._shown = None
            self._draw()

    def _choose(self) -> None:
        with self._lock:
            chosen = self.calls.value
            if self._filling or self._choices is None or chosen is None:
                return
            if self._choices.calls[chosen] != self._shown:
                self._shown = self._choices.calls[chosen]
                self._draw()

    def _pick(self, place: int) -> None:
        """Select the layer of a row and show its operator; the same row once more selects none."""
        with self._lock:
            if self._choices is None or self._scene is None:
                return
            calls, selection = self._choices.calls[place], self._scene.selection
            again, self._shown = calls == self._shown, calls
            if calls.layer == selection and not again:
                self._draw()
                return
        self._owner.select(calls.layer)

    def _draw(self) -> None:
        scene, choices = self._scene, self._choices
        if scene is None or choices is None:
            return
        if self._shown is None:
            self._shown = choices.foremost(scene.selection, kind=self._wanted)
        shown = self._shown
        self._there.layout.display = "none" if shown is None else None
        if shown is None:
            self.heading.value = (
                "<p>Every operator of this model has one implementation: there is nothing to choose.</p>"
            )
            return
        self._offer(choices, shown, scene.selection)
        ways = choices.ways(shown, scene.drawn)
        self.heading.value = f"<p>{_sentence(scene.selection, shown, ways)}</p>"
        self.plot.draw(implementations_figure(shown.label, ways))
        self.ways.fill(map(_way_row, ways), title=f"All implementations of {shown.label}")
        rows, selected = _rows(choices, scene, self._wanted)
        self.table.fill(rows, selected=selected)

    def _offer(self, choices: Choices, shown: Calls, selection: str) -> None:
        """Name the selected layer's calls, or, where none is selected, the first of those that are alike."""
        of_kind = [x for x in choices.calls if self._wanted in ("", x.kind)]
        among = [x for x in of_kind if covers(selection, x.layer)] or of_kind
        firsts = {x.alike: x for x in reversed(among)}
        alike = Counter(x.alike for x in among)
        offered = [x for x in among if x == shown or (firsts[x.alike] is x and x.alike != shown.alike)]
        places = {x.operators: i for i, x in enumerate(choices.calls)}
        options = [(_told(x, alike[x.alike] - 1), places[x.operators]) for x in offered]
        if shown not in offered:
            options.insert(0, (shown.label, places[shown.operators]))
        self._fill(self.calls, options, places[shown.operators])

    def _fill(self, control: ipywidgets.Dropdown, options: list[tuple[str, Any]], value: object) -> None:
        """Offer these and choose one, which is no choice of anybody's."""
        self._filling = True
        if tuple(options) != tuple(control.options):
            control.options = options
        control.value = value
        self._filling = False


def _told(calls: Calls, others: int) -> str:
    return calls.label + (f" ({others} alike)" if others else "")


def _sentence(selection: str, shown: Calls, ways: Sequence[Way]) -> str:
    why = ""
    if not selection:
        why = " (select a layer, here or in a plot, to see another)"
    elif not covers(selection, shown.layer):
        why = f" (there is nothing to choose in {in_html(selection)})"
    added = "" if differ_in_workspace_alone(ways) else _ADDED
    return f"Implementations of <strong>{in_html(shown.label)}</strong>{why}.{added}"


def _rows(choices: Choices, scene: Scene, kind: str) -> tuple[list[Row], list[str]]:
    """A row for each layer's calls of this kind, or of all, and the keys of those that are selected.

    Calls in repeated blocks that are run in the same way are one row, which unfolds.
    """
    chosen = choices.chosen(scene.drawn)
    of_kind = [i for i, x in enumerate(choices.calls) if kind in ("", x.kind)]
    told = {i: tuple(describe(chosen[i], parts) for parts in _OF_COLUMN) for i in of_kind}
    rows = []
    alike = folded(
        of_kind,
        blocks_of(scene.profile.graph),
        layer=lambda i: choices.calls[i].layer,
        equal=lambda i: (choices.calls[i].alike, told[i]),
    )
    for name, members in alike:
        singles = tuple(Row(str(i), (choices.calls[i].label, *told[i])) for i in members)
        first = choices.calls[members[0]]
        label = f"{name}{first.label.removeprefix(first.layer)}, {len(members)} times"
        together = Row(singles[0].key, (label, *told[members[0]]), singles)
        rows.append(together if len(members) > 1 else singles[0])
    selected = [str(i) for i in of_kind if covers(scene.selection, choices.calls[i].layer)]
    return rows, selected


def describe(ways: Iterable[Way], parts: Sequence[Part]) -> str:
    """What was chosen for some parts, with its time and how often it runs; a dash where it never does."""
    told = (
        f"{way.plain_name} {style.format_ms(way.time_ms)}" + (f" ×{way.runs}" if way.runs > 1 else "")
        for way in ways
        if way.part in parts
    )
    return ", ".join(told) or "–"


def _way_row(way: Way) -> Row:
    amounts = (way.workspace_bytes, way.made_bytes, way.overwritten_bytes, way.kept_bytes)
    cells = (format_bytes(x) if x else "–" for x in amounts)
    runs = str(way.runs) if way.runs else "–"
    return Row("", (way.plain_name, way.part.value, style.format_ms(way.time_ms), *cells, runs))


def _dropdown(label: str, options: list[tuple[str, str]], tooltip: str) -> ipywidgets.Dropdown:
    return ipywidgets.Dropdown(
        description=label,
        options=options,
        tooltip=tooltip,
        style={"description_width": "initial"},
        layout=ipywidgets.Layout(width="auto", max_width="100%"),
    )
