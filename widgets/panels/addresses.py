"""The addresses panel: where each tensor lies in one buffer, to be moved by hand, and which operators moved in time."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any

import ipywidgets

from explorer import solvers
from explorer.device_profile import Profile
from explorer.harmless import in_html
from explorer.reserved import Allocator
from explorer.schedule import Schedule, keep_all
from explorer.simulation import profile_for, simulate
from explorer.solution import Status
from explorer.stays import places_exactly
from explorer.units import format_bytes
from widgets.elements.button import button
from widgets.elements.plot import Plot
from widgets.panels.panel import PanelOwner
from widgets.plots.addresses_plot import MOST_DRAWN, addresses_figure, order_figure, unit_of
from widgets.scene.addresses import AddressMap, address_map, reserved_map
from widgets.scene.scene import Scene

_ADDRESSES, _RESERVED, _EXPANDABLE = "One buffer", "Caching allocator", "Expandable segments"
_ORDER = "Order of operators"
_TIME_LIMIT_S = 10.0
_SECONDS = "some seconds for a network of thousands of operators …"
_WAITING = {
    _ADDRESSES: f"Looking for the smallest buffer, {_TIME_LIMIT_S:g} s at most; everything else goes on …",
    **dict.fromkeys((_RESERVED, _EXPANDABLE), f"Playing the allocator's rules, {_SECONDS}"),
    _ORDER: f"Looking for the order with the least memory, {_SECONDS}",
}
_NOT_AS_SAVED = "The addresses saved with the schedule are for other sizes than this profile's, so it is placed anew. "
_NAMED = 3  # tensors that are in the way
_TOLD_SHARE = 0.001  # of a step's time, from which on more of it is told


@dataclass(frozen=True)
class Ordered:
    """An order of operators.

    Attributes:
        schedule: that has it.
        sentence: what it gives.
    """

    schedule: Schedule
    sentence: str


@dataclass(frozen=True)
class Reserved:
    """What PyTorch's caching allocator makes of a schedule.

    Attributes:
        map: of its segments.
        sentence: how much of them lies idle.
    """

    map: AddressMap
    sentence: str


class AddressesPanel:
    """A click selects a rectangle and its layer; what is selected can be dragged to another address."""

    name = "addresses"
    title = "Addresses"
    question = "Where does each tensor lie, and how much memory lies idle between?"
    draws_from = ("profile", "keep_all", "timeline", "solution", "selection")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self._owner = owner
        self._lock = RLock()  # placing has a thread of its own, clicks come in another
        self._scene: Scene | None = None
        self._schedule: Schedule | None = None
        self._found: dict[str, AddressMap | Reserved | Ordered | str | None] = {}
        """Of the schedule, by view; None while it is looked for, a sentence where it cannot be found."""
        self._shown: AddressMap | None = None
        self._chosen: int | None = None
        self._setting = False  # the offset, which is then not someone's wish
        views = {
            _ADDRESSES: "Where tensors lie as planned",
            _RESERVED: "Where PyTorch's allocator on CUDA puts them",
            _EXPANDABLE: "The same with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            _ORDER: "What moved",
        }
        wide = {"button_width": "auto"}
        self.of = ipywidgets.ToggleButtons(options=tuple(views), tooltips=tuple(views.values()), style=wide)
        self.told = ipywidgets.HTML()
        self.told.add_class("schedule-explorer-two-lines")  # the plot stays where it is when more is told
        self.plot = Plot("addresses", on_pick=self._pick, on_drag=self._drag)
        self.offset = ipywidgets.BoundedFloatText(
            description="Address",
            tooltip="Where the selected tensor lies; type another, or drag it in the plot",
            min=0.0,
            max=float(2**40),
            step=1.0,
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="200px", visibility="hidden"),
        )
        self.back = button("As planned", "undo", "Everything that was moved by hand goes back")
        self.back.disabled = True
        self.of.observe(lambda _: self._redraw(), "value")
        self.offset.observe(lambda change: self._type(change["new"]), "value")
        self.back.on_click(lambda _: self._undo())
        row = ipywidgets.HBox([self.of, self.back, self.offset], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.box = ipywidgets.VBox([row, self.told, self.plot])

    def show(self, scene: Scene) -> None:
        """Draw what is known of the schedule; what is not is found beside everything else, and drawn then."""
        with self._lock:
            before, self._scene = self._scene, scene
            schedule = scheduled(scene)
            if before is None or before.profile is not scene.profile or schedule != self._schedule:
                self._schedule, self._shown, self._chosen = schedule, None, None
                self._found = {}
            self._draw()

    def _find(self, view: str, scene: Scene, schedule: Schedule) -> None:
        """What is to be seen of a schedule, which takes up to some seconds."""
        try:
            found = _LOOKED_FOR[view](scene.profile, schedule)
        except ValueError as error:  # a placement that is none of this schedule
            found = f"There is nothing to show: {error}"
        with self._lock:
            if self._schedule is schedule:  # else another is shown by now
                self._found[view] = found
                if view == _ADDRESSES and isinstance(found, AddressMap):
                    self._shown = found
                self._draw()

    def _pick(self, picked: Any) -> None:
        """Choose a rectangle, and its layer."""
        block, layer = picked
        with self._lock:
            movable = None if self.of.value != _ADDRESSES or block is None else int(block)
            self._chosen = None if movable == self._chosen else movable
            self._draw()
            selected = self._scene.selection if self._scene is not None else ""
        if layer and layer != selected:
            self._owner.select(layer)

    def _drag(self, by: float) -> None:
        """Someone dragged what is chosen so far up; or clicked it, and wants no more of it."""
        with self._lock:
            if self._shown is None or self._chosen is None:
                return
            if by == 0.0:
                self._chosen = None
                self._draw()
                return
            unit, _ = unit_of(self._shown.buffer_bytes)
            let_go_bytes = self._shown.of(self._chosen)[0].offset_bytes + by * unit
            self._move(self._shown.near(self._chosen, at_bytes=let_go_bytes))

    def _type(self, amount: float) -> None:
        with self._lock:
            if not self._setting and self._shown is not None and self._chosen is not None:
                self._move(amount * unit_of(self._shown.buffer_bytes)[0])

    def _move(self, to_bytes: float) -> None:
        if self._shown is None or self._chosen is None:
            return
        if not math.isfinite(to_bytes):
            self._draw()
            self.told.value = f"<p>An address is a number, not {to_bytes}: nothing was moved.</p>{self.told.value}"
            return
        # Nothing is in its way above all others, and higher up it would only take memory.
        highest_bytes = self._shown.highest_end_beside(self._chosen)
        self._shown = self._shown.moved(self._chosen, to_bytes=min(to_bytes, highest_bytes))
        self._draw()

    def _undo(self) -> None:
        with self._lock:
            planned = self._found.get(_ADDRESSES)
            if isinstance(planned, AddressMap):
                self._shown = planned
            self._draw()

    def _redraw(self) -> None:
        with self._lock:
            self._draw()

    def _draw(self) -> None:
        scene, schedule, view = self._scene, self._schedule, str(self.of.value)
        if scene is None or schedule is None:
            return
        if view not in self._found:
            self._found[view] = None
            work = threading.Thread(target=self._find, args=(view, scene, schedule), daemon=True)
            work.name = f"schedule-explorer-{self.name}"
            work.start()
        found = self._found[view]
        shown = self._shown if view == _ADDRESSES and isinstance(found, AddressMap) else None
        self._offer_move(shown)
        told, figure = _WAITING[view], None
        if shown is not None:
            told = sentence(shown) + _not_drawn(shown)
            figure = addresses_figure(shown, view=view, selected_layers=_layers(scene), chosen=self._chosen)
        elif isinstance(found, str):
            told = found
        elif isinstance(found, Reserved):
            told = found.sentence + _not_drawn(found.map)
            figure = addresses_figure(found.map, view=view, selected_layers=_layers(scene))
        elif isinstance(found, Ordered):
            told = found.sentence
            if found.schedule.moved(scene.profile.graph):
                figure = order_figure(scene.profile.graph, found.schedule, selected=scene.selected)
        self.plot.layout.display = "none" if figure is None else None
        if figure is not None:
            self.plot.draw(figure)
        told = _instead(scene) + told
        self.told.value = f"<p>{in_html(told)}</p>"  # last: who reads it finds the plot that it is about

    def _offer_move(self, shown: AddressMap | None) -> None:
        """The address of what is chosen, and the way back."""
        self.back.disabled = shown is None or not shown.by_hand
        # Where nothing is chosen there is no address; the box cannot be empty.
        self.offset.layout.visibility = "hidden" if shown is None or self._chosen is None else None
        if shown is not None and self._chosen is not None:
            unit, name = unit_of(shown.buffer_bytes)
            offset_bytes = shown.of(self._chosen)[0].offset_bytes
            self._setting = True
            self.offset.description = f"Address ({name})"
            self.offset.max = round(max(offset_bytes, shown.highest_end_beside(self._chosen)) / unit, 6)
            self.offset.value = round(offset_bytes / unit, 6)
            self._setting = False


def scheduled(scene: Scene) -> Schedule:
    """The schedule shown, or the plain step's where there is none."""
    found = None if scene.solution is None or scene.timeline is None else scene.solution.schedule
    return keep_all(scene.profile.graph) if found is None else found


