"""Which decisions the grouped model has, and where its sweeps count each activation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import cvxpy as cp
import numpy as np

from explorer.solvers.monet.groups import Group
from explorer.solvers.monet.merge import MergedProblem
from explorer.solvers.monet.program import Term
from explorer.solvers.monet.scaling import Scaled


@dataclass(frozen=True, slots=True)
class Stay:
    """An activation that is not needed by a group's backward operators, between two of its readers in the sweep.

    Attributes:
        activation: what stays.
        after: position in the sweep after which this stay begins (its producer's, or the previous reader's).
        until: position of the reader that ends it; at least one other node runs in between.
        readers: readers for whose sake it stays: the one at ``until`` and, up to the next stay, those right behind.
        following: index in ``Sweep.stays`` of the next stay of the same activation, None if there is none.
    """

    activation: int
    after: int
    until: int
    readers: tuple[int, ...]
    following: int | None


@dataclass(frozen=True, eq=False)
class Sweep:
    """Recomputation at the start of a group: its candidate nodes in order, and how activations are counted.

    Before its turn an activation counts with what the previous group kept (s_{g-1,i}); after its turn with what the
    group's backward operators find (π_{g,i}), plus its stays for later readers of the same sweep.

    Attributes:
        nodes: indices of the nodes that may run.
        turn: activation to the position of its turn.
        stays: every stay that may be needed.
        reads: by position, the activations that count only for the node there: read by it, and not covered by a stay.
    """

    nodes: tuple[int, ...]
    turn: dict[int, int]
    stays: tuple[Stay, ...]
    reads: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class Layout(Scaled):
    """Index of every variable of the grouped model.

    Attributes:
        groups: of the backward operators.
        kept: (groups that have passed, activation) to position in block ``s``; 0 groups: after the forward pass.
        rerun: (group, node) to position in block ``r``.
        stay: (group, index in ``Sweep.stays``) to position in block ``w``.
        memory: (group, position in the sweep) to position in block ``u``.
        sweeps: one per group.
    """

    groups: tuple[Group, ...]
    kept: dict[tuple[int, int], int]
    rerun: dict[tuple[int, int], int]
    stay: dict[tuple[int, int], int]
    memory: dict[tuple[int, int], int]
    sweeps: tuple[Sweep, ...]

    @classmethod
    def of(cls, merged: MergedProblem, groups: tuple[Group, ...], budget_bytes: int, *, sweeps: bool = True) -> Layout:
        """Decide only where it can matter: an activation or node has variables while something needs it still.

        Args:
            merged: the problem.
            groups: of its backward operators.
            budget_bytes: of the whole step.
            sweeps: whether to lay out the order within sweeps too; a bound needs none.
        """
        activations, nodes = merged.last_useful
        decided = {x: t for x, t in activations.items() if x not in merged.pinned}
        kept = _numbered((g, x) for g, group in enumerate(groups) for x, t in decided.items() if t >= group.start)
        useful = [[i for i in sorted(nodes) if nodes[i] >= group.start] for group in groups]
        rerun = _numbered((g, i) for g, sweep in enumerate(useful) for i in sweep)
        laid = tuple(_sweep(merged, group, nodes) for group, nodes in zip(groups, useful, strict=True) if sweeps)
        stay = _numbered((g, k) for g, sweep in enumerate(laid) for k in range(len(sweep.stays)))
        memory = _numbered((g, k) for g, sweep in enumerate(laid) for k in range(len(sweep.nodes)))
        return cls(merged, budget_bytes, groups, kept, rerun, stay, memory, laid)

    def present(self, group: int, activation: int, coefficient: float) -> tuple[list[Term], float]:
        """π_{g,i} times ``coefficient``: as terms, and as a constant where every operator of the group needs it."""
        if activation in self.groups[group].needs:
            return [], coefficient
        return self.keep(group + 1, activation, coefficient), 0.0

    def keep(self, passed: int, activation: int, coefficient: float) -> list[Term]:
        """s_{g,i} times ``coefficient`` after ``passed`` groups; no term where it would be of no use."""
        position = self.kept.get((passed, activation))
        return [] if position is None else [("s", position, coefficient)]

    def run(self, group: int, node: int | None, coefficient: float) -> list[Term]:
        """r_{g,i} times ``coefficient``; no term for an activation that no node makes again."""
        position = None if node is None else self.rerun.get((group, node))
        return [] if position is None else [("r", position, coefficient)]

    def variables(self) -> dict[str, cp.Variable]:
        """The blocks: ``s`` and ``r`` binary, ``w`` (stays) and ``u`` (memory in sweeps), ``f`` (in the forward pass).

        Activations that no operator can make again are kept until their last reader of the backward pass.
        """
        last_needed = {x: t for t, needs in enumerate(self.merged.needs) for x in needs}
        must = np.zeros(len(self.kept))
        for (passed, x), position in self.kept.items():
            if x not in self.merged.producer and last_needed.get(x, -1) >= self.groups[passed].start:
                must[position] = 1.0
        cap = np.array([max(self.idle_room(self.groups[g].start), 0.0) for g, _ in self.memory])
        blocks = {
            "s": (len(must), must, np.ones(len(must)), True),
            "r": (len(self.rerun), np.zeros(len(self.rerun)), np.ones(len(self.rerun)), True),
            "w": (len(self.stay), np.zeros(len(self.stay)), np.ones(len(self.stay)), False),
            "u": (len(cap), np.zeros(len(cap)), cap, False),
            "f": (len(self.releases), np.zeros(len(self.releases)), np.full(len(self.releases), np.inf), False),
        }
        return {
            name: cp.Variable(count, name=name, boolean=boolean, bounds=[lower, upper])
            for name, (count, lower, upper, boolean) in blocks.items()
            if count
        }

    @cached_property
    def releases(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Forward operators after which activations live on only if kept (s_0), with those; −1 before the first."""
        problem = self.merged.problem
        last = {x: problem.activations[x].producer for passed, x in self.kept if passed == 0}
        for i, operator in enumerate(problem.forward):
            last |= {x: i for x in operator.first.reads if x in last}
        released: dict[int, list[int]] = {-1: []}
        for x, i in last.items():
            released.setdefault(i, []).append(x)
        return tuple((i, tuple(released[i])) for i in sorted(released))


