"""Objective and constraints of Checkmate's program (section 4.5), one function for each family; equations are its own.

R_{t,i}: node i is evaluated in stage t. S_{t,x}: value x stays in memory from stage t − 1 into stage t. FREE_{t,x,k}:
value x is freed in stage t right after node k. U_{t,k}: memory while node k is evaluated in stage t. Values are
storages: a node may write several, each with its own S and FREE. Memory is divided by what the budget leaves beyond
``fixed_bytes``.

FREE and the products below only ever lower memory, so bounds from above define them, and they are continuous: in an
optimum they are whole by themselves. Where the paper has one row with a large constant (6c), there is one row for each
hazard here, which says the same for whole numbers and more for fractions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import cvxpy as cp

from explorer.solvers.methods.checkmate.cells import Cells
from explorer.solvers.methods.checkmate.nodes import Evaluation
from explorer.solvers.programs.rows import Amount, Rows, Term, scaled


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the variables are.

    Attributes:
        cells: entries of R and S.
        unit_bytes: memory is counted in these.
        workspace: does the memory of an evaluation include its workspace?
        free: (stage, storage, node) to the column of FREE.
        twice: (stage, storage, node) to the column of S R: a value made again while a copy of it is there.
        used: (stage, node) to the column of U, for stages that evaluate anything again.
    """

    cells: Cells
    unit_bytes: float
    workspace: bool
    free: dict[tuple[int, int, int], int] = field(default_factory=dict)
    twice: dict[tuple[int, int, int], int] = field(default_factory=dict)
    used: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Numbers FREE, S R and U."""
        for stage in range(len(self.cells.nodes)):
            ways = self.cells.evaluations[stage]
            if len(ways) == 1:
                continue
            for i, _ in ways:
                self.used[stage, i] = len(self.used)
            for i, way in ways[:-1]:
                for x in self._freed_after(stage, way):
                    self.free[stage, x, i] = len(self.free)
                for x in self.made_twice(stage, i, way):
                    if (stage, x) in self.cells.s_columns and self.cells.s_columns[stage, x] is not None:
                        self.twice[stage, x, i] = len(self.twice)

    def _freed_after(self, stage: int, way: Evaluation) -> list[int]:
        """What may be freed right after a node: what it touches, unless the stage's own node reads that (eq. 4).

        A value that alone was made is made to be used (section 4.6).
        """
        nodes = self.cells.nodes
        several = sum(nodes.bytes[x] > 0 for x in way.writes) > 1
        touched = dict.fromkeys((*way.reads, *(way.writes if several else ())))
        own = nodes.nodes[stage].first.reads
        return [x for x in touched if nodes.bytes[x] and x not in nodes.held and x not in own]

    def made_twice(self, stage: int, i: int, way: Evaluation) -> list[int]:
        """What a node makes again beside something else, so that a copy of it may be there."""
        nodes = self.cells.nodes
        sized = [x for x in way.writes if nodes.bytes[x]]
        return sized if len(sized) > 1 and i != stage else []

    def sizes(self) -> dict[str, int]:
        """How many variables each block has."""
        return {
            "R": len(self.cells.r_columns),
            "S": self.cells.s_count,
            "FREE": len(self.free),
            "TWICE": len(self.twice),
            "U": len(self.used),
        }

    def r(self, stage: int, i: int, value: int | None = None) -> Amount:
        """R_{t,i}; with ``value``, only if that evaluation makes it."""
        nodes = self.cells.nodes
        way = nodes.nodes[stage].first if i == stage else self.cells.again(i)
        if way is None or (value is not None and value not in way.writes):
            return [], 0.0
        if i == stage:
            return [], 1.0
        column = self.cells.r_columns.get((stage, i))
        return ([], 0.0) if column is None else ([("R", column, 1.0)], 0.0)

    def s(self, stage: int, x: int) -> Amount:
        """S_{t,x}."""
        if (stage, x) not in self.cells.s_columns:
            return [], 0.0
        column = self.cells.s_columns[stage, x]
        return ([], 1.0) if column is None else ([("S", column, 1.0)], 0.0)

    def u(self, stage: int, i: int) -> Amount:
        """U_{t,k}, of a stage that evaluates something again."""
        return [("U", self.used[stage, i], 1.0)], 0.0

    def size(self, x: int) -> float:
        """M_x in units."""
        return self.cells.nodes.bytes[x] / self.unit_bytes

    @cached_property
    def values_at(self) -> list[list[int]]:
        """Values that S may keep into each stage."""
        found: list[list[int]] = [[] for _ in self.cells.nodes.nodes]
        for stage, x in self.cells.s_columns:
            found[stage].append(x)
        return found

    @cached_property
    def readers(self) -> dict[tuple[int, int], list[int]]:
        """(stage, value) to the nodes that may read it there, in order, without its own and the stage's."""
        found: dict[tuple[int, int], list[int]] = {}
        producer = self.cells.nodes.producer
        for stage, ways in enumerate(self.cells.evaluations):
            for i, way in ways[:-1]:
                for x in way.reads:
                    if producer[x] != i:
                        found.setdefault((stage, x), []).append(i)
        return found


