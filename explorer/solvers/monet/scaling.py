"""Memory of a merged problem in the units of a model: shares of what the budget leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from explorer.solvers.monet.merge import MergedProblem


@dataclass(frozen=True, eq=False)
class Scaled:
    """A problem and a budget.

    Attributes:
        merged: the problem.
        budget_bytes: of the whole step.
    """

    merged: MergedProblem
    budget_bytes: int

    @property
    def unit_bytes(self) -> int:
        """One unit of memory in the model: what the budget leaves beyond ``fixed_bytes``."""
        free = self.budget_bytes - self.merged.problem.fixed_bytes
        return free if free > 0 else self.budget_bytes

    def size(self, activation: int) -> float:
        """|x_i| in units."""
        return self.merged.problem.activations[activation].bytes / self.unit_bytes

    def room(self, used_bytes: int) -> float:
        """What the budget leaves beside ``fixed_bytes`` and ``used_bytes``, in units."""
        return (self.budget_bytes - self.merged.problem.fixed_bytes - used_bytes) / self.unit_bytes

    @cached_property
    def constant_bytes(self) -> tuple[int, ...]:
        """For each backward operator: held activations, and pinned ones still of use, beside the gradients."""
        last, _ = self.merged.last_useful
        problem = self.merged.problem
        ends = np.zeros(len(problem.backward), dtype=np.int64)
        for x in self.merged.charged:
            ends[last[x]] += problem.activations[x].bytes
        return tuple(int(x) + problem.held_bytes for x in ends[::-1].cumsum()[::-1])

    @cached_property
    def forward_bytes(self) -> tuple[int, ...]:
        """For each first run: its writes and workspace, what a later first run reads, held and pinned activations."""
        problem = self.merged.problem
        last = {x: i for i, op in enumerate(problem.forward) for x in (*op.first.writes, *op.first.reads)}
        alive: dict[int, int] = {}
        result = []
        for i, operator in enumerate(problem.forward):
            alive |= {x: problem.activations[x].bytes for x in operator.first.writes}
            result.append(sum(alive.values()) + operator.first.workspace_bytes)
            for x in [x for x in alive if last[x] == i]:
                if not problem.activations[x].held and x not in self.merged.charged:
                    del alive[x]
        return tuple(result)

    def idle_room(self, stage: int) -> float:
        """B − G_t: room for activations and workspace of recomputations just before a backward operator."""
        return self.room(self.constant_bytes[stage] + self.merged.problem.backward[stage].idle_bytes)

    def stage_room(self, stage: int) -> float:
        """B − G_t − y_t − ĉ_t: room for activations while a backward operator runs."""
        return self.room(self.constant_bytes[stage] + self.merged.problem.backward[stage].busy_bytes)
