"""From a schedule to values of the grouped model's variables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from explorer.schedule import Schedule
from explorer.solvers.monet.layout import Layout
from explorer.solvers.monet.merge import MergedProblem


@dataclass(frozen=True, slots=True)
class Plan:
    """The binary decisions of the grouped model.

    Attributes:
        kept: activations kept after 0, 1, … groups.
        reruns: nodes that run at the start of each group.
    """

    kept: tuple[frozenset[int], ...]
    reruns: tuple[frozenset[int], ...]


def plan_of(layout: Layout, schedule: Schedule) -> Plan | None:
    """The decisions that keep what ``schedule`` keeps after each group, as far as it serves something later.

    Returns:
        The plan, without regard to memory; None where the schedule runs implementations unknown to the problem, or
        drops what cannot be made again.
    """
    read = layout.merged.problem.intervals_of(schedule)
    if read is None:
        return None
    after_forward, intervals = read
    offered = [after_forward, *(intervals[group.stop - 1].kept for group in layout.groups)]
    kept: list[frozenset[int]] = [frozenset()]
    reruns: list[frozenset[int]] = []
    for g in range(len(layout.groups) - 1, -1, -1):
        there = {x for x in represented(layout.merged, offered[g]) if (g, x) in layout.kept}
        found = closure(layout.merged, layout.groups[g].needs | kept[-1], there)
        if found is None:
            return None
        used, again = found
        kept.append(frozenset(used))
        reruns.append(frozenset(again))
    return Plan(tuple(reversed(kept)), tuple(reversed(reruns)))


def represented(merged: MergedProblem, activations: Iterable[int]) -> set[int]:
    """What merged-away activations stand for, and all others as they are."""
    found: set[int] = set()
    for x in activations:
        found |= merged.representative.get(x, frozenset((x,)))
    return found


def closure(merged: MergedProblem, wanted: frozenset[int], there: set[int]) -> tuple[set[int], set[int]] | None:
    """Which of ``there`` are used, and which nodes must run, to have all of ``wanted``."""
    used: set[int] = set()
    again: set[int] = set()
    pending = list(wanted)
    while pending:
        x = pending.pop()
        node = merged.producer.get(x)
        if x in there:
            used.add(x)
        elif node is None:
            return None
        elif node not in again:
            again.add(node)
            pending += merged.nodes[node].reads
    remade = {x for node in again for x in merged.nodes[node].writes}
    return used - remade, again


def values_of(layout: Layout, plan: Plan) -> dict[str, np.ndarray]:
    """The values of every block of variables for ``plan``; continuous ones as small as the plan allows."""
    values = {
        "s": np.array([float(x in plan.kept[passed]) for passed, x in layout.kept]),
        "r": np.array([float(node in plan.reruns[g]) for g, node in layout.rerun]),
        "w": np.zeros(len(layout.stay)),
        "u": np.zeros(len(layout.memory)),
        "f": np.cumsum([_size(layout, set(x) & plan.kept[0]) for _, x in layout.releases]),
    }
    for g in range(len(layout.groups)):
        _fill_sweep(layout, plan, g, values)
    return values


def _fill_sweep(layout: Layout, plan: Plan, group: int, values: dict[str, np.ndarray]) -> None:
    sweep = layout.sweeps[group]
    present = layout.groups[group].needs | plan.kept[group + 1]
    change = np.zeros(len(sweep.nodes))
    if change.size:
        change[0] += _size(layout, plan.kept[group])
        for x, turn in sweep.turn.items():
            change[turn] += layout.size(x) * (float(x in present) - float(x in plan.kept[group]))
    for n in range(len(sweep.stays) - 1, -1, -1):
        stay = sweep.stays[n]
        read = any(sweep.nodes[k] in plan.reruns[group] for k in stay.readers) and stay.activation not in present
        later = 0.0 if stay.following is None else values["w"][layout.stay[group, stay.following]]
        values["w"][layout.stay[group, n]] = held = max(float(read), later)
        change[stay.after] += held * layout.size(stay.activation)
        change[stay.until] -= held * layout.size(stay.activation)
    if change.size:
        first = layout.memory[group, 0]
        values["u"][first : first + change.size] = np.cumsum(change)


def _size(layout: Layout, activations: Iterable[int]) -> float:
    return sum(layout.size(x) for x in activations)
