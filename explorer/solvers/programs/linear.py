"""The linear relaxation of an integer program, exactly where it is small and nearly so where it is large."""

from __future__ import annotations

import highspy
import numpy as np
from scipy import sparse

from explorer.solvers.programs.milp import Milp, MilpResult, MilpStatus

_EXACT_ROWS = 20_000  # simplex takes seconds for that many, and minutes for seven times as many
_TOLERANCE = 1e-3  # of the first-order method: what is rounded afterwards needs no more


def relax(milp: Milp, *, time_limit: float | None = None, exactly: bool = False) -> MilpResult:
    """Solve an integer program as if nothing had to be whole.

    Large ones by HiGHS's first-order method (PDLP), to three digits: for 150,000 rows that takes ten seconds, an
    interior point method a minute, and simplex and crossover many minutes, between looks at the clock too.

    Args:
        milp: the program.
        time_limit: seconds; None for no limit.
        exactly: however large it is.
    """
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    if time_limit is not None:
        solver.setOptionValue("time_limit", time_limit)
    if milp.row_lower.size > _EXACT_ROWS and not exactly:
        solver.setOptionValue("solver", "pdlp")
        solver.setOptionValue("kkt_tolerance", _TOLERANCE)
    solver.passModel(_program(milp))
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return MilpResult(MilpStatus.INFEASIBLE)
    if status != highspy.HighsModelStatus.kOptimal:
        return MilpResult(MilpStatus.UNKNOWN)
    x = np.array(solver.getSolution().col_value)
    return MilpResult(MilpStatus.OPTIMAL, x, solver.getInfo().objective_function_value + milp.objective_offset)


def _program(milp: Milp) -> highspy.HighsLp:
    matrix = sparse.csr_matrix(milp.matrix)
    program = highspy.HighsLp()
    program.num_row_, program.num_col_ = milp.row_lower.size, milp.objective.size
    program.col_cost_ = milp.objective
    program.col_lower_, program.col_upper_ = milp.lower, milp.upper
    program.row_lower_, program.row_upper_ = milp.row_lower, milp.row_upper
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = matrix.indptr.astype(np.int32)
    program.a_matrix_.index_ = matrix.indices.astype(np.int32)
    program.a_matrix_.value_ = matrix.data.astype(np.float64)
    return program
