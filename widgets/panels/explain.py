"""The explain panel: what becomes of each tensor, what memory is worth, and pins."""

from __future__ import annotations

from collections.abc import Iterable
from threading import RLock
from typing import Any

import ipywidgets

from explorer.analysis.explaining import Fate, TensorExplanation, explain_all, sentence
from explorer.analysis.pricing import memory_price
from explorer.graph import Operator, TrainingGraph
from explorer.harmless import in_html
from explorer.schedule import Schedule
from explorer.solvers.problem.pins import Pins, Stay
from explorer.units import format_bytes
from widgets import style
from widgets.elements.button import button
from widgets.elements.table import Row, Table
from widgets.panels.panel import PanelOwner
from widgets.scene.blocks import blocks_of, folded
from widgets.scene.layers import members
from widgets.scene.scene import Scene

_LARGEST = 24
_FREE = "let the solver decide"
_COLUMNS = ("tensor", "layer", "size", "is", "making it again", "at the peak")


class ExplainPanel:
    """The tensors of the selected layer, or the largest; the one chosen is explained, and may be pinned."""

    name = "explain"
    title = "Explain and pin"
    question = "What becomes of a tensor, why, and what if you decide otherwise?"
    draws_from = ("profile", "solution", "known", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self._owner = owner
        # Answers are drawn in one thread, clicks come in another: neither may see the other's work half done.
        self._lock = RLock()
        self._found: dict[str, TensorExplanation] = {}
        self._explained: Schedule | None = None
        self._scene: Scene | None = None
        self.price = ipywidgets.HTML()
        self.table = Table("Tensors", _COLUMNS, on_pick=self.choose)
        self.told = ipywidgets.HTML()
        self.stay = _dropdown("Tensor", [(_FREE, ""), *((f"{x.value} it", x.value) for x in Stay)])
        self.operator = _dropdown("Operator", [])
        self.implementation = _dropdown("Implementation", [(_FREE, "")])
        self.apply = button("Pin and solve", "thumb-tack", "Solve again with these decisions")
        self.clear = button("Remove all pins", "times", "Let the solver decide everything again")
        self._chosen = ""
        self._rows: list[Row] = []
        self._offered: tuple[str, Pins] | None = None
        self.operator.observe(lambda _: self._operator_chosen(), "value")
        for control in (self.stay, self.operator, self.implementation):
            control.observe(lambda _: self._offer_pins(), "value")
        self.apply.on_click(lambda _: self._pin())
        self.clear.on_click(lambda _: owner.pin({}))
        owner.observe(lambda _: self._show_pins(), "choice")
        row = ipywidgets.HBox(
            [self.stay, self.operator, self.implementation, self.apply, self.clear],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self.box = ipywidgets.VBox([self.price, self.table, self.told, row])
        self._show_pins()

    def show(self, scene: Scene) -> None:
        """Explain the schedule shown."""
        with self._lock:
            self._show(scene)

    def choose(self, tensor: str) -> None:
        """Explain this tensor."""
        with self._lock:
            self._chosen = tensor
            self._draw()

    def _show(self, scene: Scene) -> None:
        self._scene = scene
        schedule = None if scene.solution is None else scene.solution.schedule
        if schedule is None:
            self._empty("for this budget" if scene.solution is not None else "yet")
            return
        if schedule != self._explained:
            self._explained = schedule
            self._found = {x.storage.name: x for x in explain_all(scene.profile, schedule)}
        self.price.value = f"<p>{in_html(price_sentence(scene))}</p>"
        made = [x for x in self._found.values() if not scene.selected or x.producer in scene.selected]
        self._rows = tensor_rows(scene.profile.graph, made)[: None if scene.selected else _LARGEST]
        shown = [x.key for row in self._rows for x in (row.folded or (row,))]
        if self._chosen not in shown:
            self._chosen = next(iter(shown), "")
        self._draw()

    def _empty(self, when: str) -> None:
        """Nothing of the schedule before may pass for the present one."""
        self._explained, self._found = None, {}
        self.table.fill((), title="Tensors")
        self.price.value = ""
        self.told.value = f"<p>There is no schedule to explain {when}.</p>"
        self.apply.disabled = True

    def _draw(self) -> None:
        scene = self._scene
        if scene is None or not self._found:
            return
        of = f"of {scene.selection}" if scene.selected else "of the model, the largest"
        self.table.fill(self._rows, selected=[self._chosen], title=f"Tensors {of}")
        found = self._found.get(self._chosen)
        self.told.value = "" if found is None else f"<p>{in_html(sentence(scene.profile, found))}</p>"
        self._offer_operators(scene, found)

    def _offer_operators(self, scene: Scene, found: TensorExplanation | None) -> None:
        """The operators of the layer, the one that makes the tensor first."""
        graph = scene.profile.graph
        wanted: dict[int, None] = {} if found is None or found.producer is None else {found.producer: None}
        if found is not None:
            wanted |= dict.fromkeys(found.readers)
        layer = scene.selection or (graph.operators[next(iter(wanted))].layer if wanted else "")
        wanted |= dict.fromkeys(sorted(members(graph, layer) if layer else ()))
        names = [graph.operators[x].name for x in wanted]
        if tuple(names) != tuple(self.operator.options):
            self._replace_operators(names, keep=self._offered is not None and self._offered[0] == self._chosen)
        pins = self._owner.choice.pins
        # What someone has begun to choose outlives better schedules that come meanwhile.
        if self._offered != (self._chosen, pins):
            self._offered = (self._chosen, pins)
            self.stay.value = str(dict(pins.tensors).get(self._chosen, ""))
            self._offer_implementations()
        self._offer_pins()

    def _offer_pins(self) -> None:
        """Let be pinned what is not pinned yet.

        A kernel with subshells may hear a click before a choice that came before it: who may click only once the choice
        was heard does not click in vain.
        """
        with self._lock:
            pinned = set(self._owner.choice.pins.pairs)
            self.apply.disabled = self._chosen not in self._found or set(self._with_choices().pairs) == pinned

    def _replace_operators(self, names: list[str], *, keep: bool) -> None:
        """Offer these; ``keep`` what is chosen, for another schedule has other readers of the same tensor."""
        operator, implementation = self.operator.value, self.implementation.value
        self.operator.options = names  # which chooses the first
        if keep and operator in names:
            self.operator.value, self.implementation.value = operator, implementation
        elif names and self.operator.index is None:
            self.operator.index = 0  # which ipywidgets leaves to us where there was none before

    def _operator_chosen(self) -> None:
        with self._lock:
            self._offer_implementations()

    def _offer_implementations(self) -> None:
        if self._scene is None or not self.operator.value:
            return
        operator = self._operator(self.operator.value)
        options = [(_FREE, ""), *((x.name, x.name) for x in operator.implementations)]
        pinned = dict(self._owner.choice.pins.operators).get(operator.name, "")
        if tuple(options) != tuple(self.implementation.options):
            self.implementation.options = options
        self.implementation.value = pinned

    def _operator(self, name: str) -> Operator:
        assert self._scene is not None, "drawn"
        return next(x for x in self._scene.profile.graph.operators if x.name == name)

    def _pin(self) -> None:
        with self._lock:
            pins = self._with_choices()
        self._owner.pin(pins)

    def _with_choices(self) -> Pins:
        """What is pinned, and what the controls say in place of what was pinned for the same."""
        before = self._owner.choice.pins
        tensors, operators = dict(before.tensors), dict(before.operators)
        tensors.pop(self._chosen, None)
        if self._chosen and self.stay.value:
            tensors[self._chosen] = Stay(self.stay.value)
        if self.operator.value:
            operators.pop(self.operator.value, None)
            if self.implementation.value:
                operators[self.operator.value] = self.implementation.value
        return Pins(tuple(sorted(tensors.items())), tuple(sorted(operators.items())))

    def _show_pins(self) -> None:
        pins = self._owner.choice.pins
        self.clear.disabled = not pins
        self._offer_pins()


def tensor_rows(graph: TrainingGraph, found: Iterable[TensorExplanation]) -> list[Row]:
    """A line for each tensor, the largest first; tensors that are equal in repeated blocks have one together."""
    singles = [
        Row(x.storage.name, row_cells(x, graph.operators[x.producer or 0]))
        for x in sorted(found, key=lambda x: -x.allocated_bytes)
    ]
    rows = []
    for layer, alike in folded(singles, blocks_of(graph), layer=lambda x: x.cells[1], equal=lambda x: x.cells[2:]):
        first = alike[0]
        told = f"{first.key} and {len(alike) - 1} more", layer, *first.cells[2:]
        rows.append(Row(first.key, told, tuple(alike)) if len(alike) > 1 else first)
    return rows


def row_cells(found: TensorExplanation, producer: Operator) -> tuple[str, ...]:
    """A tensor's line in the table."""
    again = "–"
    if found.made_again:
        again = f"took {style.format_ms(found.made_again_ms)}"
    elif found.recomputation is not None:
        again = f"would take {style.format_ms(found.recomputation.time_ms)}"
    size = format_bytes(found.allocated_bytes)
    fate = found.fate.value if found.fate is not Fate.ABSENT else "not made"
    return found.storage.name, producer.layer or "–", size, fate, again, "yes" if found.at_peak else "no"


def price_sentence(scene: Scene) -> str:
    """What memory is worth at the budget shown."""
    known = [x for x in _solutions(scene) if x.schedule is not None]
    if scene.budget_bytes is None or len(known) < 2:  # a price is a slope
        return ""
    price = memory_price(known, scene.budget_bytes)
    told = (
        f"At {style.format_memory(scene.budget_bytes)}, memory is worth {_rate(price.more_ms_per_gib)} to have more of"
    )
    if price.less_ms_per_gib is not None:
        told += f", {_rate(price.less_ms_per_gib)} to give up"
    return f"{told} (milliseconds of step time for a GiB, by the best schedules known at budgets next to this one)."


def _solutions(scene: Scene) -> Iterable[Any]:
    return (*scene.known.instant, *scene.known.solved)


def _rate(ms_per_gib: float) -> str:
    return f"{ms_per_gib:,.0f} ms" if ms_per_gib >= 10 else f"{ms_per_gib:.2g} ms"


def _dropdown(label: str, options: list[Any]) -> ipywidgets.Dropdown:
    return ipywidgets.Dropdown(
        description=label,
        options=options,
        style={"description_width": "initial"},
        layout=ipywidgets.Layout(width="290px"),
    )
