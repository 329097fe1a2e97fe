"""The solver panel: how the solve went, and what it was asked for."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import ipywidgets

from explorer.graph import Optimization
from widgets import text
from widgets.controls import button
from widgets.figures import Plot
from widgets.panel import Scene
from widgets.solver_plot import solver_figure
from widgets.work import KINDS

if TYPE_CHECKING:
    from widgets.explorer import Explorer
    from widgets.solving import Choice

_NAMES = {
    Optimization.OUTPUT: "Backward from outputs",
    Optimization.INTERMEDIATE: "Bit masks and indices",
    Optimization.CONVOLUTION: "Convolution algorithms",
    Optimization.INPLACE: "In place",
}
_LINES = 200  # of what SCIP says
_SILENT = "SCIP was not asked for this budget so far."
_LEAST_S, _MOST_S = 0.1, 24 * 3600.0


class SolverPanel:
    """Incumbent, bounds and gap over time, sizes and log; time limit and optimizations, which solve again."""

    name = "solver"
    title = "Solver"
    draws_from = ("solution", "news", "log", "scip_log")

    def __init__(self, explorer: Explorer) -> None:
        """Empty."""
        self._explorer = explorer
        self._following = False
        self.plot = Plot("solver")
        self.sizes = ipywidgets.HTML()
        self.log = ipywidgets.HTML()
        self.scip_log = ipywidgets.HTML()
        self.cancel = button("Cancel", "stop", "Stop solving; what was found stays")
        self.cancel.on_click(lambda _: explorer.cancel())
        self.time_limit = ipywidgets.BoundedFloatText(
            description="Time limit (s)",
            min=_LEAST_S,
            max=_MOST_S,
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="170px"),
        )
        self.chosen = {x: _checkbox(_NAMES[x]) for x in _NAMES}
        self.exact = _checkbox("Bit-exact only")
        for widget in (self.time_limit, self.exact, *self.chosen.values()):
            widget.observe(self._ask, "value")
        explorer.observe(lambda _: self._follow(), ["choice", "status"])
        self._follow()
        row = ipywidgets.HBox(
            [self.time_limit, *self.chosen.values(), self.exact, self.cancel],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0 14px"),
        )
        said = ipywidgets.HBox([self.sizes, self.log], layout=ipywidgets.Layout(flex_flow="row wrap"))
        self.box = ipywidgets.VBox([row, self.plot, said, self.scip_log])

    def show(self, scene: Scene) -> None:
        """Draw the latest solve."""
        self.plot.draw(solver_figure(scene.news))
        self.sizes.value = text.solver_table(scene.solution)
        lines = html.escape("\n".join(scene.log)) or "Nothing was solved yet."
        self.log.value = f"<pre class='log' role='log' tabindex='0' aria-label='Solver log'>{lines}</pre>"
        said = (
            html.escape("\n".join(scene.scip_log.splitlines()[-_LINES:]))
            or "SCIP was not asked for this budget so far."
        )
        self.scip_log.value = f"<pre class='log' role='log' tabindex='0' aria-label='SCIP log'>{said}</pre>"

    def _follow(self) -> None:
        """Bring the controls in line with what the explorer was asked for, and the button with what goes on."""
        choice: Choice = self._explorer.choice
        self._following = True
        try:
            self.time_limit.value = choice.time_limit
            self.exact.value = choice.exact
            for optimization, widget in self.chosen.items():
                widget.value = optimization in choice.optimizations
            self.cancel.disabled = self._explorer.status not in KINDS
        finally:
            self._following = False

    def _ask(self, _: Any) -> None:
        if self._following:
            return
        chosen = frozenset(x for x, widget in self.chosen.items() if widget.value)
        self._explorer.configure(optimizations=chosen, exact=self.exact.value, time_limit=self.time_limit.value)


def _checkbox(label: str) -> ipywidgets.Checkbox:
    return ipywidgets.Checkbox(description=label, indent=False, layout=ipywidgets.Layout(width="auto"))
