"""Memory of a merged problem in the units of a model: shares of what the budget leaves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from explorer.solvers.formulation.merge import MergedProblem
from explorer.solvers.problem.sets import in_all


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

    def units(self, amount_bytes: int) -> float:
        """Bytes in units."""
        return amount_bytes / self.unit_bytes

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
    def useful_bytes(self) -> tuple[int, ...]:
        """For each backward operator: all activations with a choice that are of use to it or a later one."""
        last, _ = self.merged.last_useful
        ends = np.zeros(len(self.merged.problem.backward), dtype=np.int64)
        for x, t in last.items():
            if self.merged.has_choice(x):
                ends[t] += self.merged.problem.activations[x].bytes
        return tuple(int(x) for x in ends[::-1].cumsum()[::-1])

    @cached_property
    def last_read(self) -> dict[int, int]:
        """Activation to the last first run that reads it, its own if none does; what is optional does not count.

        A run with several forms counts if one of them reads the activation; in a relaxed problem, if all do.
        """
        problem = self.merged.problem
        last = {x: activation.producer for x, activation in enumerate(problem.activations)}
        for i, operator in enumerate(problem.forward):
            if not operator.optional:
                for x in self._of_forms([frozenset(form.reads) for form in operator.first]):
                    last[x] = i
        # Between its producer and an optional reader that does not follow at once it is counted as alive.
        for j, operator in enumerate(problem.forward):
            if operator.optional and not self.merged.relaxed:
                for x in {x for form in operator.first for x in form.reads}:
                    last[x] = max(last[x], j - 1)
        return last

    @cached_property
    def before_bytes(self) -> tuple[int, ...]:
        """For each first run: what is in memory before it for the sake of first runs; held and pinned activations."""
        problem = self.merged.problem
        alive: dict[int, int] = {}
        result = []
        for i, operator in enumerate(problem.forward):
            result.append(sum(alive.values()))
            if not operator.optional:
                made = self._of_forms([frozenset(form.writes) for form in operator.first])
                alive |= {x: problem.activations[x].bytes for x in made}
            for x in [x for x in alive if self.last_read[x] <= i]:
                if not problem.activations[x].held and x not in self.merged.charged:
                    del alive[x]
        return tuple(result)

    def _of_forms(self, parts: list[frozenset[int]]) -> frozenset[int]:
        return frozenset(in_all(parts) if self.merged.relaxed else frozenset().union(*parts))

    def idle_room(self, stage: int) -> float:
        """B − G_t: room for activations and workspace of recomputations just before a backward operator."""
        return self.room(self.constant_bytes[stage] + self.merged.problem.backward[stage].idle_bytes)

    def stage_room(self, stage: int) -> float:
        """B − G_t − y_t: room for activations and workspace while a backward operator runs."""
        operator = self.merged.problem.backward[stage]
        return self.room(self.constant_bytes[stage] + operator.idle_bytes + operator.made_bytes)
