"""The traits of an explorer: what a script reads, sets, observes and links."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import traitlets

from explorer.measurement import Measurement
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.units import parse_bytes
from widgets import style
from widgets.curves import known_curves
from widgets.layers import check_layer
from widgets.panel import Scene
from widgets.solving import Choice
from widgets.telling import Told

T = TypeVar("T")


def _shown(kind: type[T]) -> traitlets.Instance[T | None]:
    """A trait that only the explorer sets; None until there is one."""
    return cast("traitlets.Instance[T | None]", traitlets.Instance(kind, allow_none=True, read_only=True))


class State(Told):
    """Traits of an explorer, with what they accept.

    What an answer changes of them changes together: an observer of one finds the others up to date. An observer that
    raises is named in the status line, and ``wait`` raises the same.

    Attributes:
        budget: as it was given, or as the slider reads (``"0.450 GiB"``); set it to solve for another.
        budget_bytes: the same in bytes.
        selection: module path of the layer that is marked in every panel, with all below it (``"layer1.0"``); empty for
            none. Set it to select. What is set before the first schedule is there, and is no layer, is emptied again.
        curves: names of what the trade-off plot shows beside the present curve; set it to add some. One
            that is cancelled or cannot be computed is taken out again.
        solution: the latest answer, None before the first.
        schedule: its schedule, None where it has none.
        status: ``"opening"``, ``"solving"``, ``"running"``, ``"playing"``, ``"comparing"``, ``"closed"``, or how the
            last solve ended (a ``Status``).
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

    _scene: Scene | None = None

    @traitlets.validate("budget")
    def _check_budget(self, proposal: Any) -> str:
        given = proposal["value"]
        amount = self._bytes_of(given)
        return given if isinstance(given, str) else style.format_gib(amount)

    @traitlets.validate("budget_bytes")
    def _check_budget_bytes(self, proposal: Any) -> int:
        return parse_bytes(proposal["value"])

    def _bytes_of(self, budget: int | str) -> int:
        """A budget in bytes; per cent are of a plain step's peak, once that is known."""
        return parse_bytes(budget, whole=None if self._scene is None else self._scene.keep_all.peak_bytes)

    @traitlets.validate("selection")
    def _check_selection(self, proposal: Any) -> str:
        layer = proposal["value"]
        if self._scene is not None:
            check_layer(self._scene.profile.graph, layer)
        return layer

    @traitlets.validate("curves")
    def _check_curves(self, proposal: Any) -> list[str]:
        known = known_curves()
        if unknown := [name for name in proposal["value"] if name not in known]:
            raise ValueError(f"curves has {unknown[0]!r}; allowed: {', '.join(map(repr, known))}")
        return list(dict.fromkeys(proposal["value"]))