def _instead(scene: Scene) -> str:
    """What is to be known of what is shown where it is no schedule for the budget."""
    if scene.timeline is not None:
        return ""
    none = scene.solution is not None and scene.solution.status is Status.INFEASIBLE
    return f"No schedule {'fits' if none else 'is known for'} this budget: this is the plain step. "


def _not_drawn(found: AddressMap) -> str:
    many = len(found.rectangles) - MOST_DRAWN
    return f" The {many:,} smallest of {len(found.rectangles):,} rectangles are not drawn." if many > 0 else ""


def sentence(found: AddressMap) -> str:
    """How large the buffer is, and what was moved by hand."""
    size, load = format_bytes(found.buffer_bytes), format_bytes(found.load_bytes)
    if found.by_hand:
        names = ", ".join(dict.fromkeys(x.name for x in found.rectangles if x.block in found.by_hand))
        hit = tuple(dict.fromkeys(x for _, x in found.collisions))
        if not hit:
            return f"Moved by hand: {names}. Nothing collides; the buffer takes {size}, and {load} is alive at once."
        told = ", ".join(f"{x.name} ({format_bytes(x.bytes)})" for x in hit[:_NAMED])
        more = f" and {len(hit) - _NAMED} more" if len(hit) > _NAMED else ""
        return f"Moved by hand: {names}. Collides with {told}{more}: two cannot have one address at the same time."
    whole = f"{found.note}One buffer of {size} holds all that the step makes"
    if found.buffer_bytes == found.load_bytes:
        return f"{whole}: exactly what is alive at once. Click a tensor, then drag it."
    if found.buffer_bytes == found.bound_bytes:
        return f"{whole}; {load} is alive at once, and no smaller buffer is possible. Click a tensor, then drag it."
    gap = found.buffer_bytes / found.bound_bytes - 1
    return f"{whole}, {gap:.2%} above the {load} alive at once. Click a tensor, then drag it."


