"""The matrix is the timeline's lifetimes and runs, cell by cell."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.simulation import simulate
from explorer.timeline import Stage
from tests.schedules import random_schedule
from tests.widgets.checking import checked
from tests.widgets.trained import Trained
from widgets.plots.matrix_plot import matrix_figure
from widgets.scene.matrix import Cell, schedule_matrix


@pytest.mark.parametrize("keep", [0.1, 0.6])
def test_cells_say_what_happens(trained: Trained, keep: float) -> None:
    graph = trained.profile.graph
    timeline = simulate(trained.profile, random_schedule(graph, 7, keep=keep))
    matrix = schedule_matrix(graph, timeline, most_rows=10**6, most_columns=10**6)
    own = [x for x, stage in zip(timeline.operators, timeline.stages, strict=True) if stage is not Stage.RECOMPUTE]
    assert matrix.stages.tolist() == own
    assert matrix.operators.tolist() == list(range(graph.forward_count))
    assert matrix.forward_rows == sum(x < graph.forward_count for x in own)
    # A stage may recompute an operator once; the operator of a forward stage is computed in it.
    recomputed = int((matrix.cells == Cell.RECOMPUTED).sum())
    assert recomputed == sum(stage is Stage.RECOMPUTE for stage in timeline.stages)
    for row, operator in enumerate(own[: matrix.forward_rows]):
        assert matrix.cells[row, operator] == Cell.COMPUTED
        assert not (matrix.cells[:row, operator]).any()


def test_gathered_cells_lose_no_recomputation(trained: Trained) -> None:
    graph = trained.profile.graph
    timeline = simulate(trained.profile, random_schedule(graph, 8, keep=0.2))
    whole = schedule_matrix(graph, timeline)
    small = schedule_matrix(graph, timeline, most_rows=12, most_columns=9)
    assert small.cells.shape == (12, 9)
    rows = np.searchsorted(whole.stages, small.stages[: small.forward_rows])
    assert (np.diff(rows) > 0).all()
    assert small.cells.max() == whole.cells.max() == Cell.RECOMPUTED
    assert ((small.cells == Cell.RECOMPUTED).sum(axis=0) > 0).sum() <= (whole.cells == Cell.RECOMPUTED).any(
        axis=0
    ).sum()


def test_only_the_selected_layer(trained: Trained) -> None:
    graph = trained.profile.graph
    timeline = simulate(trained.profile, random_schedule(graph, 9, keep=0.4))
    selected = frozenset(x.id for x in graph.forward if x.layer.startswith("blocks.1"))
    assert schedule_matrix(graph, timeline, among=selected).operators.tolist() == sorted(selected)
    names = [trace.name for trace in checked(matrix_figure(graph, timeline, selected=selected)).data]
    assert "selected layer" in names
    alone = checked(matrix_figure(graph, timeline, selected=selected, only_selected=True))
    assert alone.data[0].z.shape[1] == len(selected)
    # A zoom to some columns is no zoom to others.
    marked = checked(matrix_figure(graph, timeline, selected=selected))
    assert len({x.layout.xaxis.uirevision for x in (alone, marked, checked(matrix_figure(graph, timeline)))}) == 2
    assert alone.data[0].meta["picks"] == [graph.operators[x].layer for x in sorted(selected)]
