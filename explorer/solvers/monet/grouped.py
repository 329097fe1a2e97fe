"""MONeT's checkpointing program in its fast form: merged, with one sweep of recomputation per group, incremental."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.schedule import Schedule
from explorer.solution import Statistics
from explorer.solvers.milp import Milp
from explorer.solvers.monet import constraints
from explorer.solvers.monet.encoding import Plan, plan_of, values_of
from explorer.solvers.monet.groups import DEFAULT_THRESHOLD, group_stages
from explorer.solvers.monet.layout import Layout
from explorer.solvers.monet.merge import MergedProblem, merge
from explorer.solvers.monet.program import ROUNDING, compile_milp
from explorer.solvers.problem import CheckpointProblem

FAMILIES = (
    constraints.needed_activations,
    constraints.no_second_copy,
    constraints.recomputation_inputs,
    constraints.keep_what_is_there,
    constraints.forward_memory,
    constraints.sweep_memory,
    constraints.stays,
    constraints.recomputation_memory,
    constraints.backward_memory,
)


@dataclass(frozen=True, eq=False)
class GroupedModel:
    """The grouped program for one budget, and the way between its solutions and schedules.

    Attributes:
        milp: what to solve.
        layout: its variables.
        blocks: where each block of variables lies in the columns.
    """

    milp: Milp
    layout: Layout
    blocks: dict[str, slice]

    @property
    def group_count(self) -> int:
        """How many sweeps of recomputation there are."""
        return len(self.layout.groups)

    @property
    def statistics(self) -> Statistics:
        """Size of the program."""
        return self.milp.statistics(self.group_count)

    def decode(self, x: np.ndarray) -> Schedule:
        """The schedule of a solution; the simulator finds it no slower and no larger than the model did."""
        layout = self.layout
        runs = x[self.blocks["r"]] > 0.5 if "r" in self.blocks else np.zeros(0, dtype=bool)
        recomputations: dict[int, list[int]] = {}
        for (g, node), position in layout.rerun.items():
            if runs[position]:
                members = layout.merged.nodes[node].members
                recomputations.setdefault(layout.groups[g].start, []).extend(members)
        return layout.merged.problem.schedule_of(recomputations, method="monet", budget_bytes=layout.budget_bytes)

    def encode(self, schedule: Schedule) -> np.ndarray | None:
        """A solution that keeps what ``schedule`` keeps after each group, for a warm start.

        Recomputation moves to the start of its group, and keeps and recomputations that serve nothing are dropped.

        Returns:
            Shape (columns,); None where that exceeds the budget, or the schedule uses other implementations.
        """
        plan = plan_of(self.layout, schedule)
        if plan is None:
            return None
        x = self._vector(plan)
        return x if self.milp.violation(x) <= ROUNDING else None

    def _vector(self, plan: Plan) -> np.ndarray:
        x = np.zeros(self.milp.objective.size)
        for name, values in values_of(self.layout, plan).items():
            if name in self.blocks:
                x[self.blocks[name]] = values
        return x


def build(
    problem: CheckpointProblem | MergedProblem, budget_bytes: int, *, threshold: float = DEFAULT_THRESHOLD
) -> GroupedModel:
    """State the grouped program.

    Its optimum is the fastest among schedules that recompute only before the first backward operator of a group, each
    operator at most once there, in forward order, and that recompute merged operators together; the bound of a solver
    holds for those (``BoundScope.GROUPING``). Within that class memory is counted exactly.

    Args:
        problem: to solve; one that was merged already is taken as it is.
        budget_bytes: of the whole step.
        threshold: largest share of the free budget that one group's needed activations may take (``group_stages``).
    """
    merged = merge(problem) if isinstance(problem, CheckpointProblem) else problem
    layout = Layout.of(merged, group_stages(merged, budget_bytes, threshold=threshold), budget_bytes)
    variables = layout.variables()
    rows = [row for family in FAMILIES for row in family(layout, variables)]
    milp, blocks = compile_milp(constraints.step_time_ms(layout, variables), rows, variables)
    return GroupedModel(milp, layout, blocks)