def reserved(profile: Profile, schedule: Schedule, *, allocator: Allocator = Allocator.CACHING) -> Reserved:
    """As it is on a CUDA device, by simulation, whatever device the profile is of."""
    line = simulate(profile, schedule, allocator=allocator.value)
    found = line.reservation
    assert found is not None, "it was asked for"
    taken, alive = format_bytes(found.peak_bytes), format_bytes(found.allocated_peak_bytes)
    how = " with expandable segments" if allocator is Allocator.EXPANDABLE else ""
    told = f"PyTorch's caching allocator{how}, simulated, takes {taken} for this step, of which at most {alive} is in "
    told += f"use: {found.fragmentation:.1%} lies idle between. A device of {format_bytes(found.smallest_limit_bytes)} "
    flushes = f", if all that is cached is given back {found.flushes} times a step" if found.flushes else ""
    return Reserved(reserved_map(profile, line, found), f"{told}is enough{flushes}.")


def ordered(profile: Profile, schedule: Schedule) -> Ordered:
    """The schedule's own order; where it has none, the one in which plain PyTorch's operators take the least memory."""
    if moved := len(schedule.moved(profile.graph)):
        return Ordered(schedule, f"In this schedule {moved} operators run in another place than captured.")
    from explorer.solvers.ordering.schedules import least_memory  # whose compiled code is loaded when it is asked for

    plain = simulate(profile, keep_all(profile.graph))
    orders = [(simulate(profile, x), x) for x in least_memory(profile).schedules if x.moved(profile.graph)]
    orders.append((plain, keep_all(profile.graph)))
    least, found = min(orders, key=lambda x: (x[0].peak_bytes, x[0].time_ms))
    if least.peak_bytes == plain.peak_bytes:
        return Ordered(keep_all(profile.graph), "No order was found that takes less memory than the captured order.")
    saved_bytes = plain.peak_bytes - least.peak_bytes
    longer = least.time_ms / plain.time_ms - 1
    slower = f" and {longer:.1%} more time" if longer >= _TOLD_SHARE else ""
    return Ordered(
        found,
        f"With {len(found.moved(profile.graph))} operators in another place, and nothing recomputed, the step takes "
        f"{format_bytes(least.peak_bytes)}: {format_bytes(saved_bytes)} ({saved_bytes / plain.peak_bytes:.2%}) less "
        f"memory{slower} than in the captured order, which the schedule shown has.",
    )


def placed(profile: Profile, schedule: Schedule) -> AddressMap:
    """In one buffer: as the schedule has it, or as it is found now."""
    timeline = simulate(profile, schedule)
    profile = profile_for(schedule, profile=profile)
    known, note = schedule.placement, ""
    if known is not None and not places_exactly(profile, schedule, timeline, known):
        known, note = None, _NOT_AS_SAVED
    placement = known or solvers.place(profile, schedule, time_limit=_TIME_LIMIT_S)
    return address_map(profile, timeline, placement, note=note)


_LOOKED_FOR = {
    _ADDRESSES: placed,
    _RESERVED: reserved,
    _EXPANDABLE: partial(reserved, allocator=Allocator.EXPANDABLE),
    _ORDER: ordered,
}


def _layers(scene: Scene) -> frozenset[str]:
    """Module paths of the selected operators."""
    return frozenset(scene.profile.graph.operators[x].layer for x in scene.selected)
