"""From a schedule to values of the grouped model's variables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.formulation.decisions import Decision
from explorer.solvers.formulation.layout import Layout
from explorer.solvers.formulation.merge import MergedProblem
from explorer.solvers.problem.schedules import Reading, reading_of

Values = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class GroupedPlan:
    """The decisions of the grouped model but for ways to run.

    Attributes:
        kept: activations kept after 0, 1, … groups.
        reruns: nodes that run at the start of each group.
        forms: index of the form of each backward operator in ``MergedProblem.stages``; 0 where it never runs.
        first: form of each first run.
    """

    kept: tuple[frozenset[int], ...]
    reruns: tuple[frozenset[int], ...]
    forms: tuple[int, ...]
    first: dict[int, int]


def plan_of(layout: Layout, schedule: Schedule) -> GroupedPlan | None:
    """The decisions that keep what ``schedule`` keeps after each group, as far as it serves something later.

    Returns:
        The plan, without regard to memory; None where the schedule runs implementations unknown to the problem, or
        drops what cannot be made again.
    """
    merged = layout.merged
    read = reading_of(merged.problem, schedule)
    if read is None:
        return None
    forms = tuple(_stage_form(merged, t, read) for t in range(len(merged.stages)))
    offered = [read.after_forward, *(read.intervals[group.stop - 1].kept for group in layout.groups)]
    kept: list[frozenset[int]] = [frozenset()]
    reruns: list[frozenset[int]] = []
    for g in range(len(layout.groups) - 1, -1, -1):
        there = {x for x in represented(merged, offered[g]) if (g, x) in layout.kept}
        wanted = kept[-1].union(
            *(merged.stages[t][forms[t]].reads for t in layout.groups[g].stages if merged.stages[t])
        )
        again = {x.operator: x.form for t in layout.groups[g].stages for x in read.intervals[t].recomputations}
        found = closure(merged, wanted, there, again)
        if found is None:
            return None
        used, nodes = found
        kept.append(frozenset(used))
        reruns.append(frozenset(nodes))
    first = {x.operator: x.form for x in read.first}
    kept[-1] = _with_optional(layout, kept[-1])
    return GroupedPlan(tuple(reversed(kept)), tuple(reversed(reruns)), forms, first)


def _stage_form(merged: MergedProblem, stage: int, read: Reading) -> int:
    """The form that a schedule takes, or one that reads less and beats it."""
    choice, forms = read.intervals[stage].backward, merged.stages[stage]
    if choice is None or len(forms) < 2:
        return 0
    reads = {x for x in merged.problem.backward[stage].forms[choice.form].reads if merged.has_choice(x)}
    able = [n for n, form in enumerate(forms) if form.reads <= reads]
    return max(able, key=lambda n: len(forms[n].reads))


def _with_optional(layout: Layout, kept: frozenset[int]) -> frozenset[int]:
    """With what else the first runs of optional operators make, and read from each other."""
    found = set(kept)
    forward = layout.merged.problem.forward
    for i in range(len(forward) - 1, -1, -1):
        writes = {x for form in forward[i].first for x in form.writes if (0, x) in layout.kept}
        if forward[i].optional and writes & found:
            reads = {x for form in forward[i].first for x in form.reads if (0, x) in layout.kept}
            found |= writes | {x for x in reads if forward[layout.merged.problem.activations[x].producer].optional}
    return frozenset(found)


def represented(merged: MergedProblem, activations: Iterable[int]) -> set[int]:
    """What merged-away activations stand for, and all others as they are."""
    found: set[int] = set()
    for x in activations:
        found |= merged.representative.get(x, frozenset((x,)))
    return found


def closure(
    merged: MergedProblem, wanted: frozenset[int], there: set[int], preferred: dict[int, int]
) -> tuple[set[int], set[int]] | None:
    """Which of ``there`` are used, and which nodes must run, to have all of ``wanted``.

    Args:
        merged: the problem.
        wanted: activations with a choice.
        there: of them, those in memory.
        preferred: operator to its form; of several nodes the one that agrees is taken where it can run.
    """
    able = _able(merged, there)
    pending = set(wanted)
    again: set[int] = set()
    # Nodes are in the order of a sweep, so those that come later read what earlier ones make.
    for alternatives in reversed(merged.alternatives):
        missing = {x for n in alternatives for x in merged.nodes[n].writes} & (pending - there)
        fitting = [n for n in alternatives if n in able and missing <= merged.nodes[n].writes]
        if missing and not fitting:
            return None
        if missing:
            chosen = min(fitting, key=lambda n: (not _agrees(merged, n, preferred), merged.nodes[n].ways[0].time_ms))
            again.add(chosen)
            pending = (pending - missing) | merged.nodes[chosen].reads
    remade = {x for node in again for x in merged.nodes[node].writes}
    if pending - there - remade:
        return None
    return (pending & there) - remade, again


def _able(merged: MergedProblem, there: set[int]) -> set[int]:
    """Nodes whose inputs are there or can be made again."""
    reachable = set(there)
    able: set[int] = set()
    for alternatives in merged.alternatives:
        found = [n for n in alternatives if merged.nodes[n].reads <= reachable]
        able |= set(found)
        reachable |= {x for n in found for x in merged.nodes[n].writes}
    return able


def _agrees(merged: MergedProblem, node: int, preferred: dict[int, int]) -> bool:
    members, ways = merged.nodes[node].members, merged.nodes[node].ways
    return any(all(preferred.get(i) == f for i, f in zip(members, way.forms, strict=True)) for way in ways)


class Encoder:
    """Fills the blocks of variables for a plan, continuous ones as small as it allows, ways as quick as fit."""

    def __init__(self, layout: Layout, plan: GroupedPlan) -> None:
        """Fill what the plan says outright."""
        self.layout, self.plan = layout, plan
        alternatives = [x for decision in layout.decisions for x in decision.others]
        self.values: Values = {
            "s": np.array([float(x in plan.kept[passed]) for passed, x in layout.kept]),
            "r": np.array([float(node in plan.reruns[g]) for g, node in layout.rerun]),
            "d": np.array([float(plan.forms[t] == n) for t, n in layout.delta]),
            "a": np.zeros(sum(x.block == "a" for x in alternatives)),
            "q": np.zeros(sum(x.block == "q" for x in alternatives)),
            "p": np.zeros(sum(position is not None for chain in layout.chain.values() for _, position in chain)),
            "w": np.zeros(len(layout.stay)),
            "u": np.zeros(len(layout.memory)),
            "f": np.cumsum([self._size(set(x) & plan.kept[0]) for _, x in layout.releases]),
        }

    def fill(self) -> Values:
        """The values of every block."""
        self._first_runs()
        for g in range(len(self.layout.groups)):
            self._presence(g)
            level = self._sweep(g)
            self._stages(g, level)
        level = float(self.values["f"][-1])
        groups = self.layout.groups
        for t in range(groups[0].start if groups else len(self.layout.merged.stages)):
            self._stage(t, level, set())
        return self.values

    def _first_runs(self) -> None:
        layout, kept = self.layout, self.plan.kept[0]
        forward = layout.merged.problem.forward
        running = [j for j, x in enumerate(forward) if x.optional and self._value(layout.optional_run(j, 1.0))]
        last_optional = {x: j for j in running for form in forward[j].first for x in form.reads}
        released = dict(layout.releases)
        level = self._size(set(released[-1]) & kept)
        for i, operator in enumerate(forward):
            decision = layout.decisions.first.get(i)
            if decision is not None and not (operator.optional and i not in running):
                reads = {x for form in operator.first for x in form.reads if layout.last_read[x] < i}
                brought = (x for x in reads if layout.merged.has_choice(x) and x not in kept)
                room = layout.room(layout.before_bytes[i]) - level - self._size(brought)
                alive = kept | {x for x, j in last_optional.items() if j > i}
                self._choose(decision, room, alive, self.plan.first.get(i))
            level += self._size(set(released.get(i, ())) & kept)

    def _presence(self, group: int) -> None:
        """p: until the last backward operator whose chosen form reads it, or on and on if it is kept."""
        stages = self.layout.merged.stages
        for x in self.layout.groups[group].offers:
            there = x in self.plan.kept[group + 1]
            for t, position in reversed(self.layout.chain[group, x]):
                there = there or x in stages[t][self.plan.forms[t]].reads
                if position is not None:
                    self.values["p"][position] = float(there)

    def _sweep(self, group: int) -> float:
        """The sweep's stays, memory and ways; returns the memory after it."""
        layout, plan = self.layout, self.plan
        sweep = layout.sweeps[group]
        present = {x for x in sweep.turn if self._present(group, x, layout.groups[group].start)}
        change = np.zeros(len(sweep.slots))
        level = self._size(plan.kept[group])
        for x, turn in sweep.turn.items():
            if change.size:
                change[turn] += layout.size(x) * (float(x in present) - float(x in plan.kept[group]))
        for n in range(len(sweep.stays) - 1, -1, -1):
            stay = sweep.stays[n]
            read = any(self._reads(group, k, stay.activation) for k in stay.readers) and stay.activation not in present
            later = 0.0 if stay.following is None else self.values["w"][layout.stay[group, stay.following]]
            self.values["w"][layout.stay[group, n]] = held = max(float(read), later)
            change[stay.after] += held * layout.size(stay.activation)
            change[stay.until] -= held * layout.size(stay.activation)
        for k, slot in enumerate(sweep.slots):
            for node in set(slot) & plan.reruns[group]:
                reads = layout.merged.nodes[node].reads & set(sweep.reads[k])
                room = layout.idle_room(layout.groups[group].start) - level - self._size(reads - present)
                later = {
                    x for x, slots in sweep.readers.items() if any(self._reads(group, n, x) for n in slots if n > k)
                }
                self._choose(layout.decisions.again[group, node], room, present | later)
            level += change[k]
            self.values["u"][layout.memory[group, k]] = level
        return level

    def _stages(self, group: int, level: float) -> None:
        for t in self.layout.groups[group].stages:
            after = {x for x in self.layout.merged.offers[t] if self._present(group, x, t + 1)}
            self._stage(t, level, after)
            gone = (x for x in self.layout.merged.offers[t] if x not in after and self._present(group, x, t))
            level -= self._size(gone)

    def _stage(self, stage: int, level: float, alive: set[int]) -> None:
        if self.layout.merged.stages[stage]:
            decision = self.layout.decisions.backward[stage, self.plan.forms[stage]]
            self._choose(decision, self.layout.stage_room(stage) - level, alive)

    def _choose(self, decision: Decision, room: float, alive: Iterable[int], form: int | None = None) -> None:
        """Take the quickest way that fits; the smallest if none does."""
        ways = [] if decision.base is None else [(decision.base, None)]
        ways += [(x.way, x) for x in decision.others]
        able = [x for x in ways if not x[0].overwrites & frozenset(alive) and (form is None or x[0].forms == (form,))]
        fitting = [x for x in able if self.layout.way_size(x[0]) <= room + 1e-12]
        if not able:
            return
        _, chosen = (
            min(fitting, key=lambda x: (x[0].time_ms, x[0].bytes)) if fitting else min(able, key=lambda x: x[0].bytes)
        )
        if chosen is not None:
            self.values[chosen.block][chosen.position] = 1.0

    def _present(self, group: int, activation: int, stage: int) -> bool:
        terms, constant = self.layout.present(group, activation, 1.0, stage=stage)
        return self._value(terms) + constant > 0.5

    def _reads(self, group: int, slot: int, activation: int) -> bool:
        nodes = set(self.layout.sweeps[group].slots[slot]) & self.plan.reruns[group]
        return any(activation in self.layout.merged.nodes[node].reads for node in nodes)

    def _value(self, terms: list[tuple[str, int, float]]) -> float:
        return sum(coefficient * self.values[block][position] for block, position, coefficient in terms)

    def _size(self, activations: Iterable[int]) -> float:
        return sum(self.layout.size(x) for x in activations)
