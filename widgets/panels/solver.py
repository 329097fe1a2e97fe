"""The solver panel: how the solve went, and what it was asked for."""

from __future__ import annotations

import threading
from typing import Any

import ipywidgets

from explorer.device_profile import Profile
from explorer.graph import Optimization
from widgets import text
from widgets.background import KINDS
from widgets.elements.button import button
from widgets.elements.log import Log
from widgets.elements.plot import Plot
from widgets.panels.panel import PanelOwner
from widgets.plots.figure import Figure
from widgets.plots.solver_plot import solver_figure
from widgets.scene.scene import Scene

_NAMES = {
    Optimization.OUTPUT: "Backward from outputs",
    Optimization.INTERMEDIATE: "Bit masks and indices",
    Optimization.CONVOLUTION: "Convolution algorithms",
    Optimization.INPLACE: "In place",
    Optimization.FUSED: "Fused kernels",
}
_UPDATES = [("at the end", "end"), ("within the backward pass", "within")]
_LINES = 200  # of what SCIP says
_SILENT = "SCIP was not asked for this budget so far."
_LEAST_S, _MOST_S = 0.1, 24 * 3600.0


class SolverPanel:
    """Incumbent, bounds and gap over time, sizes and log; time limit and optimizations, which solve again."""

    name = "solver"
    title = "Solver"
    question = "How good is the answer, and how was it found?"
    draws_from = ("profile", "solution", "news", "log", "scip_log")

    def __init__(self, owner: PanelOwner) -> None:
        """Empty."""
        self._owner = owner
        self._lock = threading.Lock()
        self._following: int | None = None  # the thread in which the controls are brought in line
        self.plot = Plot("solver")
        self.sizes = ipywidgets.HTML()
        self.log = Log("Solver log")
        self.scip_log = Log("SCIP log")
        self.cancel = button("Cancel", "stop", "Stop solving; what was found stays")
        self.cancel.on_click(lambda _: owner.cancel())
        self.time_limit = ipywidgets.BoundedFloatText(
            description="Time limit (s)",
            min=_LEAST_S,
            max=_MOST_S,
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="170px"),
        )
        self.chosen = {x: _checkbox(_NAMES[x]) for x in _NAMES}
        self.exact = _checkbox("Bit-exact only")
        self.order = _checkbox("Other orders")
        self.order.tooltip = "Solve in the order of operators with the least memory too; the better answer is shown"
        self.update = ipywidgets.Dropdown(
            description="Updates",
            options=_UPDATES,
            tooltip="When parameters are updated: a gradient that is used within the backward pass is gone then",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="auto", display="none"),
        )
        self._offered: Profile | None = None
        for widget in (self.time_limit, self.exact, self.order, self.update, *self.chosen.values()):
            widget.observe(self._ask, "value")
        owner.observe(lambda _: self._follow(), "choice")
        owner.observe(lambda _: self._offer(), "status")
        self._follow()
        self._offer()
        row = ipywidgets.HBox(
            [self.time_limit, *self.chosen.values(), self.exact, self.order, self.update, self.cancel],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 14px"),
        )
        said = ipywidgets.HBox([self.sizes, self.log], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.box = ipywidgets.VBox([row, self.plot, said, self.scip_log])

    def show(self, scene: Scene) -> None:
        """Draw the latest solve."""
        if scene.profile is not self._offered:
            self._offered = scene.profile
            self.update.layout.display = None if scene.profile.can_update_within else "none"
            self._follow()
        self.plot.draw(solver_figure(scene.news))
        self.sizes.value = text.solver_table(scene.solution)
        self.log.text = "\n".join(scene.log) or "Nothing was solved yet."
        self.scip_log.text = "\n".join(scene.scip_log.splitlines()[-_LINES:]) or _SILENT

    @staticmethod
    def figure(scene: Scene) -> Figure | None:
        """The latest solve; None before one."""
        return solver_figure(scene.news) if scene.news else None

    def _follow(self) -> None:
        """Bring the controls in line with what the explorer was asked for."""
        with self._lock:
            choice = self._owner.choice
            self._following = threading.get_ident()
            try:
                self.time_limit.value = choice.time_limit
                self.exact.value = choice.exact
                self.order.value = choice.order
                planned = self._offered is not None and self._offered.graph.iteration.within
                self.update.value = choice.update or ("within" if planned else "end")
                for optimization, widget in self.chosen.items():
                    widget.value = optimization in choice.optimizations
            finally:
                self._following = None

    def _offer(self) -> None:
        """Bring the button in line with what goes on."""
        self.cancel.disabled = self._owner.status not in KINDS

    def _ask(self, change: Any) -> None:
        """Ask for what was changed, and that alone: another thread may be bringing the other controls in line."""
        if self._following == threading.get_ident():
            return
        widget, value = change["owner"], change["new"]
        if widget is self.time_limit:
            self._owner.ask(time_limit=value)
        elif widget is self.exact:
            self._owner.ask(exact=value)
        elif widget is self.order:
            self._owner.ask(order=value)
        elif widget is self.update:
            self._owner.ask(update=value)
        else:
            clicked = frozenset(x for x, box in self.chosen.items() if box is widget)
            before = self._owner.choice.optimizations
            self._owner.ask(optimizations=before | clicked if value else before - clicked)
        self._follow()  # what was refused must not look as if it were so


def _checkbox(label: str) -> ipywidgets.Checkbox:
    return ipywidgets.Checkbox(description=label, indent=False, layout=ipywidgets.Layout(width="auto"))
