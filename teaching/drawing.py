"""Pictures of the course, by plotly: a step as boxes in time, a search as a tree, rows of a program as formulae."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from explorer import simulate
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.timeline import Category, Stage, Timeline
from widgets.plots.shown import ShownFigure

BLUE, ORANGE, GREEN, GREY, RED = "#1f77b4", "#ff7f0e", "#2ca02c", "#bbbbbb", "#d62728"
_OF_CATEGORY = {
    Category.SAVED: BLUE,
    Category.TEMPORARIES: "#9ecae1",
    Category.RECOMPUTED: RED,
    Category.ACTIVATION_GRADIENTS: ORANGE,
    Category.PARAMETER_GRADIENTS: GREEN,
}
_OF_STAGE = {Stage.FORWARD: BLUE, Stage.RECOMPUTE: RED, Stage.BACKWARD: ORANGE, Stage.UPDATE: GREEN}


def boxes(profile: Profile, schedule: Schedule, *, budget: int | None = None, title: str = "") -> go.Figure:
    """A step as boxes: a row for each tensor, from when it is made to when it is freed; below, what that adds up to.

    Moving the slider, or playing, goes through the step run by run; it needs no kernel.

    Args:
        profile: graph and costs.
        schedule: for it.
        budget: drawn as a line.
        title: above it.
    """
    line = simulate(profile, schedule)
    ends = np.cumsum(line.times_ms)
    starts = ends - line.times_ms
    figure = _two_rows(title)
    names = {x.id: x.name for x in profile.graph.storages}
    there = (x for x in line.lifetimes if profile.graph.storages[x.storage].bytes)
    stays = sorted(there, key=lambda x: (x.start, x.storage))
    order = {x: n for n, x in enumerate(dict.fromkeys(x.storage for x in stays))}
    for stay in stays:
        size = profile.graph.storages[stay.storage].bytes
        figure.add_bar(
            base=[starts[stay.start]],
            x=[ends[stay.end] - starts[stay.start]],
            y=[order[stay.storage]],
            orientation="h",
            marker={"color": _OF_CATEGORY.get(stay.category, GREY), "line": {"color": "white", "width": 1}},
            text=f"{names[stay.storage]}: {size}",
            textposition="inside",
            insidetextanchor="middle",
            hovertemplate=f"{names[stay.storage]}, {size} units<extra></extra>",
            showlegend=False,
            width=0.8,
            row=1,
            col=1,
        )
    _total(figure, line)
    figure.update_yaxes(showticklabels=False, autorange="reversed", row=1, col=1)
    _animate(figure, profile, line, budget)
    return figure


def _two_rows(title: str) -> go.Figure:
    from plotly.subplots import make_subplots

    figure = make_subplots(
        figure=ShownFigure(), rows=2, cols=1, shared_xaxes=True, row_heights=[0.62, 0.38], vertical_spacing=0.06
    )
    figure.update_layout(
        title=title, template="plotly_white", height=480, barmode="overlay", margin={"l": 60, "r": 10, "t": 60, "b": 40}
    )
    figure.update_xaxes(title="ms", row=2, col=1)
    figure.update_yaxes(title="in memory", row=2, col=1, rangemode="tozero")
    return figure


def _total(figure: go.Figure, line: Timeline) -> None:
    """What is in memory during each run, coloured by what the run is for."""
    ends = np.cumsum(line.times_ms)
    for stage, colour in _OF_STAGE.items():
        mine = [n for n, x in enumerate(line.stages) if x is stage and line.times_ms[n] > 0]
        if mine:
            figure.add_bar(
                x=[ends[n] - line.times_ms[n] / 2 for n in mine],
                y=[int(line.total_bytes[n]) for n in mine],
                width=[float(line.times_ms[n]) for n in mine],
                marker={"color": colour, "opacity": 0.55, "line": {"width": 0.5, "color": "white"}},
                name=stage.value,
                row=2,
                col=1,
            )


def _animate(figure: go.Figure, profile: Profile, line: Timeline, budget: int | None) -> None:
    """A cursor that goes through the runs, by plotly's own slider: a line, so that the boxes stay as they are."""
    middles = np.cumsum(line.times_ms) - line.times_ms / 2
    fixed = []
    if budget is not None:
        looks = {"type": "line", "xref": "paper", "yref": "y2", "line": {"color": RED, "dash": "dash"}}
        fixed.append({**looks, "x0": 0, "x1": 1, "y0": budget, "y1": budget})
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=budget, yref="y2", yshift=9, text="budget", showarrow=False
        )

    def cursor(n: int) -> list[dict[str, Any]]:
        at = float(middles[n])
        looks = {"type": "line", "xref": "x", "yref": "paper", "line": {"color": "black", "width": 1.5}}
        return [*fixed, {**looks, "x0": at, "x1": at, "y0": 0, "y1": 1}]

    steps = []
    for n, operator in enumerate(line.operators):
        told = (
            f"{profile.graph.operators[operator].name} ({line.stages[n].value}): {int(line.total_bytes[n])} in memory"
        )
        jump = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
        steps.append({"method": "animate", "label": told, "args": [[str(n)], jump]})
    figure.frames = [go.Frame(name=str(n), layout={"shapes": cursor(n)}) for n in range(len(line.operators))]
    pace = {"frame": {"duration": 500, "redraw": True}, "transition": {"duration": 0}, "fromcurrent": True}
    play = {"label": "Play", "method": "animate", "args": [None, pace]}
    figure.update_layout(
        shapes=cursor(0),
        sliders=[
            {
                "steps": steps,
                "currentvalue": {"prefix": "", "font": {"color": "black"}},
                "font": {"color": "rgba(0,0,0,0)"},
                "ticklen": 0,
                "pad": {"t": 40},
            }
        ],
        updatemenus=[
            {"type": "buttons", "buttons": [play], "x": 1.0, "y": 1.17, "xanchor": "right", "showactive": False}
        ],
    )