def _numbered(keys: Iterator[tuple[int, int]]) -> dict[tuple[int, int], int]:
    return {key: position for position, key in enumerate(keys)}


def _sweep(merged: MergedProblem, group: Group, nodes: list[int]) -> Sweep:
    position = {node: k for k, node in enumerate(nodes)}
    readers: dict[int, list[int]] = {}
    for k, node in enumerate(nodes):
        for x in merged.nodes[node].reads:
            readers.setdefault(x, []).append(k)
    activations = {x for x, t in merged.last_useful[0].items() if t >= group.start and x not in merged.pinned}
    turn = {}
    stays: list[Stay] = []
    reads: list[list[int]] = [[] for _ in nodes]
    for x in sorted(activations):
        users = readers.get(x, [])
        producer = merged.producer.get(x)
        # What nobody makes again is counted as kept until its first reader.
        turn[x] = position[producer] if producer is not None else (users[0] if users else 0)
        if x not in group.needs:
            _add_stays(x, turn[x], [k for k in users if k > turn[x]], stays, reads)
    return Sweep(tuple(nodes), turn, tuple(stays), tuple(tuple(x) for x in reads))


def _add_stays(activation: int, turn: int, users: list[int], stays: list[Stay], reads: list[list[int]]) -> None:
    """Split the time from ``turn`` to the last reader into stays; a reader right behind needs none."""
    begins = [turn, *users][:-1]
    long = [n for n, (after, until) in enumerate(zip(begins, users, strict=True)) if until > after + 1]
    for n, (after, until) in enumerate(zip(begins, users, strict=True)):
        if until == after + 1:
            reads[until].append(activation)
            continue
        ends = next((m for m in long if m > n), len(users))
        following = len(stays) + 1 if ends < len(users) else None
        stays.append(Stay(activation, after, until, tuple(users[n:ends]), following))
