"""From a cvxpy model to the arrays a solver takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import cvxpy as cp
import numpy as np
from scipy import sparse

from explorer.solvers.programs.milp import Milp

ROUNDING = 1e-11
"""By how much floating-point sums may miss a row that whole bytes keep exactly."""

Term = tuple[str, int, float]
"""Block of variables, position in it, coefficient."""
Amount = tuple[list[Term], float]
"""A linear expression: terms and a constant."""


def scaled(amount: Amount, factor: float) -> Amount:
    """A multiple of an expression."""
    terms, constant = amount
    return [(block, position, coefficient * factor) for block, position, coefficient in terms], constant * factor


class Rows:
    """Rows of one constraint family, collected term by term, stated to cvxpy as a few sparse products."""

    def __init__(self, variables: Mapping[str, cp.Variable]) -> None:
        """``variables``: the blocks that terms may name."""
        self._variables = variables
        self._terms: dict[str, tuple[list[int], list[int], list[float]]] = {x: ([], [], []) for x in variables}
        self._right: list[float] = []

    def add(self, terms: Sequence[Term], right: float) -> None:
        """Append the row ``Σ coefficient · variable`` compared with ``right``."""
        for block, position, coefficient in terms:
            rows, columns, values = self._terms[block]
            rows.append(len(self._right))
            columns.append(position)
            values.append(coefficient)
        self._right.append(right)

    def at_most(self) -> list[cp.Constraint]:
        """Every row ≤ its right-hand side; no constraint for a family without rows."""
        return [self._left() <= np.array(self._right)] if self._right else []

    def at_least(self) -> list[cp.Constraint]:
        """Every row ≥ its right-hand side."""
        return [self._left() >= np.array(self._right)] if self._right else []

    def equal(self) -> list[cp.Constraint]:
        """Every row = its right-hand side."""
        return [self._left() == np.array(self._right)] if self._right else []

    def _left(self) -> cp.Expression:
        parts: list[cp.Expression] = []
        for block, (rows, columns, values) in self._terms.items():
            if values:
                variable = self._variables[block]
                shape = (len(self._right), variable.size)
                parts.append(sparse.csr_matrix((values, (rows, columns)), shape=shape) @ variable)
        return sum(parts[1:], start=parts[0]) if parts else cp.Constant(np.zeros(len(self._right)))


def compile_milp(
    objective: cp.Expression, constraints: Sequence[cp.Constraint], variables: Mapping[str, cp.Variable]
) -> tuple[Milp, dict[str, slice]]:
    """Arrays of ``minimise objective subject to constraints``, and where each block lies in the columns.

    Variables must be boolean, or continuous with ``bounds``; the objective is linear.
    """
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    data, _, _ = problem.get_problem_data(cp.SCIP)
    _, offset, _, _ = data["param_prob"].apply_parameters()
    columns = data["c"].size
    integer = np.zeros(columns, dtype=bool)
    integer[list(data["bool_vars_idx"])] = True
    lower = np.full(columns, -np.inf) if data["lower_bounds"] is None else np.array(data["lower_bounds"], dtype=float)
    upper = np.full(columns, np.inf) if data["upper_bounds"] is None else np.array(data["upper_bounds"], dtype=float)
    lower[integer], upper[integer] = np.maximum(lower[integer], 0.0), np.minimum(upper[integer], 1.0)
    right = np.asarray(data["b"], dtype=float)
    row_lower = np.full(right.size, -np.inf)
    row_lower[: data["dims"].zero] = right[: data["dims"].zero]
    milp = Milp(
        np.asarray(data["c"], dtype=float), float(offset), sparse.csr_matrix(data["A"]), row_lower, right, lower, upper,
        integer,
    )  # fmt: skip
    offsets = data["param_prob"].var_id_to_col
    blocks = {name: slice(offsets[x.id], offsets[x.id] + x.size) for name, x in variables.items() if x.id in offsets}
    return milp, blocks
