"""MODeL's integer program as published (Steiner et al., ICML 2023, sections 4.2 to 4.4 and appendix A.1), for SCIP.

One function for each family of constraints, with the paper's number. Time is in as many steps as there are operators;
``C[e,s]`` says that tensor ``e`` is made at step ``s``, ``P[e,s]`` that it is kept there. What the paper does not know
and a step has is put in its terms: workspace is a tensor that nobody reads, an operator that makes nothing makes one of
no bytes, and what is held is kept to the last step. Where a result takes another's memory, that counts once while both
are there; with addresses they are two tensors, as in the paper.

The program grows with the square of the operators: it is for small graphs, and to be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from explorer.solvers.ordering.task import Task
from explorer.solvers.programs.milp import Milp
from explorer.solvers.programs.scip import minimise

_UNITS = 1000.0
"""The largest tensor has this size in the program: sizes in bytes are too large beside ones."""

_TOLERANCE = 1e-6
"""Of what SCIP says of a bound."""

Amount = tuple[dict[int, float], float]
"""A linear expression: coefficients by column, and a constant."""


@dataclass(frozen=True)
class Edge:
    """A tensor of the program.

    Attributes:
        size_bytes: of it.
        source: the operator that makes it.
        sinks: those that read it.
        held: it stays to the end.
    """

    size_bytes: int
    source: int
    sinks: tuple[int, ...]
    held: bool = False


@dataclass(frozen=True)
class PaperOrder:
    """What the program says.

    Attributes:
        operators: the order, None if none was found in time.
        addresses: of each tensor, in bytes; None if the program had none.
        bound_bytes: no order takes less than this; of programs with addresses, no order with its placement.
        binaries: variables that are 0 or 1.
        rows: constraints, by family.
    """

    operators: tuple[int, ...] | None
    addresses: tuple[int, ...] | None
    bound_bytes: int
    binaries: int
    rows: dict[str, int]


def solve_as_published(task: Task, *, time_limit: float, addresses: bool = False) -> PaperOrder:
    """Solve equation 9, or without addresses its first half: the least sum of what is in memory.

    Args:
        task: what is to be put in order.
        time_limit: seconds.
        addresses: place tensors too (equations 6 to 8), so that what counts is the end of the buffer.
    """
    program = PaperProgram(task, addresses=addresses)
    result = minimise(program.milp, time_limit=time_limit, gap=0.0)
    certain = 0.0 if result.bound is None else result.bound * program.unit_bytes * (1 - _TOLERANCE)
    grain = max(1, math.gcd(*task.workspace_bytes, *task.tensor_bytes))  # every sum is a multiple of it
    bound = math.ceil(certain / grain) * grain
    order = places = None
    if result.x is not None:
        order = program.order(result.x)
        places = program.placed(result.x) if addresses else None
    binaries = int(program.milp.integer.sum())
    return PaperOrder(order, places, task.fixed_bytes + bound, binaries, program.rows)


class PaperProgram:
    """The program of a task.

    Attributes:
        edges: its tensors: those of the task first, with the same numbers.
        unit_bytes: of all sizes in the program.
        rows: constraints, by family.
    """

    def __init__(self, task: Task, *, addresses: bool) -> None:
        """State it."""
        self.task = task
        self.steps = len(task)
        self.edges = _edges(task)
        self.unit_bytes = max(1, *(x.size_bytes for x in self.edges)) / _UNITS
        self.rows: dict[str, int] = {}
        self._integer: list[bool] = []
        self._upper: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._right: list[tuple[float, float]] = []
        self._made: dict[tuple[int, int], int] = {}
        self._kept: dict[tuple[int, int], int] = {}
        self.peak = self._column(np.inf, integer=False)
        self.places = [self._column(self.size(range(len(self.edges))), integer=False) for _ in self.edges if addresses]
        self.above: dict[tuple[int, int], tuple[int, int]] = {}
        families: list[Callable[[PaperProgram], None]] = [
            made_or_kept, kept_if_there, made_once, inputs_there, made_together, after_others, held_to_the_end
        ]  # fmt: skip
        families += [apart_where_alive, below_or_above, within_peak] if addresses else [peak_of_sums]
        for family in families:
            before = len(self._right)
            family(self)
            self.rows[family.__name__] = len(self._right) - before

    def size(self, edges: range | list[int]) -> float:
        """Of tensors together, in units."""
        return sum(self.edges[x].size_bytes for x in edges) / self.unit_bytes

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """ASAP and ALAP of each operator: first and last step at which it can run (appendix A.1)."""
        first, after = [0] * self.steps, [0] * self.steps
        for at in range(self.steps):
            first[at] = max((first[x] + 1 for x in self.task.needs[at]), default=0)
        for at in reversed(range(self.steps)):
            after[at] = max((after[x] + 1 for x in self.task.followers[at]), default=0)
        return tuple((first[at], self.steps - 1 - after[at]) for at in range(self.steps))

    @cached_property
    def edge_of(self) -> dict[int, int]:
        """One tensor of each operator; all of them are made together."""
        return {of.source: e for e, of in enumerate(self.edges)}

    def made(self, edge: int, step: int) -> Amount:
        """``C[e,s]``: 0 outside the span of its source (equation 10)."""
        first, last = self.spans[self.edges[edge].source]
        if not first <= step <= last:
            return {}, 0.0
        if first == last:
            return {}, 1.0
        if (edge, step) not in self._made:
            self._made[edge, step] = self._column(1.0, integer=True)
        return {self._made[edge, step]: 1.0}, 0.0

    def kept(self, edge: int, step: int) -> Amount:
        """``P[e,s]``: 0 once all may have read it (equation 11), 1 while it is made and not yet read (equation 12)."""
        of = self.edges[edge]
        first, last = self.spans[of.source]
        end = self.steps - 1 if of.held else max((self.spans[x][1] for x in of.sinks), default=-1)
        needed = self.steps - 1 if of.held else max((self.spans[x][0] for x in of.sinks), default=-1)
        if not first < step <= end:  # it is made at ``first`` at the soonest, and kept from the next step on
            return {}, 0.0
        if last + 1 <= step <= needed:
            return {}, 1.0
        if (edge, step) not in self._kept:
            self._kept[edge, step] = self._column(1.0, integer=True)
        return {self._kept[edge, step]: 1.0}, 0.0

    def alive(self, edge: int, step: int) -> Amount:
        """Is a tensor in memory?"""
        return added(self.made(edge, step), self.kept(edge, step))

    def at_most(self, left: Amount, right: Amount) -> None:
        """State ``left ≤ right``, where that says anything."""
        terms, constant = added(left, right, factor=-1.0)
        if any(terms.values()) or constant > 0:
            self._row(terms, -np.inf, -constant)

    def equal(self, left: Amount, right: Amount) -> None:
        """State ``left = right``."""
        terms, constant = added(left, right, factor=-1.0)
        if any(terms.values()) or constant:
            self._row(terms, -constant, -constant)

    def pair(self, low: int, high: int) -> tuple[int, int]:
        """``a`` and ``b`` of two tensors: the first lies below the second, or above it."""
        if (low, high) not in self.above:
            self.above[low, high] = (self._column(1.0, integer=True), self._column(1.0, integer=True))
        return self.above[low, high]

    @cached_property
    def milp(self) -> Milp:
        """As arrays; the objective is the peak."""
        count = len(self._integer)
        rows, columns, values = zip(*self._entries, strict=True) if self._entries else ((), (), ())
        objective = np.zeros(count)
        objective[self.peak] = 1.0
        low, high = (np.array(x, dtype=float) for x in zip(*self._right, strict=True)) if self._right else ([], [])
        matrix = sparse.csr_matrix((values, (rows, columns)), shape=(len(self._right), count))
        integer = np.array(self._integer, dtype=bool)
        low, high = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
        return Milp(objective, 0.0, matrix, low, high, np.zeros(count), np.array(self._upper), integer)

    def order(self, x: np.ndarray) -> tuple[int, ...]:
        """Function 1 of the paper: operators by the step at which they make their tensors."""
        step = {}
        for edge, of in enumerate(self.edges):
            for s in range(self.steps):
                terms, constant = self.made(edge, s)
                if constant + sum(x[column] for column in terms) > 0.5:
                    step.setdefault(of.source, s)
        return tuple(sorted(step, key=lambda at: (step[at], at)))

    def placed(self, x: np.ndarray) -> tuple[int, ...]:
        """Addresses in bytes."""
        return tuple(round(x[column] * self.unit_bytes) for column in self.places)

    def _column(self, upper: float, *, integer: bool) -> int:
        self._integer.append(integer)
        self._upper.append(upper)
        return len(self._integer) - 1

    def _row(self, terms: dict[int, float], low: float, high: float) -> None:
        self._entries += [(len(self._right), column, value) for column, value in terms.items()]
        self._right.append((low, high))


def added(one: Amount, other: Amount, *, factor: float = 1.0) -> Amount:
    """``one + factor · other``."""
    terms = dict(one[0])
    for column, value in other[0].items():
        terms[column] = terms.get(column, 0.0) + factor * value
    return terms, one[1] + factor * other[1]


def made_or_kept(p: PaperProgram) -> None:
    """C[e,s] + P[e,s] ≤ 1 (equation 1)."""
    for e in range(len(p.edges)):
        for s in range(p.steps):
            p.at_most(p.alive(e, s), ({}, 1.0))


def kept_if_there(p: PaperProgram) -> None:
    """P[e,s] ≤ P[e,s−1] + C[e,s−1] (equation 2)."""
    for e in range(len(p.edges)):
        for s in range(1, p.steps):
            p.at_most(p.kept(e, s), p.alive(e, s - 1))


def made_once(p: PaperProgram) -> None:
    """Σ_s C[e,s] = 1 (equation 3)."""
    for e in range(len(p.edges)):
        total: Amount = ({}, 0.0)
        for s in range(p.steps):
            total = added(total, p.made(e, s))
        p.equal(total, ({}, 1.0))


def inputs_there(p: PaperProgram) -> None:
    """C[e,s] ≤ P[f,s] for what the source of e reads (equation 4)."""
    for e, of in enumerate(p.edges):
        for f in p.task.reads[of.source]:
            for s in range(p.steps):
                p.at_most(p.made(e, s), p.kept(f, s))


def made_together(p: PaperProgram) -> None:
    """C[f,s] = C[e,s] for what one operator makes (equation 5)."""
    first: dict[int, int] = {}
    for e, of in enumerate(p.edges):
        sibling = first.setdefault(of.source, e)
        for s in range(p.steps if sibling != e else 0):
            p.equal(p.made(e, s), p.made(sibling, s))


def after_others(p: PaperProgram) -> None:
    """C[e,s] ≤ Σ_{t<s} C[f,t] where an operator comes before another whatever it makes; not in the paper."""
    for at, others in enumerate(p.task.before):
        for other in others:
            past: Amount = ({}, 0.0)
            for s in range(p.steps):
                p.at_most(p.made(p.edge_of[at], s), past)
                past = added(past, p.made(p.edge_of[other], s))


def held_to_the_end(p: PaperProgram) -> None:
    """P[e,s] ≥ P[e,s−1] + C[e,s−1] of what the caller gets; not in the paper."""
    for e, of in enumerate(p.edges):
        for s in range(1, p.steps if of.held else 0):
            p.at_most(p.alive(e, s - 1), p.kept(e, s))


def peak_of_sums(p: PaperProgram) -> None:
    """Σ_e S_e (C[e,s] + P[e,s]) ≤ peak: what order alone can do, with nothing lost between tensors (section 5.5).

    Where an operator's result takes the memory of what it reads, less by that while it runs; not in the paper.
    """
    shared = {p.edge_of[at]: x / p.unit_bytes for at, x in enumerate(p.task.workspace_bytes) if x < 0}
    for s in range(p.steps):
        total: Amount = ({p.peak: -1.0}, 0.0)
        for e in range(len(p.edges)):
            total = added(total, p.alive(e, s), factor=p.size([e]))
        for e, less in shared.items():
            total = added(total, p.made(e, s), factor=less)
        p.at_most(total, ({}, 0.0))


def apart_where_alive(p: PaperProgram) -> None:
    """Of two tensors that may meet: a + b ≤ 1, and a + b ≥ live_i + live_j − 1 at every step (equation 6)."""
    for j in range(len(p.edges)):
        for i in range(j):
            for s in range(p.steps):
                one, other = p.alive(i, s), p.alive(j, s)
                if one == ({}, 0.0) or other == ({}, 0.0):
                    continue
                a, b = p.pair(i, j)
                p.at_most(added(added(one, other), ({}, -1.0)), ({a: 1.0, b: 1.0}, 0.0))
    for a, b in p.above.values():
        p.at_most(({a: 1.0, b: 1.0}, 0.0), ({}, 1.0))


def below_or_above(p: PaperProgram) -> None:
    """A_i + S_i − A_j ≤ (1 − a) M, and A_i − A_j − S_j ≥ (b − 1) M (equations 7a and 7b)."""
    whole = p.size(range(len(p.edges)))
    for (i, j), (a, b) in p.above.items():
        p.at_most(({p.places[i]: 1.0, p.places[j]: -1.0, a: whole}, p.size([i])), ({}, whole))
        p.at_most(({p.places[j]: 1.0, p.places[i]: -1.0, b: whole}, p.size([j])), ({}, whole))


def within_peak(p: PaperProgram) -> None:
    """A_e + S_e ≤ peak (equation 8)."""
    for e, place in enumerate(p.places):
        p.at_most(({place: 1.0}, p.size([e])), ({p.peak: 1.0}, 0.0))


def _edges(task: Task) -> list[Edge]:
    made = [Edge(size, task.maker[x], task.readers[x], held=x in task.held) for x, size in enumerate(task.tensor_bytes)]
    extra = [Edge(max(0, x), at, ()) for at, x in enumerate(task.workspace_bytes) if x > 0 or not task.writes[at]]
    return made + extra
