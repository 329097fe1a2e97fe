"""Module paths cut to a depth at which a person can read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from explorer.graph import Phase, TrainingGraph
from explorer.timeline import Stage, Timeline
from widgets.scene.blocks import Blocks, blocks_of
from widgets.scene.repeats import name_of_use, repeats

NO_MODULE = "other"
FEW = 24
"""Layers that can each be shown, with a name."""
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


def group_layers(graph: TrainingGraph, *, most: int = 48, most_blocks: int = FEW, within: str = "") -> LayerGroups:
    """Gather the layers at the greatest depth that leaves at most ``most`` groups (or at depth 1).

    Where that is more than ``most_blocks``, or hides the repeated blocks of the model, each of these is a group,
    however many they are: whoever shows them puts equal ones together.

    Args:
        graph: of the layers.
        most: groups.
        most_blocks: groups that each can be shown; of layers outside repeated blocks, likewise.
        within: a layer whose block is gathered as layers outside blocks are.
    """
    paths = [operator.layer for operator in graph.operators]
    distinct = tuple(dict.fromkeys(paths))
    blocks = blocks_of(graph)
    depth = _depth(distinct, lambda cut: len(set(cut)) <= most)
    label = {path: _cut(path, depth) for path in distinct}
    hidden = any(run.depth > depth for run in blocks.runs)
    if blocks.runs and (hidden or len(set(label.values())) > most_blocks):
        opened = blocks.place(within)
        block = {path: _block(blocks, path) for path in distinct}
        if opened is not None:
            block |= {path: None for path, x in block.items() if x == _block(blocks, within)}
        others = [path for path in distinct if block[path] is None]
        depth = _depth(others, lambda cut: len(set(cut)) <= min(most, most_blocks))
        label = {path: block[path] or _cut(path, depth) for path in distinct}
    position = {name: i for i, name in enumerate(dict.fromkeys(label.values()))}
    return LayerGroups(tuple(position), tuple(position[label[path]] for path in paths))


def _block(blocks: Blocks, path: str) -> str | None:
    """Module path of the repeated block that a layer belongs to."""
    place = blocks.place(path)
    return None if place is None else path.removesuffix(place.rest)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive runs of one layer: ``start`` inclusive, ``end`` exclusive."""

    label: str
    start: int
    end: int


def segments(graph: TrainingGraph, timeline: Timeline, *, most: int = 19) -> tuple[Segment, ...]:
    """Stretches of the step worth a label on its axis.

    Recomputations belong to the stretch of the backward pass that asked for them. Stretches under a fiftieth of the
    step get no label.
    """
    own = [i for i, stage in enumerate(timeline.stages) if stage is not Stage.RECOMPUTE]
    paths = _filled([graph.operators[timeline.operators[i]].layer for i in own])
    passes = [timeline.stages[i] is Stage.FORWARD for i in own]
    ends = [0, *(x + 1 for x in own)]
    row = (Segment(x.label, ends[x.start], ends[x.end]) for x in _row(blocks_of(graph), paths, passes, most=most))
    return tuple(x for x in row if x.end - x.start >= len(timeline.operators) / 50)


def stretches(graph: TrainingGraph, operators: Iterable[int], *, most: int = 14) -> tuple[Segment, ...]:
    """Stretches of a row of operators worth a label: consecutive ones of one layer, at the depth that leaves few."""
    row = [int(x) for x in operators]
    paths = _filled([graph.operators[x].layer for x in row])
    passes = [graph.operators[x].phase is Phase.FORWARD for x in row]  # updates stand among the backward operators
    found = _row(blocks_of(graph), paths, passes, most=most)
    return tuple(x for x in found if x.end - x.start >= len(row) / 40)


def _filled(paths: Sequence[str]) -> list[str]:
    """Sums of gradients and the like belong to no module: they count for the layer before them."""
    filled, last = [], ""
    for path in paths:
        last = path or last
        filled.append(last)
    return filled


def _depth(paths: Sequence[str], readable: Callable[[list[str]], bool]) -> int:
    """The greatest at which the paths, cut there, are readable; 1 if none is."""
    for depth in range(_deepest(paths), 1, -1):
        if readable([_cut(path, depth) for path in paths]):
            return depth
    return 1


def _deepest(paths: Iterable[str]) -> int:
    return max((path.count(".") + 1 for path in set(paths) if path), default=1)


def _row(blocks: Blocks, paths: Sequence[str], passes: Sequence[bool], *, most: int) -> list[Segment]:
    """Stretches of one label and one pass, at the greatest depth that leaves at most ``most`` of them, or at depth 1.

    Before blocks lose their own label, neighbours that are equal share one: two, four, and so on. Then what a module
    that is used several times does in each use is one stretch, and if need be all of its uses are.
    """
    row: list[Segment] = []
    for depth in range(_deepest(paths), 0, -1):
        count = max((run.count for run in blocks.runs if run.depth == depth), default=1)
        for width in (1 << x for x in range((count - 1).bit_length() + 1)):
            label = {path: _shared(blocks, path, depth, width) for path in set(paths)}
            keys = list(zip(passes, (label[path] for path in paths), strict=True))
            row = _stretches(keys)
            if len(row) <= most:
                return row
        for each in (True, False):
            row = _folded_uses(keys, each=each)
            if len(row) <= most:
                return row
    return row


def _stretches(keys: Sequence[tuple[bool, str]]) -> list[Segment]:
    found, start = [], 0
    for (_, label), members in groupby(keys):
        end = start + sum(1 for _ in members)
        found.append(Segment(label, start, end))
        start = end
    return found


def _folded_uses(keys: Sequence[tuple[bool, str]], *, each: bool) -> list[Segment]:
    """Stretches in which a module that is used several times is one for each use, or for all."""
    row = _stretches(keys)
    found: list[Segment] = []
    for at, length, times in repeats([(keys[x.start][0], x.label) for x in row]):
        name = name_of_use([x.label for x in row[at : at + length]])
        parts, told = (times, name) if each or times == 1 else (1, f"{name} ×{times}")
        step = length * times // parts
        starts = range(at, at + length * times, step)
        found += [Segment(told, row[i].start, row[i + step - 1].end) for i in starts]
    return found


def _shared(blocks: Blocks, path: str, depth: int, width: int) -> str:
    """A path cut to a depth; there, ``width`` neighbouring blocks have one label."""
    place = blocks.place(path) if width > 1 else None
    if place is None or place.run.depth != depth:
        return _cut(path, depth)
    first = place.block // width * width
    return place.run.label(range(first, min(first + width, place.run.count)))


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
