"""A mixed-integer linear program as arrays: what a formulation hands to a solver, and what that answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import sparse

from explorer.solution import Statistics


@dataclass(frozen=True, eq=False)
class Milp:
    """Minimise ``objective @ x + objective_offset`` within the rows and bounds; infinities stand for absent bounds.

    Attributes:
        objective: float64, shape (columns,), in ms.
        objective_offset: constant part of the objective, in ms.
        matrix: shape (rows, columns).
        row_lower: float64, shape (rows,).
        row_upper: float64, shape (rows,).
        lower: float64, shape (columns,).
        upper: float64, shape (columns,).
        integer: bool, shape (columns,): which columns must be whole.
    """

    objective: np.ndarray
    objective_offset: float
    matrix: sparse.csr_matrix
    row_lower: np.ndarray
    row_upper: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    integer: np.ndarray

    def __post_init__(self) -> None:
        """Check that the shapes agree."""
        assert self.matrix.shape == (self.row_lower.size, self.objective.size)
        assert self.row_lower.shape == self.row_upper.shape
        assert self.objective.shape == self.lower.shape == self.upper.shape == self.integer.shape

    def statistics(self, groups: int) -> Statistics:
        """Its size; ``groups``: how many sweeps of recomputation it has."""
        return Statistics(self.row_lower.size, self.objective.size, int(self.matrix.nnz), groups)

    def columns(self, values: Mapping[str, np.ndarray], blocks: Mapping[str, slice]) -> np.ndarray:
        """The values of blocks of variables, shape (columns,), each where it lies."""
        x = np.zeros(self.objective.size)
        for name, block in blocks.items():
            x[block] = values[name].ravel()
        return x

    def violation(self, x: np.ndarray) -> float:
        """By how much ``x`` misses the worst of the rows and bounds, 0.0 where it keeps all of them."""
        activity = self.matrix @ x
        misses = (self.row_lower - activity, activity - self.row_upper, self.lower - x, x - self.upper)
        return max((float(miss.max(initial=0.0)) for miss in misses), default=0.0)


class MilpStatus(StrEnum):
    """How a minimisation ended."""

    OPTIMAL = "optimal"
    """The best solution, proven to within the gap that was asked for."""
    FEASIBLE = "feasible"
    """A solution; time ran out, or it was stopped."""
    INFEASIBLE = "infeasible"
    """Proven to have no solution."""
    UNKNOWN = "unknown"
    """Time ran out, it was stopped, or the solver gave up, before a solution was found or excluded."""


@dataclass(frozen=True, eq=False)
class MilpResult:
    """What a solver found.

    Attributes:
        status: how it ended.
        x: float64, shape (columns,), the best solution; None without one.
        objective: of ``x``, the constant part included; None without one.
        bound: no solution is below this; None if nothing is proven.
    """

    status: MilpStatus
    x: np.ndarray | None = None
    objective: float | None = None
    bound: float | None = None

    @property
    def proven(self) -> bool:
        """Is it solved to the gap that was asked for?"""
        return self.status is MilpStatus.OPTIMAL
