"""Blocks that a model repeats: which there are, and what stands for several of them.

A deep network is a list of blocks with equal operators. Where each cannot have a place of its own, a run of them has
one together, called as ``model.layers.0-31``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TypeVar

from explorer.graph import TrainingGraph

_FEWEST = 3  # of two equal blocks each has its own place
_NUMBERED = re.compile(r"(.*?)(\d+)")
_CALL = re.compile(r"_\d+$")
"""What tells targets of our own calls apart: ``explorer.relu_mask_3``."""
_RANGES = 3  # that a name lists

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive blocks with equal operators.

    Attributes:
        stem: of their module paths, which a number completes.
        first: number of the first.
        count: how many.
    """

    stem: str
    first: int
    count: int

    @property
    def depth(self) -> int:
        """Parts of a block's module path."""
        return self.stem.count(".") + 1

    def label(self, blocks: Iterable[int]) -> str:
        """Module path of some blocks, by their places in the run: ``model.layers.0-3, 7``."""
        numbers = sorted(self.first + x for x in set(blocks))
        ranges = [[x for _, x in span] for _, span in groupby(enumerate(numbers), key=lambda x: x[1] - x[0])]
        told = [str(x[0]) if len(x) == 1 else f"{x[0]}-{x[-1]}" for x in ranges]
        return self.stem + ", ".join(told[:_RANGES]) + (", …" if len(told) > _RANGES else "")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a layer stands in a run.

    Attributes:
        run: of blocks.
        block: which of them, counted from 0.
        rest: path below the block, with its leading dot; empty for the block itself.
    """

    run: Run
    block: int
    rest: str


class Blocks:
    """The runs of a graph; of blocks within blocks the outermost that are equal."""

    def __init__(self, graph: TrainingGraph) -> None:
        """Compare all blocks, once for all drawings: see ``blocks_of``."""
        self.runs = tuple(_runs(graph))
        self._run_of = {f"{run.stem}{run.first + i}": (run, i) for run in self.runs for i in range(run.count)}
        self._places: dict[str, Place | None] = {}

    def place(self, layer: str) -> Place | None:
        """Where a layer stands; None outside runs."""
        if layer not in self._places:
            self._places[layer] = self._find(layer)
        return self._places[layer]

    def _find(self, layer: str) -> Place | None:
        for block in _ancestors(layer):
            if block in self._run_of:
                return Place(*self._run_of[block], layer[len(block) :])
        return None


class _Same:
    """A graph as a key: the very one, for comparing thousands of operators takes longer than finding their blocks."""

    def __init__(self, graph: TrainingGraph) -> None:
        self.graph = graph

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.graph is other.graph

    def __hash__(self) -> int:
        return id(self.graph)


def blocks_of(graph: TrainingGraph) -> Blocks:
    """The runs of a graph, found once."""
    return _blocks_of(_Same(graph))


@lru_cache(maxsize=8)
def _blocks_of(key: _Same) -> Blocks:
    return Blocks(key.graph)


def _runs(graph: TrainingGraph) -> Iterator[Run]:
    """Outermost runs."""
    content = _contents(graph)
    of_stem: dict[str, dict[int, tuple[object, ...]]] = {}
    for block, operators in content.items():
        if match := _NUMBERED.fullmatch(block):
            of_stem.setdefault(match[1], {})[int(match[2])] = tuple(operators)
    taken: set[str] = set()
    for stem, blocks in sorted(of_stem.items(), key=lambda x: x[0].count(".")):
        if taken.intersection(_ancestors(stem)):
            continue
        for run in _equal_runs(stem, blocks):
            taken |= {f"{stem}{run.first + i}" for i in range(run.count)}
            yield run


def _contents(graph: TrainingGraph) -> Mapping[str, list[object]]:
    """What every module with a number at its end computes."""
    found: dict[str, list[object]] = {}
    numbered: dict[str, list[tuple[str, str]]] = {}
    for operator in graph.operators:
        layer = operator.layer
        if layer not in numbered:
            numbered[layer] = [(x, layer[len(x) :]) for x in _ancestors(layer) if x[-1:].isdigit()]
        if not numbered[layer]:
            continue
        made = tuple(graph.storages[x].bytes for way in operator.implementations for x in way.writes)
        ways = tuple(way.name for way in operator.implementations)
        target = _CALL.sub("", operator.target)
        for block, rest in numbered[layer]:
            found.setdefault(block, []).append((rest, operator.phase, target, ways, made))
    return found


def _equal_runs(stem: str, blocks: Mapping[int, tuple[object, ...]]) -> Iterator[Run]:
    first, last = -1, -1
    for number in sorted(blocks):
        if last >= 0 and number == last + 1 and blocks[number] == blocks[last]:
            last = number
            continue
        if last - first + 1 >= _FEWEST and last >= 0:
            yield Run(stem, first, last - first + 1)
        first = last = number
    if last >= 0 and last - first + 1 >= _FEWEST:
        yield Run(stem, first, last - first + 1)


def _ancestors(layer: str) -> list[str]:
    """A path and those above it, the highest first."""
    parts = layer.split(".")
    return [".".join(parts[: depth + 1]) for depth in range(len(parts))] if layer else []


def folded(
    items: Sequence[T],
    blocks: Blocks,
    *,
    layer: Callable[[T], str],
    equal: Callable[[T], Hashable],
) -> list[tuple[str, list[T]]]:
    """What is equal in several blocks as one.

    Args:
        items: in the order in which they are to stand.
        blocks: of the graph that they are of.
        layer: module path of an item.
        equal: what must be the same, beside the path below the block, of items that stand for one another.

    Returns:
        The layer's name, which may be that of several blocks, and the items by block; where the first of them stood.
    """
    found: dict[Hashable, list[T]] = {}
    for i, item in enumerate(items):
        place = blocks.place(layer(item))
        key = (i,) if place is None else (place.run, place.rest, equal(item))
        found.setdefault(key, []).append(item)
    for members in found.values():
        if len(members) > 1:
            members.sort(key=lambda x: _block(blocks, layer(x)))
    return [(_name(members, blocks, layer), members) for members in found.values()]


def _block(blocks: Blocks, layer: str) -> int:
    place = blocks.place(layer)
    return 0 if place is None else place.block


def _name(members: Sequence[T], blocks: Blocks, layer: Callable[[T], str]) -> str:
    places = [x for x in (blocks.place(layer(member)) for member in members) if x is not None]
    return places[0].run.label(x.block for x in places) + places[0].rest if places else layer(members[0])
