"""Graphs of equal blocks: from those of a few blocks to that of any number, by induction.

A deep model repeats one block. Its graph is then a beginning, the block's operators again and again, and an end, in
each pass; so are its storages, parameters and gradients. Which block a block's operators read from, and the numbers in
names, are functions of the first degree of which block it is and of how many there are. They are found in the graphs of
some blocks, one more and two more, which have to be exactly what these functions say. Nothing here knows a model.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from explorer.graph import Implementation, Operator, Phase, Storage, TensorSpec, TrainingGraph

_NUMBER = re.compile(r"\d+")
_OF_CALL = re.compile(r"([^ \[]*?)(?:_(\d+))?([ \[].*)?")  # "relu_3 mask"; the first call has no number
_STORAGES = 3  # sections of storages come first


class NotRepeating(Exception):  # noqa: N818 - an answer, which callers act upon
    """The graphs are not those of some equal blocks, of one more, and of two more."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A storage, operator, parameter or pair of gradients, apart from what depends on how many blocks there are.

    Attributes:
        fixed: all but storages and numbers in names.
        storages: ids of those that it names, in order.
        numbers: those in its names, in order.
    """

    fixed: Hashable
    storages: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a line stands.

    Attributes:
        section: of the graph.
        offset: in the beginning, in a block, or from behind in the end.
        block: which one, counted in the section's order; None: before or behind them.
        behind: is it in the end?
    """

    section: int
    offset: int
    block: int | None = None
    behind: bool = False


