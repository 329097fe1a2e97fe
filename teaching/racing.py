"""Annealing, branch and bound, and both together on one problem: what each has found and proven when."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go

from explorer.device_profile import Profile
from explorer.solution import Solution
from explorer.solvers.formulation import grouped
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options
from explorer.solvers.programs.scip import minimise
from explorer.solvers.strategy import Strategy
from teaching.drawing import BLUE, GREEN, ORANGE
from widgets.plots.shown import ShownFigure

ANNEALING = Strategy(
    blueprints=False,
    population=False,
    programs=False,
    whole_bounds=False,
    blueprint_bound=False,
    critical_ends=False,
    deep=False,
    tightening=False,
)
"""Searches one after the other, and the bound of one linear relaxation."""


_ABOVE = 8.0
"""Per cent over the best schedule that are shown: the first ones of branch and bound are far above."""


@dataclass(frozen=True)
class Moment:
    """What was known at a time.

    Attributes:
        seconds: since the budget was asked for.
        time_ms: of the best schedule; None without one.
        bound_ms: proven; None without one.
    """

    seconds: float
    time_ms: float | None
    bound_ms: float | None


def annealing(profile: Profile, budget: int, *, seconds: float) -> list[Moment]:
    """The plan search alone."""
    return _pursued(profile, budget, Options(time_limit=seconds, gap=0.0, strategy=ANNEALING))


def together(profile: Profile, budget: int, *, seconds: float) -> list[Moment]:
    """What ``explorer.solve`` does: searching beside proving, each fed by the other."""
    return _pursued(profile, budget, Options(time_limit=seconds, gap=0.0))


def _pursued(profile: Profile, budget: int, options: Options) -> list[Moment]:
    knowledge = Knowledge(options.problem(profile))
    knowledge.search.ready(timeout=300.0)
    began = time.monotonic()
    found: list[Moment] = []

    def note(solution: Solution) -> None:
        found.append(Moment(time.monotonic() - began, solution.time_ms, solution.bound_ms()))

    last = Pursuit(knowledge, budget, replace(options), began=began).run(on_solution=note)
    note(last)
    return found


def branch_and_bound(profile: Profile, budget: int, *, seconds: float) -> list[Moment]:
    """SCIP on the grouped program, from nothing; its bound is for schedules of this grouping."""
    problem = Options().problem(profile)
    began = time.monotonic()
    model = grouped.build(problem, budget)
    found = [Moment(0.0, None, None)]

    def incumbent(_: np.ndarray, time_ms: float) -> None:
        found.append(Moment(time.monotonic() - began, time_ms, found[-1].bound_ms))

    def bound(bound_ms: float) -> None:
        if bound_ms > 0:
            found.append(Moment(time.monotonic() - began, found[-1].time_ms, bound_ms))

    left_s = max(0.1, seconds - (time.monotonic() - began))
    minimise(model.milp, time_limit=left_s, gap=0.0, on_incumbent=incumbent, on_bound=bound)
    found.append(Moment(time.monotonic() - began, found[-1].time_ms, found[-1].bound_ms))
    return found


def race(ways: dict[str, list[Moment]], *, plain_ms: float) -> go.Figure:
    """Schedules from above and bounds from below, in per cent of a step without recomputation."""
    figure = ShownFigure()
    known = [
        100 * (y / plain_ms - 1) for x in ways.values() for m in x for y in (m.time_ms, m.bound_ms) if y is not None
    ]
    best = min(x[-1].time_ms for x in ways.values() if x[-1].time_ms is not None)
    for (name, moments), colour in zip(ways.items(), (BLUE, ORANGE, GREEN), strict=False):
        for what, dash in (("time_ms", "solid"), ("bound_ms", "dot")):
            points = [(x.seconds, y) for x in moments if (y := getattr(x, what)) is not None]
            figure.add_scatter(
                x=[x for x, _ in points],
                y=[100 * (y / plain_ms - 1) for _, y in points],
                mode="lines",
                line_shape="hv",
                line={"color": colour, "dash": dash},
                name=name + (", schedule" if what == "time_ms" else ", bound"),
            )
    figure.update_layout(
        title="Schedules (lines) and bounds (dots)",
        template="plotly_white",
        height=420,
        xaxis={"title": "s", "type": "log"},
        yaxis={"title": "extra time, %", "range": [min(known) - 1, 100 * (best / plain_ms - 1) + _ABOVE]},
        margin={"l": 60, "r": 10, "t": 50, "b": 40},
    )
    return figure
