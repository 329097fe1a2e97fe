"""Checkmate's program for one budget: built, and the way between its solutions and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cvxpy as cp
import numpy as np

from explorer.schedule import Run, Schedule
from explorer.solution import Statistics
from explorer.solvers.methods.checkmate.cells import Cells, Freedom
from explorer.solvers.methods.checkmate.constraints import FAMILIES, Layout, levels
from explorer.solvers.methods.checkmate.nodes import Nodes
from explorer.solvers.programs.milp import Milp
from explorer.solvers.programs.rows import ROUNDING, compile_milp

_INTEGER = ("R", "S")
_TOLERANCE = 100 * ROUNDING


@dataclass(frozen=True, eq=False)
class Program:
    """The program of section 4.5.

    Attributes:
        milp: what to solve.
        layout: its variables.
        blocks: where each block of variables lies in the columns.
        budget_bytes: of the whole step.
    """

    milp: Milp
    layout: Layout
    blocks: dict[str, slice]
    budget_bytes: int

    @property
    def nodes(self) -> Nodes:
        """The step."""
        return self.layout.cells.nodes

    @property
    def statistics(self) -> Statistics:
        """Size of the program; one stage for each node."""
        return self.milp.statistics(len(self.nodes))

    def order(self, x: np.ndarray) -> list[int]:
        """Evaluations of a solution, stage by stage (section 4.7, Algorithm 1)."""
        chosen = x[self.blocks["R"]] > 0.5 if "R" in self.blocks else np.zeros(0, dtype=bool)
        columns = self.layout.cells.r_columns
        order: list[int] = []
        for stage, again in enumerate(self.layout.cells.stages):
            order += [i for i in again if chosen[columns[stage, i]]]
            order.append(stage)
        return order

    def kept(self, x: np.ndarray, stage: int, storage: int) -> float:
        """S_{t,x} of a solution, which may be fractional."""
        terms, constant = self.layout.s(stage, storage)
        return constant + sum(float(x[self.blocks[block].start + at]) * factor for block, at, factor in terms)

    def encode(self, schedule: Schedule) -> np.ndarray | None:
        """The solution that evaluates what a schedule does; None where the program has none.

        Args:
            schedule: valid, of these nodes.
        """
        order = self._staged(schedule)
        if order is None:
            return None
        x = self.milp.columns(self._values(order), self.blocks)
        return x if self.milp.violation(x) <= _TOLERANCE else None

    def _staged(self, schedule: Schedule) -> list[int] | None:
        """The schedule's evaluations, in every stage once and in order."""
        number = {node.operator: i for i, node in enumerate(self.nodes.nodes)}
        order: list[int] = []
        again: set[int] = set()
        columns, stage = self.layout.cells.r_columns, 0
        for step in schedule.steps:
            if not isinstance(step, Run):
                continue
            i = number.get(step.operator)
            if i is None or i > stage or (i < stage and (stage, i) not in columns):
                return None
            if i < stage:
                again.add(i)
                continue
            order += [*sorted(again), i]
            again.clear()
            stage += 1
        return order

    def _values(self, order: list[int]) -> dict[str, np.ndarray]:
        """All variables that go with an order of evaluations that keeps values as long as they are read."""
        layout, nodes = self.layout, self.nodes
        values = {name: np.zeros(size) for name, size in layout.sizes().items()}
        stage = 0
        begins = True
        for i, (alive, dying) in zip(order, _liveness(nodes, order), strict=True):
            if begins:
                kept = (layout.cells.s_columns.get((stage, x)) for x in alive)
                values["S"][[column for column in kept if column is not None]] = 1.0
            if i < stage:
                values["R"][layout.cells.r_columns[stage, i]] = 1.0
                values["FREE"][[layout.free[stage, x, i] for x in dying if (stage, x, i) in layout.free]] = 1.0
                values["TWICE"][[layout.twice[stage, x, i] for x in alive if (stage, x, i) in layout.twice]] = 1.0
            begins = i == stage
            stage += begins
        for stage, i, _, (terms, constant) in levels(layout):
            if (stage, i) in layout.used:
                amount = constant + sum(values[block][at] * factor for block, at, factor in terms)
                values["U"][layout.used[stage, i]] = amount
        return values


def build(nodes: Nodes, budget_bytes: int, *, freedom: Freedom, workspace: bool) -> Program:
    """State the program.

    Args:
        nodes: of the step.
        budget_bytes: of the whole step.
        freedom: which entries of R there are.
        workspace: count workspace too, which the paper does not.
    """
    room_bytes = max(1.0, float(budget_bytes - nodes.profile.fixed_bytes))
    layout = Layout(Cells(nodes, freedom), room_bytes, workspace)
    variables = {
        name: cp.Variable(size, name=name, boolean=True)
        if name in _INTEGER
        else cp.Variable(size, name=name, bounds=[0, 1])
        for name, size in layout.sizes().items()
        if size
    }
    again_ms = np.zeros(len(layout.cells.r_columns))
    for (_, i), column in layout.cells.r_columns.items():
        way = layout.cells.again(i)
        assert way is not None, "a cell of R is of a node that can be evaluated again"
        again_ms[column] = way.time_ms
    objective: cp.Expression = cp.Constant(nodes.step_ms)
    if again_ms.size:
        objective = objective + again_ms @ variables["R"]
    for name in variables.keys() - {"R"}:
        # Every block has a place in the columns, whatever the rows mention.
        objective = objective + 0.0 * cp.sum(variables[name])
    rows = [row for family in FAMILIES for row in family(layout, variables)]
    milp, blocks = compile_milp(objective, rows, variables)
    return Program(milp, layout, blocks, budget_bytes)


def _liveness(nodes: Nodes, order: Sequence[int]) -> list[tuple[set[int], set[int]]]:
    """For each evaluation what is in memory before it, and what goes right after it."""
    first = {i: at for at, i in reversed(list(enumerate(order)))}
    alive = set(nodes.held)
    found: list[tuple[set[int], set[int]]] = []
    for at in range(len(order) - 1, -1, -1):
        node = nodes.nodes[order[at]]
        again = first[order[at]] != at
        way = node.again if again else node.first
        assert way is not None, "only what can be made again is evaluated again"
        made = set(way.writes) - (nodes.held if again else frozenset())
        dying = {*way.reads, *way.writes} - alive
        alive = (alive - made) | set(way.reads)
        found.append((set(alive), dying))
    return found[::-1]