def total(*amounts: Amount) -> Amount:
    """A sum of expressions."""
    return [term for terms, _ in amounts for term in terms], sum(constant for _, constant in amounts)


def at_most(rows: Rows, left: Amount, right: Amount = ([], 0.0)) -> None:
    """Add ``left ≤ right``, unless that holds for constants alone."""
    terms, constant = total(left, scaled(right, -1.0))
    if terms or constant > 0:
        rows.add(terms, -constant)


def dependencies(layout: Layout, variables: Mapping[str, cp.Variable]) -> list[cp.Constraint]:
    """R_{t,j} ≤ R_{t,i} + S_{t,i} for what j reads of i (eq. 1b); with R_{t,t} = 1 (eq. 1d)."""
    rows = Rows(variables)
    producer = layout.cells.nodes.producer
    for stage in range(len(layout.cells.nodes)):
        for j, way in layout.cells.evaluations[stage]:
            for x in way.reads:
                made = ([], 0.0) if producer[x] == j else layout.r(stage, producer[x], x)
                at_most(rows, layout.r(stage, j), total(made, layout.s(stage, x)))
    return rows.at_most()


def retention(layout: Layout, variables: Mapping[str, cp.Variable]) -> list[cp.Constraint]:
    """S_{t,i} ≤ R_{t−1,i} + S_{t−1,i} (eq. 1c)."""
    rows = Rows(variables)
    producer = layout.cells.nodes.producer
    for stage, x in layout.cells.s_columns:
        before = layout.s(stage - 1, x)
        if before != layout.s(stage, x):
            at_most(rows, layout.s(stage, x), total(before, layout.r(stage - 1, producer[x], x)))
    return rows.at_most()


def levels(layout: Layout) -> Iterator[tuple[int, int, Evaluation, Amount]]:
    """Memory at each evaluation in terms of S and R and of U at the one before: (stage, node, way, amount).

    U_{t,0} is what S keeps (eq. 2); U_{t,k+1} = U_{t,k} − freed after k + R_{t,k+1} M_{k+1} (eq. 3).
    """
    for stage in range(len(layout.cells.nodes)):
        level = total(*(scaled(layout.s(stage, x), layout.size(x)) for x in layout.values_at[stage]))
        for i, way in layout.cells.evaluations[stage]:
            level = total(level, scaled(layout.r(stage, i), sum(layout.size(x) for x in way.writes)))
            yield stage, i, way, level
            if (stage, i) in layout.used:
                level = total(layout.u(stage, i), _freed(layout, stage, i, way))


