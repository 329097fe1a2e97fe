"""An integer program solved by HiGHS through scipy, so that formulations are tested apart from our own use of SCIP."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from scipy import optimize

from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers.problem.problem import Problem
from explorer.solvers.programs.milp import Milp

SHARES = st.sampled_from((0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0))
"""Of the way from ``fixed_bytes`` to the peak without recomputation: budgets at which there is something to decide."""


def minimum(milp: Milp) -> tuple[float, np.ndarray] | None:
    """Optimum and a solution; None where there is none."""
    if not milp.objective.size:
        nothing = np.zeros(0)
        return (milp.objective_offset, nothing) if milp.violation(nothing) == 0 else None
    result = optimize.milp(
        milp.objective,
        integrality=milp.integer.astype(int),
        bounds=(milp.lower, milp.upper),
        constraints=(milp.matrix, milp.row_lower, milp.row_upper),
        options={"mip_rel_gap": 0.0},
    )
    return None if result.x is None else (result.fun + milp.objective_offset, result.x)


def objective_of(milp: Milp, x: np.ndarray) -> float:
    """Of a solution, in ms, its constant part included."""
    return float(milp.objective @ x) + milp.objective_offset


def budget_between(problem: Problem, share: float) -> int:
    """``share`` of the way from ``fixed_bytes`` to the peak without recomputation."""
    peak = simulate(problem.profile, keep_all(problem.graph)).peak_bytes
    return round(problem.fixed_bytes + share * (peak - problem.fixed_bytes))
