"""The schedule matrix as a picture."""

from __future__ import annotations

import numpy as np

from explorer.graph import TrainingGraph
from explorer.timeline import Timeline
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, heatmap, scatter, short_path
from widgets.scene.layers import NO_MODULE, stretches
from widgets.scene.matrix import Cell, Matrix, schedule_matrix

_TICK = 14  # characters beside an axis
_COLOURS = {
    Cell.ABSENT: "rgba(128, 128, 128, 0.08)",
    Cell.KEPT: style.ORANGE,
    Cell.KEPT_AGAIN: style.LIGHT_VERMILLION,
    Cell.COMPUTED: style.BLUE,
    Cell.RECOMPUTED: style.VERMILLION,
}
_NAMES = {
    Cell.ABSENT: "not in memory",
    Cell.KEPT: "kept",
    Cell.KEPT_AGAIN: "in memory again",
    Cell.COMPUTED: "computed",
    Cell.RECOMPUTED: "recomputed",
}


def matrix_figure(
    graph: TrainingGraph,
    timeline: Timeline,
    *,
    selected: frozenset[int] = frozenset(),
    only_selected: bool = False,
) -> Figure:
    """Stages downwards, forward operators to the right.

    Args:
        graph: of the timeline.
        timeline: of the schedule.
        selected: operators whose columns are marked at the upper edge.
        only_selected: leave the others out.
    """
    matrix = schedule_matrix(graph, timeline, among=selected if only_selected else frozenset())
    rows, columns = matrix.cells.shape
    said = f"Stages by operators: {rows} by {columns} cells, kept, computed or recomputed"
    ticks, rules = stretches(graph, matrix.operators), stretches(graph, matrix.stages)
    layout = dict(
        **(base_layout(520, said) | {"margin": {"l": 90, "r": 12, "t": 28, "b": 60}}),
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
        xaxis=axis(
            "forward operators",
            range=[-0.5, columns - 0.5],
            # The reader's zoom is of these columns.
            uirevision=f"operators {sorted(selected)}" if only_selected else "all operators",
            showgrid=False,
            automargin=True,
            tickangle=-35,
            tickvals=[(x.start + x.end - 1) / 2 for x in ticks],
            ticktext=[short_path(x.label, most=_TICK) for x in ticks],
        ),
        yaxis=axis(
            "stages",
            range=[rows - 0.5, -0.5],
            showgrid=False,
            automargin=True,
            tickvals=[(x.start + x.end - 1) / 2 for x in rules],
            ticktext=[short_path(x.label, most=_TICK) for x in rules],
        ),
        shapes=[_boundary(matrix)],
    )
    traces: list[Trace] = [_heatmap(graph, matrix), *map(_key, list(Cell)[1:])]
    if selected and not only_selected:
        traces.append(_marks(matrix, selected))
    return Figure(traces, layout)


def _heatmap(graph: TrainingGraph, matrix: Matrix) -> Trace:
    """The cells; ``meta`` has each column's layer, which is what a click selects."""
    layers = [graph.operators[x].layer or NO_MODULE for x in matrix.operators.tolist()]
    names = [graph.operators[x].name for x in matrix.operators.tolist()]
    stages = [graph.operators[x].name for x in matrix.stages.tolist()]
    steps = [
        colour
        for cell in Cell
        for colour in ([cell / len(Cell), _COLOURS[cell]], [(cell + 1) / len(Cell), _COLOURS[cell]])
    ]
    return heatmap(
        z=matrix.cells,
        zmin=-0.5,
        zmax=len(Cell) - 0.5,
        colorscale=steps,
        showscale=False,
        meta={
            "picks": layers,
            "columns": [f"{a} ({b})" for a, b in zip(names, layers, strict=True)],
            "rows": stages,
            "values": list(_NAMES.values()),
        },
        hoverinfo="none",
        name="schedule",
    )


def _key(cell: Cell) -> Trace:
    """An entry of the legend."""
    marker = {"symbol": "square", "size": 11, "color": _COLOURS[cell]}
    return scatter(name=_NAMES[cell], x=[None], y=[None], mode="markers", marker=marker)


def _marks(matrix: Matrix, selected: frozenset[int]) -> Trace:
    """Triangles over the columns that hold an operator of the selected layer."""
    ends = np.append(matrix.operators[1:], matrix.operators[-1] + 1)
    columns = [
        column
        for column, (start, end) in enumerate(zip(matrix.operators.tolist(), ends.tolist(), strict=True))
        if any(start <= x < end for x in selected)
    ]
    return scatter(
        name="selected layer",
        x=columns,
        y=[-0.5] * len(columns),
        mode="markers",
        marker={"symbol": "triangle-down", "size": 9, "color": "#000000", "line": {"width": 1, "color": "#ffffff"}},
        cliponaxis=False,
        hoverinfo="skip",
    )


def _boundary(matrix: Matrix) -> dict:
    """A line where the backward pass begins."""
    y = matrix.forward_rows - 0.5
    line = {"color": style.TEXT, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}