def memory(layout: Layout, variables: Mapping[str, cp.Variable]) -> list[cp.Constraint]:
    """U by its recurrence (eq. 2 and 3), and within the budget with or without workspace."""
    equal, limit = Rows(variables), Rows(variables)
    for stage, i, way, found in levels(layout):
        level = found
        if (stage, i) in layout.used:
            level = layout.u(stage, i)
            terms, constant = total(level, scaled(found, -1.0))
            equal.add(terms, -constant)
        extra = way.workspace_bytes / layout.unit_bytes if layout.workspace else 0.0
        if extra or (stage, i) not in layout.used:
            at_most(limit, total(level, scaled(layout.r(stage, i), extra)), ([], 1.0))
    return equal.equal() + limit.at_most()


def _freed(layout: Layout, stage: int, i: int, way: Evaluation) -> Amount:
    """Minus what is freed right after a node: Σ M FREE (eq. 3), and second copies."""
    touched = dict.fromkeys((*way.reads, *way.writes))
    freed = [(x, layout.free[stage, x, i]) for x in touched if (stage, x, i) in layout.free]
    parts: list[Amount] = [([("FREE", column, -layout.size(x)) for x, column in freed], 0.0)]
    for x in layout.made_twice(stage, i, way):
        if (stage, x, i) in layout.twice:
            parts.append(([("TWICE", layout.twice[stage, x, i], -layout.size(x))], 0.0))
        elif layout.s(stage, x) == ([], 1.0):
            parts.append(scaled(layout.r(stage, i), -layout.size(x)))
    return total(*parts)


def freed_when_evaluated(layout: Layout, variables: Mapping[str, cp.Variable]) -> list[cp.Constraint]:
    """FREE_{t,x,k} ≤ R_{t,k} (the first hazard of eq. 5)."""
    rows = Rows(variables)
    for (stage, _, k), column in layout.free.items():
        at_most(rows, ([("FREE", column, 1.0)], 0.0), layout.r(stage, k))
    return rows.at_most()


def freed_unless_kept(layout: Layout, variables: Mapping[str, cp.Variable]) -> list[cp.Constraint]:
    """Σ_k FREE_{t,x,k} ≤ 1 − S_{t+1,x}: once at most, and not what stays (the second hazard of eq. 5)."""
    rows = Rows(variables)
    found: dict[tuple[int, int], list[Term]] = {}
    for (stage, x, _), column in layout.free.items():
        found.setdefault((stage, x), []).append(("FREE", column, 1.0))
    for (stage, x), terms in found.items():
        at_most(rows, total((terms, 0.0), layout.s(stage + 1, x)), ([], 1.0))
    return rows.at_most()


def freed_after_the_last_reader(layout: Layout, variables: Mapping[str, cp.Variable]) -> list[cp.Constraint]:
    """Σ_{k<j} FREE_{t,x,k} ≤ 1 − R_{t,j} for each reader j (the third hazard of eq. 5)."""
    rows = Rows(variables)
    found: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (stage, x, k), column in layout.free.items():
        found.setdefault((stage, x), []).append((k, column))
    for (stage, x), columns in found.items():
        for j in layout.readers.get((stage, x), ()):
            terms: list[Term] = [("FREE", column, 1.0) for k, column in columns if k < j]
            if terms:
                at_most(rows, total((terms, 0.0), layout.r(stage, j)), ([], 1.0))
    return rows.at_most()


def second_copies(layout: Layout, variables: Mapping[str, cp.Variable]) -> list[cp.Constraint]:
    """What is made again while it is there goes at once: TWICE ≤ S_{t,x} and TWICE ≤ R_{t,i}."""
    rows = Rows(variables)
    for (stage, x, i), column in layout.twice.items():
        twice: Amount = ([("TWICE", column, 1.0)], 0.0)
        at_most(rows, twice, layout.s(stage, x))
        at_most(rows, twice, layout.r(stage, i))
    return rows.at_most()


FAMILIES = (
    dependencies,
    retention,
    memory,
    freed_when_evaluated,
    freed_unless_kept,
    freed_after_the_last_reader,
    second_copies,
)
"""All of them."""
