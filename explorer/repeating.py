"""Graphs of equal blocks: from those of a few blocks to that of any number, by induction.

A deep model repeats one block. Its graph is then a beginning, the block's operators again and again, and an end, in
each pass; so are its storages, parameters and gradients. Which block a block's operators read from, and the numbers in
names, are functions of the first degree of which block it is and of how many there are. They are found in the graphs of
some blocks, one more and two more, which have to be exactly what these functions say. Nothing here knows a model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from explorer.graph import Implementation, Operator, Phase, Storage, TensorSpec, TrainingGraph
from explorer.induction import Family, Line, NotRepeating, Sections, with_numbers, without_numbers

_OF_CALL = re.compile(r"([^ \[]*?)(?:_(\d+))?([ \[].*)?")  # "relu_3 mask"; the first call has no number
_STORAGES = 3  # sections of storages come first


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
    family = Family([_sections(x) for x in graphs], places=_STORAGES)
    for blocks, graph in enumerate(graphs):
        if _graph(graphs[0], family.lines(blocks)) != graph:
            raise NotRepeating
    return _graph(graphs[0], family.lines(len(graphs) - 1 + more))


def _graph(model: TrainingGraph, sections: Sections) -> TrainingGraph:
    *of_storages, forward, backward, parameters, gradients = sections
    storages = [line for lines in of_storages for line in lines]
    return replace(
        model,
        storages=tuple(_storage(line, number) for number, line in enumerate(storages)),
        operators=tuple(_operator(line, number) for number, line in enumerate([*forward, *backward])),
        parameters=tuple(_parameter(line) for line in parameters),
        gradients=tuple((line.refers[0], line.refers[1]) for line in gradients),
    )


def _sections(graph: TrainingGraph) -> list[list[Line]]:
    """Storages that persist, those of each pass, operators of each pass, parameters, and gradients."""
    first = [graph.operators[graph.producer[x.id]].phase if x.id in graph.producer else None for x in graph.storages]
    order = [0 if phase is None else 1 if phase is Phase.FORWARD else 2 for phase in first]
    if order != sorted(order):
        raise NotRepeating
    storages: list[list[Line]] = [[] for _ in range(_STORAGES)]
    for number, storage in zip(order, graph.storages, strict=True):
        storages[number].append(_of_storage(storage))
    operators = [_of_operator(x) for x in graph.operators]
    forward, backward = operators[: graph.forward_count], operators[graph.forward_count :]
    parameters = [_of_parameter(x) for x in graph.parameters]
    told = [line.fixed for lines in storages for line in lines]
    gradients = [Line((told[x], told[y]), refers=(x, y)) for x, y in graph.gradients]
    return [*storages, forward, backward, parameters, gradients]


def _of_storage(storage: Storage) -> Line:
    name, numbers = without_numbers(storage.name) if storage.role.persistent else _split_of_call(storage.name)
    return Line(replace(storage, id=0, name=name), numbers=numbers)


def _storage(line: Line, number: int) -> Storage:
    storage = line.fixed
    assert isinstance(storage, Storage)
    join = with_numbers if storage.role.persistent else _joined_of_call
    return replace(storage, id=number, name=join(storage.name, iter(line.numbers)))


def _of_parameter(parameter: TensorSpec) -> Line:
    name, numbers = without_numbers(parameter.name)
    return Line(replace(parameter, name=name), numbers=numbers)


def _parameter(line: Line) -> TensorSpec:
    parameter = line.fixed
    assert isinstance(parameter, TensorSpec)
    return replace(parameter, name=with_numbers(parameter.name, iter(line.numbers)))


def _of_operator(operator: Operator) -> Line:
    """Storages in order of implementations: what each reads and writes; one that is overwritten is among the reads."""
    name, numbers = _split_of_call(operator.name)
    target, of_target = _split_of_call(operator.target) if _is_ours(operator) else (operator.target, ())
    layer, of_layer = without_numbers(operator.layer)
    fixed, storages = [], []
    for x in operator.implementations:
        over = None if x.overwrites is None else x.reads.index(x.overwrites)
        reads, writes = tuple(range(len(x.reads))), tuple(range(len(x.writes)))
        fixed.append(replace(x, reads=reads, writes=writes, overwrites=over))
        storages += [*x.reads, *x.writes]
    plain = replace(operator, id=0, name=name, target=target, layer=layer, implementations=tuple(fixed))
    return Line(plain, tuple(storages), numbers + of_target + of_layer)


def _operator(line: Line, number: int) -> Operator:
    operator = line.fixed
    assert isinstance(operator, Operator)
    numbers, storages = iter(line.numbers), iter(line.refers)
    return replace(
        operator,
        id=number,
        name=_joined_of_call(operator.name, numbers),
        target=_joined_of_call(operator.target, numbers) if _is_ours(operator) else operator.target,
        layer=with_numbers(operator.layer, numbers),
        implementations=tuple(_implementation(x, storages) for x in operator.implementations),
    )


def _is_ours(operator: Operator) -> bool:
    """Is it none of ATen's, so that its target has the number of the call?"""
    return operator.target.startswith("explorer.")


def _implementation(plain: Implementation, storages: Iterator[int]) -> Implementation:
    reads, writes = (tuple(next(storages) for _ in x) for x in (plain.reads, plain.writes))
    over = None if plain.overwrites is None else reads[plain.overwrites]
    return replace(plain, reads=reads, writes=writes, overwrites=over)


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
