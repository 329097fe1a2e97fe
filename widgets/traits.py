"""The traits of an explorer: what a script reads, sets, observes and links."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import traitlets

from explorer.measurement import Measurement
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.units import parse_bytes
from widgets import style
from widgets.choices.choice import Choice
from widgets.choices.curves import known_curves
from widgets.scene.layers import check_layer
from widgets.scene.scene import Scene

T = TypeVar("T")


def _shown(kind: type[T]) -> traitlets.Instance[T | None]:
    """A trait that only the explorer sets; None until there is one."""
    return cast("traitlets.Instance[T | None]", traitlets.Instance(kind, allow_none=True, read_only=True))


class _Here(threading.local):
    """What goes on in one thread."""

    called = 0  # observers, one within the other
    held: list[Any] | None = None
    failed = False  # one of them, since this was last reset


class Traits(traitlets.HasTraits):
    """Traits of an explorer, with what they accept.

    Those that only the explorer sets (read-only ones) change together: an observer of one finds the others up to date.
    What their observers raise ends here: whoever sets them, often a thread in the background, has more to do than the
    observers know. An observer that raises is named in the status line, and ``wait`` raises the same.

    Attributes:
        budget: as it was given, or as the slider reads (``"0.450 GiB"``); set it to solve for another.
        budget_bytes: the same in bytes.
        selection: module path of the layer that is marked in every panel, with all below it (``"layer1.0"``); empty for
            none. Set it to select. What is set before the first schedule is there, and is no layer, is emptied again.
        curves: names of what the trade-off plot shows beside the present curve; set it to add some. One
            that is cancelled or cannot be computed is taken out again.
        solution: the latest answer, None before the first.
        schedule: its schedule, None where it has none.
        status: ``"opening"``, ``"solving"``, ``"running"``, ``"writing"``, ``"playing"``, ``"comparing"``,
            ``"closed"``, or how the last solve ended (a ``Status``).
        message: what the widget's status line says.
        gap: proven distance of the schedule from the best, as a fraction; None where nothing is proven.
        predicted_peak: of the schedule, in bytes.
        measured_peak: of the schedule's last run, in bytes; None before one.
        measurement: that run.
        choice: what the solver was asked for; ``configure`` changes it.
    """

    budget = traitlets.Union([traitlets.Unicode(), traitlets.Int()], default_value="")
    budget_bytes = traitlets.Int(None, allow_none=True)
    selection = traitlets.Unicode("")
    curves = traitlets.List(traitlets.Unicode())
    solution = _shown(Solution)
    schedule = _shown(Schedule)
    status = traitlets.Unicode("opening", read_only=True)
    message = traitlets.Unicode("", read_only=True)
    gap = traitlets.Float(None, allow_none=True, read_only=True)
    predicted_peak = traitlets.Int(None, allow_none=True, read_only=True)
    measured_peak = traitlets.Int(None, allow_none=True, read_only=True)
    measurement = _shown(Measurement)
    choice = cast("traitlets.Instance[Choice]", traitlets.Instance(Choice, read_only=True))

    def __init__(
        self,
        *,
        choice: Choice,
        scene: Callable[[], Scene | None],
        on_observer_error: Callable[[str, Exception], None],
    ) -> None:
        """Nobody is told anything.

        Args:
            choice: what to ask the solver for first.
            scene: says what is shown, which values are checked against; None as long as nothing is known of the model.
            on_observer_error: called with the name of a read-only trait and what an observer of it raised.
        """
        self._here = _Here()
        self._shown_scene, self._on_observer_error = scene, on_observer_error
        super().__init__()
        self.set_trait("choice", choice)

    @property
    def calling_observers(self) -> bool:
        """Is an observer of a read-only trait being called by this thread?"""
        return self._here.called > 0

    def set_together(self, values: Mapping[str, Any]) -> bool:
        """Set read-only traits by name; their observers are called when all have their values. False if one raised."""
        self._here.held = held = []
        try:
            for name, value in values.items():
                self.set_trait(name, value)
        finally:
            self._here.held = None
        self._here.failed = False
        for change in held:
            self.notify_change(change)
        return not self._here.failed

    def notify_change(self, change: Any) -> None:
        """Call the observers of a trait."""
        name = change["name"]
        if not getattr(type(self), name).read_only:
            super().notify_change(change)
        elif self._here.held is not None:
            self._here.held.append(change)
        else:
            self._here.called += 1
            try:
                super().notify_change(change)
            except Exception as error:  # noqa: BLE001 - whatever a user's observer raises
                self._here.failed = True
                self._on_observer_error(name, error)
            finally:
                self._here.called -= 1

    def bytes_of(self, budget: int | str) -> int:
        """A budget in bytes; per cent are of a plain step's peak, once that is known.

        Raises:
            ValueError: it is no budget.
        """
        scene = self._shown_scene()
        return parse_bytes(budget, whole=None if scene is None else scene.keep_all.peak_bytes)

    @traitlets.validate("budget")
    def _check_budget(self, proposal: Any) -> str:
        given = proposal["value"]
        amount = self.bytes_of(given)
        return given if isinstance(given, str) else style.format_memory(amount)

    @traitlets.validate("budget_bytes")
    def _check_budget_bytes(self, proposal: Any) -> int:
        return parse_bytes(proposal["value"])

    @traitlets.validate("selection")
    def _check_selection(self, proposal: Any) -> str:
        layer, scene = proposal["value"], self._shown_scene()
        if scene is not None:
            check_layer(scene.profile.graph, layer)
        return layer

    @traitlets.validate("curves")
    def _check_curves(self, proposal: Any) -> list[str]:
        known = known_curves()
        if unknown := [name for name in proposal["value"] if name not in known]:
            raise ValueError(f"curves has {unknown[0]!r}; allowed: {', '.join(map(repr, known))}")
        return list(dict.fromkeys(proposal["value"]))
