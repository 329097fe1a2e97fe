"""Recomputation by hand: keep or drop each tensor, see peak and time; then let the solver beat you."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import ipywidgets
import plotly.graph_objects as go

import explorer
from explorer.device_profile import Profile
from explorer.graph import Role
from explorer.recomputing import Recomputing
from explorer.schedule import Schedule
from explorer.solution import Solution, Status
from explorer.timeline import Stage, Timeline
from teaching.drawing import BLUE, GREEN, GREY, ORANGE, RED
from widgets.plots.shown import NO_SHARING
from widgets.style import FAINT, TEXT

_ABOVE = 1.05  # of the highest bar: the end of the axis


@dataclass(frozen=True)
class Move:
    """What a choice of tensors to drop comes to.

    Attributes:
        dropped: their names.
        schedule: everything else is kept; what is dropped is made again just before it is needed.
        timeline: of it.
        budget_bytes: of the game.
    """

    dropped: frozenset[str]
    schedule: Schedule
    timeline: Timeline
    budget_bytes: int

    @property
    def fits(self) -> bool:
        """Is the peak within the budget?"""
        return self.timeline.peak_bytes <= self.budget_bytes

    @property
    def extra_ms(self) -> float:
        """Time spent on recomputation."""
        return self.timeline.recompute_time_ms


class Game:
    """A step, a budget, and what may be dropped.

    Args:
        profile: graph and costs; of small networks, for every tensor is a button.
        budget_bytes: to fit.
        unit: what a byte is called.
    """

    def __init__(self, profile: Profile, *, budget_bytes: int, unit: str = "units") -> None:
        """Nothing is dropped yet."""
        self.profile, self.budget_bytes, self.unit = profile, budget_bytes, unit
        graph = profile.graph
        self._recomputing = Recomputing(graph)
        read = {x for op in graph.backward for x in op.default().reads}
        made = (x for op in graph.forward if not op.optional for x in op.default().writes)
        free = [graph.storages[x] for x in made if x not in self._recomputing.keepsakes]
        self.tensors = {x.name: x for x in free if x.role is Role.ACTIVATION and x.id in read and x.bytes}
        self._rest = {x for op in graph.forward for x in op.default().writes} - {x.id for x in self.tensors.values()}

    def play(self, dropped: Collection[str]) -> Move:
        """What dropping these comes to.

        Raises:
            ValueError: there is no such tensor, or it cannot be dropped.
        """
        if unknown := set(dropped) - self.tensors.keys():
            raise ValueError(f"no tensor {', '.join(sorted(unknown))} to drop; there are {', '.join(self.tensors)}")
        kept = self._rest | {x.id for name, x in self.tensors.items() if name not in dropped}
        schedule = self._recomputing.schedule(kept, method="by hand")
        return Move(frozenset(dropped), schedule, explorer.simulate(self.profile, schedule), self.budget_bytes)

    def solver(self, *, seconds: float = 10.0) -> Solution:
        """The fastest schedule that fits, proven where that takes no longer; it may drop a tensor again later."""
        return explorer.solve(
            self.profile, budget=self.budget_bytes, optimizations="none", gap=0.0, time_limit=seconds, remember=False
        )

    def dropped_by(self, schedule: Schedule) -> frozenset[str]:
        """What a schedule's forward pass does not keep."""
        line = explorer.simulate(self.profile, schedule)
        boundary = next(n for n, x in enumerate(line.operators) if x >= self.profile.graph.forward_count)
        kept = {x.storage for x in line.lifetimes if x.start < boundary <= x.end}
        return frozenset(name for name, x in self.tensors.items() if x.id not in kept)


