"""Stages by operators: which activations are in memory when, and which are made again (Checkmate's view)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from explorer.graph import TrainingGraph
from explorer.timeline import Category, Stage, Timeline


class Cell(IntEnum):
    """What a stage does with an operator's result; where several cells are drawn as one, the highest shows."""

    ABSENT = 0
    KEPT = 1
    KEPT_AGAIN = 2
    """In memory since a recomputation."""
    COMPUTED = 3
    RECOMPUTED = 4


@dataclass(frozen=True, eq=False)
class Matrix:
    """What is kept and what is computed, stage by stage.

    Attributes:
        cells: uint8, shape (rows, columns), values of ``Cell``.
        stages: operator that each row's stage is for, its first where a row stands for several; shape (rows,).
        operators: forward operator of each column, its first where a column stands for several; shape (columns,).
        forward_rows: how many rows are of the forward pass.
    """

    cells: np.ndarray
    stages: np.ndarray
    operators: np.ndarray
    forward_rows: int


def schedule_matrix(
    graph: TrainingGraph,
    timeline: Timeline,
    *,
    among: frozenset[int] = frozenset(),
    most_rows: int = 180,
    most_columns: int = 300,
) -> Matrix:
    """Rows are stages, one for every operator that runs for the first time, with the recomputations just before it.

    Args:
        graph: of the timeline.
        timeline: what happens.
        among: forward operators to show; all if there is none.
        most_rows: neighbouring stages are gathered until so few are left that one can be seen.
        most_columns: neighbouring operators are gathered until so few are left.
    """
    stage_of_run, stages = _stages(timeline)
    columns = np.array([x for x in range(graph.forward_count) if not among or x in among], dtype=np.int64)
    if not len(columns):
        columns = np.arange(graph.forward_count)
    row_starts, column_starts = _starts(len(stages), most_rows), _starts(len(columns), most_columns)
    row_of_run = np.searchsorted(row_starts, stage_of_run, side="right") - 1
    column_of = np.full(graph.forward_count, -1)
    column_of[columns] = np.searchsorted(column_starts, np.arange(len(columns)), side="right") - 1
    # Written where it shows: stages by operators of a deep model would be a hundred million cells.
    cells = np.zeros((len(row_starts), len(column_starts)), dtype=np.uint8)
    for lifetime in timeline.lifetimes:
        producer = graph.producer[lifetime.storage]
        if producer < graph.forward_count and column_of[producer] >= 0:
            shown = cells[row_of_run[lifetime.start] : row_of_run[lifetime.end] + 1, column_of[producer]]
            kept = Cell.KEPT_AGAIN if lifetime.category is Category.RECOMPUTED else Cell.KEPT
            np.maximum(shown, np.uint8(kept), out=shown)
    operators = np.array(timeline.operators)
    again = np.array([stage is Stage.RECOMPUTE for stage in timeline.stages], dtype=bool)
    for runs, cell in ((~again & (operators < graph.forward_count), Cell.COMPUTED), (again, Cell.RECOMPUTED)):
        runs[runs] = column_of[operators[runs]] >= 0
        np.maximum.at(cells, (row_of_run[runs], column_of[operators[runs]]), np.uint8(cell))
    forward_rows = int((stages[row_starts] < graph.forward_count).sum())
    return Matrix(cells, stages[row_starts], columns[column_starts], forward_rows)


def _stages(timeline: Timeline) -> tuple[np.ndarray, np.ndarray]:
    """Stage of every run, and the operator of every stage."""
    own = np.array([stage is not Stage.RECOMPUTE for stage in timeline.stages], dtype=bool)
    stage_of_run = np.cumsum(own) - own
    return stage_of_run, np.array(timeline.operators)[own]


def _starts(count: int, most: int) -> np.ndarray:
    """First of each of at most ``most`` nearly equal stretches."""
    return np.unique(np.linspace(0, count, min(most, count), endpoint=False).astype(np.int64))