@dataclass(frozen=True)
class Node:
    """Of a tree of branch and bound.

    Attributes:
        number: its own.
        parent: whose child it is; None: the root.
        decided: what was added on the way from the parent.
        bound: of the relaxation; None where that has no solution.
        ended: why nothing branches here; empty where something does.
    """

    number: int
    parent: int | None
    decided: str
    bound: float | None
    ended: str = ""


def tree(nodes: Sequence[Node], *, title: str = "Branch and bound") -> go.Figure:
    """A search as a tree, from the top; hover to read a node."""
    children: dict[int | None, list[Node]] = {}
    for x in nodes:
        children.setdefault(x.parent, []).append(x)
    place: dict[int, tuple[float, int]] = {}
    leaves = 0

    def put(node: Node, depth: int) -> float:
        nonlocal leaves
        below = [put(x, depth + 1) for x in children.get(node.number, ())]
        if not below:
            leaves += 1
        across = sum(below) / len(below) if below else float(leaves)
        place[node.number] = across, -depth
        return across

    for root in children[None]:
        put(root, 0)
    figure = ShownFigure()
    for x in nodes:
        if x.parent is not None:
            (x0, y0), (x1, y1) = place[x.parent], place[x.number]
            figure.add_scatter(
                x=[x0, x1],
                y=[y0, y1],
                mode="lines",
                line={"color": GREY, "width": 1},
                hoverinfo="skip",
                showlegend=False,
            )
    looks = {
        "": ("branched", BLUE),
        "incumbent": ("whole numbers: a schedule", GREEN),
        "bound": ("cut off: no better", ORANGE),
        "infeasible": ("no solution", RED),
    }
    for ended, (name, colour) in looks.items():
        mine = [x for x in nodes if x.ended == ended]
        if mine:
            figure.add_scatter(
                x=[place[x.number][0] for x in mine],
                y=[place[x.number][1] for x in mine],
                mode="markers+text",
                name=name,
                marker={"size": 14, "color": colour},
                textposition="bottom center",
                textfont={"size": 9},
                text=["" if x.bound is None else f"{x.bound:.3g}" for x in mine] if len(nodes) <= 60 else None,
                hovertext=[
                    f"{x.number}: {x.decided or 'root'}, "
                    + ("no solution" if x.bound is None else f"bound {x.bound:.3f}")
                    for x in mine
                ],
                hoverinfo="text",
            )
    figure.update_layout(
        title=title,
        template="plotly_white",
        height=460,
        margin={"l": 10, "r": 10, "t": 50, "b": 10},
        xaxis={"visible": False},
        yaxis={"visible": False},
    )
    return figure