_Kind = tuple[_Place, str]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A line as it is in a block of one of the graphs, with the places of the storages that it names."""

    line: _Line
    block: int
    blocks: int
    places: tuple[_Place, ...]


@dataclass(frozen=True, slots=True)
class _Degree1:
    """``constant + of_block * block + of_blocks * blocks``."""

    constant: int
    of_block: int
    of_blocks: int

    def at(self, block: int, blocks: int) -> int:
        return self.constant + self.of_block * block + self.of_blocks * blocks


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line for any number of blocks; a storage in a block is its place in the first, and a function."""

    fixed: Hashable
    storages: tuple[tuple[_Place, _Degree1 | None], ...]
    numbers: tuple[_Degree1, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    """Lines of one kind: of the beginning, of ``blocks + extra`` blocks, and of the end."""

    number: int
    begin: int
    block: int
    end: int
    extra: int = 0

    def length(self, blocks: int) -> int:
        return self.begin + (blocks + self.extra) * self.block + self.end

    def place(self, position: int, blocks: int) -> _Place:
        inside = position - self.begin
        if inside < 0:
            return _Place(self.number, position)
        if inside < (blocks + self.extra) * self.block:
            return _Place(self.number, inside % self.block, inside // self.block)
        return _Place(self.number, self.length(blocks) - position, behind=True)

    def position(self, place: _Place, blocks: int) -> int:
        if place.behind:
            return self.length(blocks) - place.offset
        return place.offset if place.block is None else self.begin + place.block * self.block + place.offset

    def kind(self, place: _Place, blocks: int) -> tuple[_Kind, int]:
        """What has a rule of its own, and the block for its functions; first and last block are kinds of their own."""
        if place.block is None:
            return (place, ""), 0
        ends = {0: "first", blocks + self.extra - 1: "last"}
        kind = ends.get(place.block, "inside")
        return (replace(place, block=0), kind), place.block if kind == "inside" else 0


def deeper(graphs: Sequence[TrainingGraph], *, more: int) -> TrainingGraph:
    """The graph with ``more`` blocks than the last of ``graphs``.

    Args:
        graphs: of a model with some equal blocks (three do), one more, and two more.
        more: 0 or more.

    Returns:
        What a capture of the model gives that has so many blocks, if all of them are like those in ``graphs``.

    Raises:
        NotRepeating: they are not, or what a block does is no function of the first degree of its place.
    """
    family = _Family(graphs)
    for blocks, graph in enumerate(graphs):
        if family.graph(blocks) != graph:
            raise NotRepeating
    return family.graph(len(graphs) - 1 + more)


class _Family:
    """Graphs by how many blocks they have more than the first one."""

    def __init__(self, graphs: Sequence[TrainingGraph]) -> None:
        self.model = graphs[0]
        lines = [_sections(graph) for graph in graphs]
        self.sections = [_section(number, [x[number] for x in lines]) for number in range(len(lines[0]))]
        seen: dict[_Kind, list[_Seen]] = {}
        for blocks, of_graph in enumerate(lines):
            places = [x.place(i, blocks) for x in self.sections[:_STORAGES] for i in range(x.length(blocks))]
            for section, found in zip(self.sections, of_graph, strict=True):
                for position, line in enumerate(found):
                    kind, block = section.kind(section.place(position, blocks), blocks)
                    named = tuple(places[x] for x in line.storages)
                    seen.setdefault(kind, []).append(_Seen(line, block, blocks, named))
        self.rules = {kind: _rule(found) for kind, found in seen.items()}

    def graph(self, blocks: int) -> TrainingGraph:
        *of_storages, forward, backward, parameters, gradients = (list(self._lines(x, blocks)) for x in self.sections)
        storages = [line for lines in of_storages for line in lines]
        return replace(
            self.model,
            storages=tuple(_storage(line, number) for number, line in enumerate(storages)),
            operators=tuple(_operator(line, number) for number, line in enumerate([*forward, *backward])),
            parameters=tuple(_parameter(line) for line in parameters),
            gradients=tuple((line.storages[0], line.storages[1]) for line in gradients),
        )

    def _lines(self, section: _Section, blocks: int) -> Iterator[_Line]:
        starts = list(accumulate((x.length(blocks) for x in self.sections[:_STORAGES]), initial=0))
        for position in range(section.length(blocks)):
            kind, block = section.kind(section.place(position, blocks), blocks)
            rule = self.rules[kind]
            storages: list[int] = []
            for there, function in rule.storages:
                found = there if function is None else replace(there, block=function.at(block, blocks))
                storages.append(starts[there.section] + self.sections[there.section].position(found, blocks))
            yield _Line(rule.fixed, tuple(storages), tuple(x.at(block, blocks) for x in rule.numbers))


def _section(number: int, lines: Sequence[Sequence[_Line]]) -> _Section:
    """Where the blocks are, from lines without what differs among blocks."""
    fixed = [[x.fixed for x in of_graph] for of_graph in lines]
    *_, less, most = fixed
    period = len(most) - len(less)
    if any(len(y) - len(x) != period for x, y in pairwise(fixed)):
        raise NotRepeating
    if period == 0:
        return _Section(number, len(most), 0, 0)
    same = next((i for i, (x, y) in enumerate(zip(less, most, strict=False)) if x != y), len(less))
    start = same
    while start > 0 and most[start - 1] == most[start - 1 + period]:
        start -= 1
    whole = (same + period - start) // period
    # At least four in the largest graph: a first one, a last one, and two between them to compare.
    if whole < 4 or less[same:] != most[same + period :]:
        raise NotRepeating
    end = len(most) - start - whole * period
    return _Section(number, start, period, end, extra=whole - (len(lines) - 1))


def _rule(seen: Sequence[_Seen]) -> _Rule:
    """The one that gives all of these."""
    if len({x.line.fixed for x in seen}) > 1:
        raise NotRepeating
    at = [(x.block, x.blocks) for x in seen]
    storages: list[tuple[_Place, _Degree1 | None]] = []
    for places in zip(*(x.places for x in seen), strict=True):
        alike = {replace(x, block=None if x.block is None else 0) for x in places}
        if len(alike) > 1:
            raise NotRepeating
        blocks = [x.block for x in places if x.block is not None]
        storages.append((alike.pop(), _function(at, blocks) if blocks else None))
    numbers = zip(*(x.line.numbers for x in seen), strict=True)
    return _Rule(seen[0].line.fixed, tuple(storages), tuple(_function(at, x) for x in numbers))


def _function(at: Sequence[tuple[int, int]], values: Sequence[int]) -> _Degree1:
    """The one that has these values at (block, blocks)."""
    known = dict(zip(at, values, strict=True))
    of_block = next((known[i + 1, n] - known[i, n] for i, n in known if (i + 1, n) in known), 0)
    of_blocks = next((known[i, n + 1] - known[i, n] for i, n in known if (i, n + 1) in known), 0)
    (block, blocks), value = at[0], values[0]
    return _Degree1(value - of_block * block - of_blocks * blocks, of_block, of_blocks)


def _sections(graph: TrainingGraph) -> list[list[_Line]]:
    """Storages that persist, those of each pass, operators of each pass, parameters, and gradients."""
    first = [graph.operators[graph.producer[x.id]].phase if x.id in graph.producer else None for x in graph.storages]
    order = [0 if phase is None else 1 if phase is Phase.FORWARD else 2 for phase in first]
    if order != sorted(order):
        raise NotRepeating
    storages: list[list[_Line]] = [[] for _ in range(_STORAGES)]
    for number, storage in zip(order, graph.storages, strict=True):
        storages[number].append(_of_storage(storage))
    operators = [_of_operator(x) for x in graph.operators]
    forward, backward = operators[: graph.forward_count], operators[graph.forward_count :]
    parameters = [_of_parameter(x) for x in graph.parameters]
    told = [line.fixed for lines in storages for line in lines]
    gradients = [_Line((told[x], told[y]), storages=(x, y)) for x, y in graph.gradients]
    return [*storages, forward, backward, parameters, gradients]


def _of_storage(storage: Storage) -> _Line:
    name, numbers = _split(storage.name) if storage.role.persistent else _split_of_call(storage.name)
    return _Line(replace(storage, id=0, name=name), numbers=numbers)


def _storage(line: _Line, number: int) -> Storage:
    storage = line.fixed
    assert isinstance(storage, Storage)
    join = _joined if storage.role.persistent else _joined_of_call
    return replace(storage, id=number, name=join(storage.name, iter(line.numbers)))


def _of_parameter(parameter: TensorSpec) -> _Line:
    name, numbers = _split(parameter.name)
    return _Line(replace(parameter, name=name), numbers=numbers)


def _parameter(line: _Line) -> TensorSpec:
    parameter = line.fixed
    assert isinstance(parameter, TensorSpec)
    return replace(parameter, name=_joined(parameter.name, iter(line.numbers)))


def _of_operator(operator: Operator) -> _Line:
    """Storages in order of implementations: what each reads and writes; one that is overwritten is among the reads."""
    name, numbers = _split_of_call(operator.name)
    target, of_target = _split_of_call(operator.target) if _is_ours(operator) else (operator.target, ())
    layer, of_layer = _split(operator.layer)
    fixed, storages = [], []
    for x in operator.implementations:
        over = None if x.overwrites is None else x.reads.index(x.overwrites)
        reads, writes = tuple(range(len(x.reads))), tuple(range(len(x.writes)))
        fixed.append(replace(x, reads=reads, writes=writes, overwrites=over))
        storages += [*x.reads, *x.writes]
    plain = replace(operator, id=0, name=name, target=target, layer=layer, implementations=tuple(fixed))
    return _Line(plain, tuple(storages), numbers + of_target + of_layer)


def _operator(line: _Line, number: int) -> Operator:
    operator = line.fixed
    assert isinstance(operator, Operator)
    numbers, storages = iter(line.numbers), iter(line.storages)
    return replace(
        operator,
        id=number,
        name=_joined_of_call(operator.name, numbers),
        target=_joined_of_call(operator.target, numbers) if _is_ours(operator) else operator.target,
        layer=_joined(operator.layer, numbers),
        implementations=tuple(_implementation(x, storages) for x in operator.implementations),
    )


def _is_ours(operator: Operator) -> bool:
    """Is it none of ATen's, so that its target has the number of the call?"""
    return operator.target.startswith("explorer.")


def _implementation(plain: Implementation, storages: Iterator[int]) -> Implementation:
    reads, writes = (tuple(next(storages) for _ in x) for x in (plain.reads, plain.writes))
    over = None if plain.overwrites is None else reads[plain.overwrites]
    return replace(plain, reads=reads, writes=writes, overwrites=over)


def _split(name: str) -> tuple[str, tuple[int, ...]]:
    """A name without its numbers, and those."""
    return _NUMBER.sub("0", name), tuple(int(x) for x in _NUMBER.findall(name))


def _joined(name: str, numbers: Iterator[int]) -> str:
    return _NUMBER.sub(lambda _: str(next(numbers)), name)


def _split_of_call(name: str) -> tuple[str, tuple[int, ...]]:
    """The same for the name of a call or of what it makes: the first of a kind has the number 0, which is not said."""
    found = _OF_CALL.fullmatch(name)
    assert found is not None
    kind, number, rest = found.groups()
    return f"{kind}|{rest or ''}", (int(number or 0),)


def _joined_of_call(name: str, numbers: Iterator[int]) -> str:
    kind, rest = name.split("|")
    number = next(numbers)
    return f"{kind}_{number}{rest}" if number else f"{kind}{rest}"
