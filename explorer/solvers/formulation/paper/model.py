"""The paper's program for one budget."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
from scipy import sparse

from explorer.schedule import Schedule
from explorer.solution import Statistics
from explorer.solvers.formulation.paper.constraints import FAMILIES, step_time_ms
from explorer.solvers.formulation.paper.encoding import values_of
from explorer.solvers.formulation.paper.stages import Stages
from explorer.solvers.formulation.paper.variables import Variables
from explorer.solvers.problem.problem import Problem
from explorer.solvers.problem.schedules import schedule_of
from explorer.solvers.programs.milp import Milp
from explorer.solvers.programs.rows import ROUNDING, compile_milp


@dataclass(frozen=True, eq=False)
class PaperModel:
    """The program; the same interface as the grouped one.

    Attributes:
        milp: what to solve.
        stages: its variables.
        blocks: where each block of variables lies in the columns.
    """

    milp: Milp
    stages: Stages
    blocks: dict[str, slice]

    @property
    def group_count(self) -> int:
        """One per backward operator after the boundary."""
        return len(self.stages.stages)

    @property
    def statistics(self) -> Statistics:
        """Size of the program."""
        return self.milp.statistics(self.group_count)

    def decode(self, x: np.ndarray) -> Schedule:
        """The schedule of a solution; the simulator finds it no slower and no larger than the model did."""
        stages, problem = self.stages, self.stages.problem
        first = np.ones(len(stages.first), dtype=bool)
        first[list(stages.optional_first)] = self._chosen(x, "R0")
        order = [(node.operator, node.number) for node, runs in zip(stages.first, first, strict=True) if runs]
        again = self._chosen(x, "R").reshape(len(stages.stages), len(stages.nodes))
        forms = np.ones(len(stages.backward_forms), dtype=bool)
        forms[list(stages.chosen_forms)] = self._chosen(x, "M")
        form = {n: f for (n, f), chosen in zip(stages.backward_forms, forms, strict=True) if chosen}
        order.append((len(problem.forward), 0))
        for n, t in enumerate(stages.stages):
            order += [(stages.nodes[k].operator, stages.nodes[k].number) for k in np.flatnonzero(again[n])]
            order.append((len(problem.forward) + t, form[n]))
        return schedule_of(problem, order, method="monet-paper", budget_bytes=stages.budget_bytes)

    def encode(self, schedule: Schedule) -> np.ndarray | None:
        """The solution that saves and runs what ``schedule`` does; None where this model has none."""
        values = values_of(self.stages, schedule)
        if values is None:
            return None
        x = np.minimum(self.milp.columns(values, self.blocks), self.milp.upper)
        return x if self.milp.violation(x) <= ROUNDING else None

    def _chosen(self, x: np.ndarray, name: str) -> np.ndarray:
        return x[self.blocks[name]] > 0.5 if name in self.blocks else np.zeros(0, dtype=bool)


def build(problem: Problem, budget_bytes: int) -> PaperModel:
    """State the paper's program.

    Its memory rows have as many entries as there are activations: ``O(stages · operators · activations)`` in all. It
    is for small graphs, and to compare with.

    Args:
        problem: to solve.
        budget_bytes: of the whole step.
    """
    stages = Stages(problem, budget_bytes)
    variables = Variables.of(stages)
    rows = [row for family in FAMILIES for row in family(variables) if row.size]
    if not variables.blocks:
        return PaperModel(_without_choice(step_time_ms(variables), rows), stages, {})
    milp, blocks = compile_milp(step_time_ms(variables), rows, variables.blocks)
    return PaperModel(_without_useless(milp, stages, blocks), stages, blocks)


def _without_choice(objective: cp.Expression, rows: list[cp.Constraint]) -> Milp:
    """A program without columns: 0 ≤ minus what each row misses, for cvxpy does not compile those."""
    right = -np.concatenate([np.atleast_1d(row.violation()) for row in rows])
    nothing, value = np.zeros(0), objective.value
    assert value is not None
    matrix = sparse.csr_matrix((right.size, 0))
    lower = np.full(right.size, -np.inf)
    return Milp(nothing, float(value), matrix, lower, right, nothing, nothing, nothing.astype(bool))


def _without_useless(milp: Milp, stages: Stages, blocks: dict[str, slice]) -> Milp:
    """Fix at 0 what no backward operator from a stage on can make use of.

    The optimum stays: in any solution it may be left out with all that is made of it, which only frees memory.
    """
    upper = milp.upper.copy()
    last = np.array([stages.last_useful[x] for x in stages.activations], dtype=int)
    numbers = np.arange(len(stages.stages) + 1)[:, None]
    if "S" in blocks:
        # What is saved past a stage may still be what that stage needs.
        upper[blocks["S"]] = (numbers <= last + 1).ravel()
    if "R" in blocks:
        serves = np.where(stages.makes > 0, last, -1).max(axis=1)
        upper[blocks["R"]] = (numbers[:-1] <= serves).ravel()
    return replace(milp, upper=upper)