class GameView(ipywidgets.VBox):
    """The game on the page: a button for each tensor, the memory of the step, and a button for the solver.

    Attributes:
        best: the fastest move of the player's own that fits; what the solver does is never one.
        played: what the solver found, once it was asked.
    """

    def __init__(self, game: Game) -> None:
        """Everything is kept at first."""
        self.game = game
        self.buttons = {
            name: ipywidgets.ToggleButton(
                value=True,
                description=f"{name} · {tensor.bytes}",
                icon="check",
                tooltip="pressed: kept",
                button_style="info",
                layout={"width": "auto"},
            )
            for name, tensor in game.tensors.items()
        }
        for button in self.buttons.values():
            button.observe(self._clicked, "value")
        self.message = ipywidgets.HTML()
        self.verdict = ipywidgets.HTML()
        self.figure = go.FigureWidget(layout=_layout(game))
        self.figure.set_trait("_config", NO_SHARING)  # a widget's figure takes it nowhere else
        solve = ipywidgets.Button(description="Let the solver play", button_style="success", layout={"width": "auto"})
        solve.on_click(lambda _: self.let_the_solver_play())
        again = ipywidgets.Button(description="Keep everything", layout={"width": "auto"})
        again.on_click(lambda _: self.drop(()))
        self._controls = (*self.buttons.values(), again, solve)
        self.best: Move | None = None
        self.played: Solution | None = None
        rows = ipywidgets.Box(list(self.buttons.values()), layout={"flex_flow": "row wrap"})
        super().__init__([rows, self.message, self.figure, ipywidgets.HBox([again, solve]), self.verdict])
        self.show()

    @property
    def move(self) -> Move:
        """What the buttons say."""
        return self.game.play([name for name, button in self.buttons.items() if not button.value])

    def drop(self, names: Collection[str]) -> None:
        """Set all buttons, as the player's next move."""
        for name, button in self.buttons.items():
            # What the buttons say in between is nobody's move.
            button.unobserve(self._clicked, "value")
            button.value = name not in names
            button.observe(self._clicked, "value")
            _paint(button)
        self.show()

    def show(self) -> None:
        """The player's present move."""
        move = self.move
        if move.fits and (self.best is None or move.extra_ms < self.best.extra_ms):
            self.best = move
        self._draw(move.timeline, title="Your move")
        self._judge()

    def let_the_solver_play(self) -> None:
        """Show the solver's own schedule, and by how much it is better; the buttons stay the player's."""
        self.verdict.value = "solving …"
        self._offer(there=False)  # a move in between would be drawn first, and be gone with the solver's
        try:
            self.played = self.game.solver()
        finally:
            self.verdict.value = ""
            self._offer(there=True)
        if self.played.schedule is not None:
            self._draw(explorer.simulate(self.game.profile, self.played.schedule), title="The solver's schedule")
        self._judge()

    def _offer(self, *, there: bool) -> None:
        for control in self._controls:
            control.disabled = not there

    def _draw(self, line: Timeline, *, title: str) -> None:
        peak, budget, unit = line.peak_bytes, self.game.budget_bytes, self.game.unit
        told = "fits" if peak <= budget else f"<b>{peak - budget} too many</b>"
        best = "" if self.best is None else f" · your best that fits: {self.best.extra_ms:g} ms"
        self.message.value = (
            f"{title}: peak <b>{peak}</b> of {budget} {unit}: {told} · <b>{line.recompute_time_ms:g} ms</b> of "
            f"recomputation{best}"
        )
        with self.figure.batch_update():
            self.figure.data = ()
            self.figure.add_traces(_bars(self.game, line))
            self.figure.layout.title.text = title

    def _judge(self) -> None:
        """Hold the player's best against what the solver found, if it was asked."""
        found = self.played
        if found is None:
            return
        if found.schedule is None:
            self.verdict.value = found.message
            return
        extra = explorer.simulate(self.game.profile, found.schedule).recompute_time_ms
        dropped = ", ".join(sorted(self.game.dropped_by(found.schedule))) or "nothing"
        against = "You have no schedule that fits yet" if self.best is None else f"You: {self.best.extra_ms:g} ms"
        self.verdict.value = (
            f"{against}; the solver: <b>{extra:g} ms</b> ({found.status.value}), dropping {dropped}: "
            f"{_compared(self.best, extra, proven=found.status is Status.OPTIMAL)}."
        )

    def _clicked(self, change: dict[str, Any]) -> None:
        _paint(change["owner"])
        self.show()


def _paint(button: ipywidgets.ToggleButton) -> None:
    button.icon = "check" if button.value else "times"
    button.button_style = "info" if button.value else "warning"


def _compared(best: Move | None, solver_ms: float, *, proven: bool) -> str:
    if best is None or best.extra_ms > solver_ms + 1e-9:
        return "the solver wins"
    if best.extra_ms < solver_ms - 1e-9:
        return "you win"
    return "nobody can do better: you found it too" if proven else "as good as yours"


def _layout(game: Game) -> dict[str, Any]:
    budget = {
        "type": "line",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": game.budget_bytes,
        "y1": game.budget_bytes,
        "line": {"dash": "dash", "color": RED},
    }
    # Nothing dropped takes most: moves are compared on one axis.
    most = max(game.budget_bytes, game.play(()).timeline.peak_bytes)
    faint = {"gridcolor": FAINT, "zerolinecolor": FAINT}
    clear = "rgba(0, 0, 0, 0)"
    return {
        "template": "none",
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "font": {"color": TEXT},
        "modebar": {"bgcolor": clear, "color": TEXT},
        "height": 330,
        "shapes": [budget],
        "margin": {"l": 50, "r": 10, "t": 60, "b": 40},
        "title": {"text": "", "font": {"size": 14}, "y": 0.97},
        "bargap": 0,
        "xaxis": {"title": "ms", **faint},
        "yaxis": {"title": game.unit, "range": [0, _ABOVE * most], **faint},
        "legend": {"orientation": "h", "y": 1.15},
    }


def _bars(game: Game, line: Timeline) -> list[go.Bar]:
    ends = line.times_ms.cumsum()
    found = []
    for stage, colour in (
        (Stage.FORWARD, BLUE),
        (Stage.RECOMPUTE, RED),
        (Stage.BACKWARD, ORANGE),
        (Stage.UPDATE, GREEN),
    ):
        mine = [n for n, x in enumerate(line.stages) if x is stage and line.times_ms[n] > 0]
        if mine:
            names = [game.profile.graph.operators[line.operators[n]].name for n in mine]
            found.append(
                go.Bar(
                    x=[float(ends[n] - line.times_ms[n] / 2) for n in mine],
                    y=[int(line.total_bytes[n]) for n in mine],
                    name=stage.value,
                    width=[float(line.times_ms[n]) for n in mine],
                    marker={"color": colour, "line": {"color": GREY, "width": 0.5}},
                    text=names,
                    textposition="none",
                    hovertemplate="%{text}: %{y}<extra></extra>",
                )
            )
    return found
