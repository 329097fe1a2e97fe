"""Which decisions the grouped model has, and where its sweeps count each activation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import cvxpy as cp
import numpy as np

from explorer.solvers.formulation.decisions import Alternative, Decision, Decisions, follows_by_itself, worthwhile
from explorer.solvers.formulation.groups import Group
from explorer.solvers.formulation.merge import MergedProblem
from explorer.solvers.formulation.scaling import Scaled
from explorer.solvers.formulation.sweeps import Sweep
from explorer.solvers.formulation.ways import Way
from explorer.solvers.programs.rows import Amount, Term


@dataclass(frozen=True, eq=False)
class Layout(Scaled):
    """Index of every variable of the grouped model.

    Attributes:
        groups: of the backward operators.
        kept: (groups that have passed, activation) to position in block ``s``; 0 groups: after the forward pass.
        rerun: (group, node) to position in block ``r``.
        delta: (backward operator, index of its form) to position in block ``d``; only where there are several.
        chain: (group, activation) to the backward operators of the group that may read it, and for each the position in
            block ``p`` of "still there then"; None where a later one of them reads it in every form.
        stay: (group, index in ``Sweep.stays``) to position in block ``w``.
        memory: (group, slot of the sweep) to position in block ``u``.
        sweeps: one per group; a bound has none, and neither ``chain``, ``stay`` nor ``memory``.
    """

    groups: tuple[Group, ...]
    kept: dict[tuple[int, int], int]
    rerun: dict[tuple[int, int], int]
    delta: dict[tuple[int, int], int]
    chain: dict[tuple[int, int], tuple[tuple[int, int | None], ...]]
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
        decided = {x: t for x, t in activations.items() if merged.has_choice(x)}
        there = set(merged.problem.made_first)
        if merged.relaxed:
            # What was merged away may be there after the forward pass, though what stands for it must not be.
            there |= {y for x, standing in merged.representative.items() if x in there for y in standing}
        kept = _numbered(
            (g, x)
            for g, group in enumerate(groups)
            for x, t in decided.items()
            if t >= group.start and (g or x in there)
        )
        useful = [[i for i in sorted(nodes) if nodes[i] >= group.start] for group in groups]
        rerun = _numbered((g, i) for g, sweep in enumerate(useful) for i in sweep)
        stages = [(t, n) for t, stage in enumerate(merged.stages) if len(stage) > 1 for n in range(len(stage))]
        laid = tuple(Sweep.of(merged, group, nodes) for group, nodes in zip(groups, useful, strict=True) if sweeps)
        chains = _chains(merged, groups) if sweeps else {}
        stay = _numbered((g, k) for g, sweep in enumerate(laid) for k in range(len(sweep.stays)))
        memory = _numbered((g, k) for g, sweep in enumerate(laid) for k in range(len(sweep.slots)))
        return cls(merged, budget_bytes, groups, kept, rerun, _numbered(stages), chains, stay, memory, laid)

    def keep(self, passed: int, activation: int, coefficient: float) -> list[Term]:
        """s_{g,i} times ``coefficient`` after ``passed`` groups; no term where it would be of no use."""
        position = self.kept.get((passed, activation))
        return [] if position is None else [("s", position, coefficient)]

    def run(self, group: int, nodes: Iterable[int], coefficient: float) -> list[Term]:
        """Σ r_{g,j} times ``coefficient`` over nodes that may run there."""
        positions = (self.rerun.get((group, node)) for node in nodes)
        return [("r", position, coefficient) for position in positions if position is not None]

    def way_size(self, way: Way) -> float:
        """Memory of a way in units."""
        return self.units(way.bytes)

    def made(self, group: int, activation: int, coefficient: float) -> list[Term]:
        """Σ r_{g,j} times ``coefficient`` over the nodes that make an activation."""
        return self.run(group, self.merged.producers.get(activation, ()), coefficient)

    def reading(self, stage: int, activation: int, coefficient: float) -> Amount:
        """1 times ``coefficient`` if the chosen form of a backward operator reads an activation."""
        forms = self.merged.stages[stage]
        reading = [n for n, form in enumerate(forms) if activation in form.reads]
        if len(reading) == len(forms):
            return [], coefficient
        return [("d", self.delta[stage, n], coefficient) for n in reading], 0.0

    def present(self, group: int, activation: int, coefficient: float, *, stage: int | None = None) -> Amount:
        """π_{g,i} times ``coefficient`` before a backward operator of the group, its first by default."""
        for t, position in self.chain.get((group, activation), ()):
            if stage is None or t >= stage:
                return ([], coefficient) if position is None else ([("p", position, coefficient)], 0.0)
        return self.keep(group + 1, activation, coefficient), 0.0

    def after_stage(self, stage: int, activation: int, coefficient: float) -> Amount:
        """Presence after a backward operator, times ``coefficient``."""
        group = next(g for g, group in enumerate(self.groups) if stage in group.stages)
        return self.present(group, activation, coefficient, stage=stage + 1)

    def optional_run(self, operator: int, coefficient: float) -> list[Term]:
        """1 times ``coefficient`` if an optional operator runs in the forward pass: exactly if its result is kept."""
        writes = (x for form in self.merged.problem.forward[operator].first for x in form.writes)
        return next((self.keep(0, x, coefficient) for x in writes if (0, x) in self.kept), [])

    @cached_property
    def decisions(self) -> Decisions:
        """How everything runs; only ways that may be of use have variables."""
        counts = {"a": 0, "q": 0}

        def decide(owner: Amount, ways: Sequence[Way], room: float) -> Decision:
            # A relaxed problem does not say all that may be in memory.
            base, others = worthwhile(ways, room_bytes=-math.inf if self.merged.relaxed else room * self.unit_bytes)
            block = "q" if follows_by_itself(base, others) else "a"
            alternatives = []
            for way in others:
                alternatives.append(Alternative(way, block, counts[block]))
                counts[block] += 1
            return Decision(owner, base, tuple(alternatives))

        found = Decisions({}, {}, {})
        ahead = self._released_bytes()
        for i, operator in enumerate(self.merged.problem.forward):
            ways = [way for way in self.merged.first[i] if self._may_overwrite(i, way)]
            owner: Amount = (self.optional_run(i, 1.0), 0.0) if operator.optional else ([], 1.0)
            if owner[0] or owner[1]:
                found.first[i] = decide(owner, ways, self.room(self.before_bytes[i] + ahead[i]))
        for g, node in self.rerun:
            start = self.groups[g].start
            room = self.idle_room(start) - self.units(self.useful_bytes[start])
            ways = [x for x in self.merged.nodes[node].ways if not x.overwrites & self.groups[g].needs]
            found.again[g, node] = decide((self.run(g, (node,), 1.0), 0.0), ways, room)
        for t, forms in enumerate(self.merged.stages):
            room = self.stage_room(t) - self.units(self.useful_bytes[t])
            for n, form in enumerate(forms):
                owner = ([], 1.0) if len(forms) == 1 else ([("d", self.delta[t, n], 1.0)], 0.0)
                ways = [x for x in form.ways if not any(self.after_stage(t, y, 1.0)[1] for y in x.overwrites)]
                found.backward[t, n] = decide(owner, ways, room)
        return found

    def _released_bytes(self) -> list[int]:
        """For each first run, all that may be kept though no first run reads it any more."""
        ends = np.zeros(len(self.merged.problem.forward) + 1, dtype=np.int64)
        for i, released in self.releases:
            ends[i + 1] += self.merged.bytes(released)
        return ends.cumsum().tolist()

    def _may_overwrite(self, operator: int, way: Way) -> bool:
        """Is what a first run overwrites certainly of no more use to the forward pass, and not kept unasked?"""
        return all(self.last_read[x] <= operator and x not in self.merged.charged for x in way.overwrites)

    def variables(self) -> dict[str, cp.Variable]:
        """The blocks.

        Binary are ``s``, ``r``, ``d`` (forms) and ``a`` (ways); continuous ``q`` (ways in place), ``p`` (presence),
        ``w`` (stays), ``u`` (memory in sweeps) and ``f`` (in the forward pass). Activations that no operator can make
        again are kept until the last backward operator that reads them in every form.
        """
        last_needed = {x: t for t, needs in enumerate(self.merged.needs) for x in needs}
        must = np.zeros(len(self.kept))
        for (passed, x), position in self.kept.items():
            if x not in self.merged.producers and last_needed.get(x, -1) >= self.groups[passed].start:
                must[position] = 1.0
        cap = np.array([max(self.idle_room(self.groups[g].start), 0.0) for g, _ in self.memory])
        alternatives = [x.block for decision in self.decisions for x in decision.others]
        presences = {position for chain in self.chain.values() for _, position in chain if position is not None}
        counts = {
            "s": len(must), "r": len(self.rerun), "d": len(self.delta), "a": alternatives.count("a"),
            "q": alternatives.count("q"), "p": len(presences), "w": len(self.stay), "u": len(cap),
            "f": len(self.releases),
        }  # fmt: skip
        lower = {"s": must}
        upper = {"u": cap, "f": np.full(counts["f"], np.inf)}
        return {
            name: cp.Variable(
                count,
                name=name,
                boolean=name in "srda",
                bounds=[lower.get(name, np.zeros(count)), upper.get(name, np.ones(count))],
            )
            for name, count in counts.items()
            if count
        }

    @cached_property
    def releases(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Forward operators after which activations live on only if kept (s_0), with those; −1 before the first.

        In a relaxed problem, what an optional operator makes counts at the end of the forward pass alone: it may run
        anywhere before. And what stands for something merged away counts once neither is read any more.
        """
        problem = self.merged.problem
        stand_for: dict[int, list[int]] = {}
        for x, standing in self.merged.representative.items() if self.merged.relaxed else ():
            for y in standing:
                stand_for.setdefault(y, []).append(x)
        released: dict[int, list[int]] = {-1: []}
        for x in (x for passed, x in self.kept if passed == 0):
            at = max(self.last_read[y] for y in (x, *stand_for.get(x, ())))
            if self.merged.relaxed and problem.forward[problem.activations[x].producer].optional:
                at = len(problem.forward) - 1
            released.setdefault(at, []).append(x)
        return tuple((i, tuple(released[i])) for i in sorted(released))


def _numbered(keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
    return {key: position for position, key in enumerate(keys)}


def _chains(
    merged: MergedProblem, groups: tuple[Group, ...]
) -> dict[tuple[int, int], tuple[tuple[int, int | None], ...]]:
    """Where each activation that a form of a group reads may be read there, and the variables for that."""
    chains: dict[tuple[int, int], tuple[tuple[int, int | None], ...]] = {}
    count = 0
    for g, group in enumerate(groups):
        for x in sorted(group.offers):
            stages = [t for t in group.stages if x in merged.offers[t]]
            forced = max((n for n, t in enumerate(stages) if x in merged.needs[t]), default=-1)
            positions = [None if n <= forced else count + n - forced - 1 for n in range(len(stages))]
            count += len(stages) - 1 - forced
            chains[g, x] = tuple(zip(stages, positions, strict=True))
    return chains
