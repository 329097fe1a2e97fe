"""MONeT's joint program in its fast form: merged, with one sweep of recomputation per group, incremental."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from explorer.schedule import Schedule
from explorer.solution import Statistics
from explorer.solvers.formulation import choices, constraints
from explorer.solvers.formulation.encoding import Encoder, plan_of
from explorer.solvers.formulation.groups import DEFAULT_THRESHOLD, group_stages
from explorer.solvers.formulation.layout import Layout
from explorer.solvers.formulation.merge import MergedProblem, merge
from explorer.solvers.formulation.values import Values
from explorer.solvers.problem.problem import Problem
from explorer.solvers.problem.schedules import schedule_of
from explorer.solvers.programs.milp import Milp
from explorer.solvers.programs.rows import ROUNDING, compile_milp

FAMILIES = (
    constraints.one_form,
    constraints.needed_activations,
    constraints.no_second_copy,
    constraints.recomputation_inputs,
    constraints.present_for_forms,
    constraints.keep_what_is_there,
    constraints.forward_memory,
    constraints.sweep_memory,
    constraints.stays,
    constraints.recomputation_memory,
    constraints.backward_memory,
    choices.one_way,
    choices.first_runs_in_place,
    choices.recomputations_in_place,
    choices.backward_in_place,
    choices.first_forms,
    choices.optional_results,
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
        layout, values = self.layout, Values(self.blocks, x)
        merged, problem, decisions = layout.merged, layout.merged.problem, layout.decisions
        forward = [i for i, operator in enumerate(problem.forward) if operator.first]
        order = [(i, values.way(decisions.first[i]).forms[0] if i in decisions.first else 0) for i in forward]
        starts = {group.start: g for g, group in enumerate(layout.groups)}
        for t, forms in enumerate(merged.stages):
            for node in self._reruns(values, starts[t]) if t in starts else ():
                way = values.way(decisions.again[starts[t], node])
                order += zip(merged.nodes[node].members, way.forms, strict=True)
            if forms:
                n = values.form([layout.delta.get((t, n)) for n in range(len(forms))])
                order.append((len(problem.forward) + t, values.way(decisions.backward[t, n]).forms[0]))
        return schedule_of(problem, order, method="monet", budget_bytes=layout.budget_bytes)

    def encode(self, schedule: Schedule) -> np.ndarray | None:
        """A solution that keeps what ``schedule`` keeps after each group, for a warm start.

        Recomputation moves to the start of its group, and keeps and recomputations that serve nothing are dropped.

        Returns:
            Shape (columns,); None where that exceeds the budget, or the schedule uses other implementations.
        """
        plan = plan_of(self.layout, schedule)
        if plan is None:
            return None
        x = self.milp.columns(Encoder(self.layout, plan).fill(), self.blocks)
        return x if self.milp.violation(x) <= ROUNDING else None

    def _reruns(self, values: Values, group: int) -> Sequence[int]:
        """Nodes that run at the start of a group, in order."""
        nodes = (node for slot in self.layout.sweeps[group].slots for node in slot)
        return [node for node in nodes if values.holds("r", self.layout.rerun[group, node])]


def build(problem: Problem | MergedProblem, budget_bytes: int, *, threshold: float = DEFAULT_THRESHOLD) -> GroupedModel:
    """State the grouped program.

    Its optimum is the fastest among schedules that recompute only before the first backward operator of a group, each
    operator at most once there, in forward order, and that recompute merged operators together; the bound of a solver
    holds for those (``BoundScope.GROUPING``). Within that class memory is counted exactly, but for what is small by
    ``merge``, what ``choices.optional_results`` says, and first runs with forms that read or write different things:
    each counts with everything that any of its forms touches.

    Args:
        problem: to solve; one that was merged already is taken as it is.
        budget_bytes: of the whole step.
        threshold: largest share of the free budget that one group's needed activations may take (``group_stages``).
    """
    merged = merge(problem) if isinstance(problem, Problem) else problem
    layout = Layout.of(merged, group_stages(merged, budget_bytes, threshold=threshold), budget_bytes)
    variables = layout.variables()
    rows = [row for family in FAMILIES for row in family(layout, variables)]
    milp, blocks = compile_milp(constraints.step_time_ms(layout, variables), rows, variables)
    return GroupedModel(milp, layout, blocks)
