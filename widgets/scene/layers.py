"""Module paths cut to a depth at which a person can read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from explorer.graph import Phase, TrainingGraph
from explorer.simulation import Stage, Timeline

NO_MODULE = "other"
_NAMED = 8  # layers, in a message


@dataclass(frozen=True)
class LayerGroups:
    """The layers of a graph, gathered under common ancestors until few enough are left.

    Attributes:
        labels: distinct labels in order of first use.
        of_operator: position in ``labels`` for each operator.
    """

    labels: tuple[str, ...]
    of_operator: tuple[int, ...]


def group_layers(graph: TrainingGraph, *, most: int = 48) -> LayerGroups:
    """Gather the layers at the greatest depth that leaves at most ``most`` groups (or at depth 1)."""
    paths = [operator.layer for operator in graph.operators]
    depth = _depth(paths, lambda cut: len(set(cut)) <= most)
    cut = [_cut(path, depth) for path in paths]
    labels = tuple(dict.fromkeys(cut))
    position = {label: i for i, label in enumerate(labels)}
    return LayerGroups(labels, tuple(position[label] for label in cut))


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive runs of one layer: ``start`` inclusive, ``end`` exclusive."""

    label: str
    start: int
    end: int


def segments(graph: TrainingGraph, timeline: Timeline, *, most: int = 24) -> tuple[Segment, ...]:
    """Stretches of the step worth a label on its axis.

    Recomputations belong to the stretch of the backward pass that asked for them. Stretches under a fiftieth of the
    step get no label.
    """
    own = [i for i, stage in enumerate(timeline.stages) if stage is not Stage.RECOMPUTE]
    paths = _filled([graph.operators[timeline.operators[i]].layer for i in own])
    depth = _depth(paths, lambda cut: sum(1 for _ in groupby(cut)) <= most)
    found: list[Segment] = []
    start = 0
    for label, members in groupby(
        range(len(own)), key=lambda i: (timeline.stages[own[i]] is Stage.FORWARD, _cut(paths[i], depth))
    ):
        end = own[list(members)[-1]] + 1
        if end - start >= len(timeline.operators) / 50:
            found.append(Segment(label[1], start, end))
        start = end
    return tuple(found)


def stretches(graph: TrainingGraph, operators: Iterable[int], *, most: int = 14) -> tuple[Segment, ...]:
    """Stretches of a row of operators worth a label: consecutive ones of one layer, at the depth that leaves few."""
    row = [int(x) for x in operators]
    paths = _filled([graph.operators[x].layer for x in row])
    passes = [graph.operators[x].phase is Phase.FORWARD for x in row]  # updates stand among the backward operators
    depth = _depth(paths, lambda cut: sum(1 for _ in groupby(zip(passes, cut, strict=True))) <= most)
    found: list[Segment] = []
    start = 0
    for (_, label), stretch in groupby(zip(passes, (_cut(path, depth) for path in paths), strict=True)):
        end = start + sum(1 for _ in stretch)
        if end - start >= len(row) / 40:
            found.append(Segment(label, start, end))
        start = end
    return tuple(found)


def _filled(paths: Sequence[str]) -> list[str]:
    """Sums of gradients and the like belong to no module: they count for the layer before them."""
    filled, last = [], ""
    for path in paths:
        last = path or last
        filled.append(last)
    return filled


def _depth(paths: Sequence[str], readable: Callable[[list[str]], bool]) -> int:
    deepest = max((path.count(".") + 1 for path in paths if path), default=1)
    for depth in range(deepest, 1, -1):
        if readable([_cut(path, depth) for path in paths]):
            return depth
    return 1


@lru_cache(maxsize=16384)  # each drawing asks for the same
def _cut(path: str, depth: int) -> str:
    return ".".join(path.split(".")[:depth]) or NO_MODULE


def covers(selection: str, layer: str) -> bool:
    """Is ``layer`` the selected one, below it, or above it?"""
    if not selection:
        return False
    return layer == selection or layer.startswith(selection + ".") or selection.startswith(layer + ".")


def members(graph: TrainingGraph, selection: str) -> frozenset[int]:
    """Ids of the operators of a layer and of all below it; ``NO_MODULE`` has those outside modules, "" has none."""
    if not selection:
        return frozenset()
    below = selection + "."
    return frozenset(
        operator.id
        for operator in graph.operators
        if (operator.layer or NO_MODULE) == selection or operator.layer.startswith(below)
    )


def module_paths(graph: TrainingGraph) -> tuple[str, ...]:
    """Every layer that has operators, and every ancestor of one, in order of first use; ``NO_MODULE`` last."""
    found: dict[str, None] = {}
    for operator in graph.operators:
        parts = operator.layer.split(".") if operator.layer else []
        found |= {".".join(parts[: depth + 1]): None for depth in range(len(parts))}
    return (*found, NO_MODULE)


def check_layer(graph: TrainingGraph, selection: str) -> None:
    """Raise ValueError for a selection that is neither a layer nor empty."""
    if selection and not members(graph, selection):
        known = ", ".join(map(repr, module_paths(graph)[:_NAMED]))
        raise ValueError(f"selection is {selection!r}; it must be a layer of the model, such as {known}")


def sums(groups: LayerGroups, operators: Iterable[int], amounts: Iterable[float]) -> list[float]:
    """Total of ``amounts``, one for each of ``operators``, by layer group."""
    totals = [0.0] * len(groups.labels)
    for operator, amount in zip(operators, amounts, strict=True):
        totals[groups.of_operator[operator]] += amount
    return totals