def formulae(rows: Sequence[Any], names: Sequence[tuple[str, Any]]) -> Any:
    """Linear cvxpy constraints as LaTeX, with what stands before each variable written out.

    Args:
        rows: scalar ``<=``, ``>=`` or ``==`` of affine expressions.
        names: the variables that they may be in, with the letter of each.

    Returns:
        What a notebook shows as formulae.
    """
    from IPython.display import Math

    return Math(r"\begin{aligned}" + r" \\ ".join(_formula(x, names) for x in rows) + r"\end{aligned}")


def _formula(row: Any, names: Sequence[tuple[str, Any]]) -> str:
    """A row as ``Σ a x ≤ b``: what cvxpy keeps is left − right ≤ 0, evaluated at unit vectors."""
    variables = [x for _, x in names]
    before = [x.value for x in variables]
    zeros = [np.zeros(x.shape) for x in variables]
    for x, zero in zip(variables, zeros, strict=True):
        x.save_value(zero)
    constant = float(np.asarray(row.expr.value))
    terms = []
    for letter, x in names:
        for index in np.ndindex(x.shape):
            unit = np.zeros(x.shape)
            unit[index] = 1.0
            x.save_value(unit)
            factor = float(np.asarray(row.expr.value)) - constant
            x.save_value(np.zeros(x.shape))
            if abs(factor) > 1e-12:
                terms.append((factor, f"{letter}_{{{','.join(map(str, index))}}}"))
    for x, value in zip(variables, before, strict=True):
        x.save_value(value)
    left = [(a, x) for a, x in terms if a > 0]
    right = [(-a, x) for a, x in terms if a < 0]
    sign = "=" if type(row).__name__ in {"Equality", "Zero"} else r"\le"
    return rf"{_sum(left, constant if constant > 0 else 0.0)} &{sign} {_sum(right, -constant if constant < 0 else 0.0)}"


def _sum(terms: Sequence[tuple[float, str]], constant: float) -> str:
    told = [x if a == 1 else rf"{a:g}\,{x}" for a, x in terms]
    if constant or not told:
        told.append(f"{constant:g}")
    return " + ".join(told)


def rectangles(blocks: Sequence[tuple[str, int, int, int, int]], *, height: int, title: str = "") -> go.Figure:
    """Tensors in one buffer: name, first run, last run, address and size of each.

    Args:
        blocks: each drawn as a rectangle over the runs at its addresses.
        height: of the buffer, drawn as a line.
        title: above it.
    """
    figure = ShownFigure()
    for number, (name, first, last, offset, size) in enumerate(blocks):
        colour = ("#9ecae1", "#fdae6b", "#a1d99b", "#bcbddc", "#fdd0a2", "#c7e9c0")[number % 6]
        figure.add_bar(
            base=[offset],
            y=[size],
            x=[(first + last) / 2],
            width=[last - first + 1],
            text=name,
            textposition="inside",
            showlegend=False,
            marker={"color": colour, "line": {"color": "#333", "width": 0.8}},
            hovertemplate=f"{name}: {size} at {offset}, runs {first} to {last}<extra></extra>",
        )
    figure.add_hline(y=height, line={"dash": "dash", "color": RED}, annotation_text=f"{height}")
    figure.update_layout(
        title=title,
        template="plotly_white",
        height=380,
        barmode="overlay",
        xaxis={"title": "run"},
        yaxis={"title": "address"},
        margin={"l": 60, "r": 10, "t": 50, "b": 40},
    )
    return figure
