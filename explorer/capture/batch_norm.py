"""Batch normalisation and the calls around it, as kernels of PyTorch's compiler.

An activation behind a normalisation is made of the normalisation's source and statistics, in the first run as in a
recomputation, so that what is between is never a tensor; and both of their backward passes are one call that needs no
more than the source either, and may write over the gradient that arrives.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from explorer.capture.chains import LEAST_NUMBERS, readers, storages, works_by_number
from explorer.capture.normalise import backward_nodes, changed_storages, is_view
from explorer.capture.passes import passes_of
from explorer.capture.recomputing import Remade, Steps, layout, step
from explorer.capture.traced import Traced
from explorer.graph import Optimization, When
from explorer.operators.feed_forward import Value
from explorer.operators.fusing import fused
from explorer.operators.groups import Group, GroupStep, group_of_calls
from explorer.operators.inplace import ACCUMULATES
from explorer.operators.normalisation import forward_of_batch_norm
from explorer.operators.registry import (
    WAYS,
    Variant,
    all_arguments,
    changes_its_arguments,
    is_precise,
    origin,
    output_of,
    value_of,
)

aten = torch.ops.aten
_BACKWARD = aten.native_batch_norm_backward.default
_KEEPING = aten._native_batch_norm_legit.default
_NO_STATISTICS = aten._native_batch_norm_legit.no_stats
_FUNCTIONAL = aten._native_batch_norm_legit_functional.default
_MOST_CALLS = 12
_DEPTH = 4
_LEAST_SHARE = 1 / 32
"""Of the largest normalised tensor: a kernel takes seconds to compile, and small layers little time and memory."""


def chains_before_normalisation(nodes: Sequence[fx.Node], traced: Traced) -> list[list[fx.Node]]:
    """Calls of the backward pass that work number by number, then the backward pass of a normalisation.

    Nothing else reads what they make.

    Args:
        nodes: of the backward pass, in order.
        traced: their graph.
    """
    changed = changed_storages(traced)
    calls = [x for x in nodes if x.target is _BACKWARD and forward_of_batch_norm(x) is not None]
    least = _least_numbers([all_arguments(x)[1] for x in calls])
    place = {node: at for at, node in enumerate(nodes)}
    found = []
    for call in calls:
        chain = {call}
        while more := {x for y in chain for x in y.all_input_nodes if x not in chain and _joins(x, chain, place)}:
            chain |= more
        enough = value_of(all_arguments(call)[1]).numel() >= least and 1 < len(chain) <= _MOST_CALLS
        if enough and not changed & storages(y for x in chain for y in x.all_input_nodes):
            found.append(sorted(chain, key=place.__getitem__))
    return found


def _joins(node: fx.Node, chain: set[fx.Node], place: dict[fx.Node, int]) -> bool:
    if node not in place or ACCUMULATES in node.meta or not works_by_number(node):
        return False
    return chain.issuperset(node.users) and not any(is_view(x) for x in node.all_input_nodes if x in place)


def _least_numbers(sources: Sequence[fx.Node]) -> float:
    largest = max((value_of(x).numel() for x in sources), default=0)
    return max(LEAST_NUMBERS, largest * _LEAST_SHARE)


@dataclass(frozen=True)
class Remaking:
    """Makes normalised tensors again where they are read.

    Attributes:
        backward: nodes of the backward pass, which are read.
        changed: storages that the forward pass changes: what reads them is not made again.
    """

    backward: AbstractSet[fx.Node]
    changed: AbstractSet[int]

    @classmethod
    def of(cls, traced: Traced) -> Remaking:
        """In this graph, also while calls of its backward pass are joined."""
        return cls(backward_nodes(traced), changed_storages(traced))

    def from_statistics(self, given: Sequence[fx.Node], group: Group, *, deep: bool = False) -> Remade | None:
        """The group with what it reads made of normalisations' sources and statistics; None where it reads none.

        Args:
            given: what it reads.
            group: what it computes.
            deep: also make what works number by number behind one normalisation again.
        """
        plan = _Plan(self, deep)
        for x in given:
            plan.visit(x)
        if not plan.made or self.changed & storages(plan.read):
            return None
        steps = Steps({node: at for at, node in enumerate(plan.read)}, len(plan.read))
        for node in plan.made:
            norm = _Normalisation.of(node)
            steps.number[node] = norm.steps(node, steps) if norm else steps.add(step(node, steps.number))
        number = {place: steps.number[node] for place, node in enumerate(given)}
        for place, own in enumerate(group.steps, start=len(given)):
            number[place] = steps.add(own.renumbered(number))
        results = tuple(number[x] for x in group.results)
        read = tuple(plan.read)
        return Group(tuple(map(layout, read)), tuple(steps.made), results, group.layouts).freeing(), read

    def normalised_below(self, node: fx.Node, depth: int) -> set[fx.Node]:
        """The normalised tensors that it is made of, so many calls away at most."""
        if _Normalisation.of(node) is not None:
            return {node}
        if depth == 0 or node in self.backward or not works_by_number(node):
            return set()
        if self.changed & storages(node.all_input_nodes):
            return set()
        return set().union(*(self.normalised_below(x, depth - 1) for x in node.all_input_nodes))


def fused_ways(traced: Traced) -> None:
    """Note the ways to run normalisations, and the calls behind them, that the compiler makes kernels of.

    Args:
        traced: its chains are joined.
    """
    forward = passes_of(traced)[0]
    calls = [x for x in forward if x.target in (_KEEPING, _NO_STATISTICS) and output_of(x, 0) is not None]
    least = _least_numbers([_source(x) for x in calls])
    large = {x for x in calls if value_of(_source(x)).numel() >= least}
    behind: set[fx.Node] = set()
    remaking = Remaking.of(traced)
    for node in forward:
        if any(origin(x) in large for x in node.all_input_nodes) and (way := _behind_normalisation(node, remaking)):
            node.meta[WAYS] = (way,)
            behind.add(node)
    for call in large:
        output = output_of(call, 0)
        assert output is not None, "only those were taken"
        alone = behind.issuperset(set(readers(output)).intersection(forward))
        # In half precision the compiler rounds statistics to it on the CPU, which PyTorch's own kernels do not.
        call.meta[WAYS] = tuple(_of_normalisation(call, alone=alone)) if is_precise(_source(call)) else ()


def _source(call: fx.Node) -> fx.Node:
    source: Any = call.args[0]
    return source


def _behind_normalisation(node: fx.Node, remaking: Remaking) -> Variant | None:
    """What is read behind a normalisation, from the normalisation's source."""
    outputs, group, given = None, None, tuple(node.all_input_nodes)
    if node.target is group_of_calls:
        args: Any = node.args
        group, given, alone, *_ = args
        if alone:
            group, outputs = group.only(alone), tuple(alone)
    elif works_by_number(node):
        numbers = {x: at for at, x in enumerate(given)}
        group = Group(tuple(map(layout, given)), (step(node, numbers),), (len(given),), (layout(node),))
    found = None if group is None else remaking.from_statistics(given, group)
    return None if found is None else _variant("fused, from statistics", found, outputs)


def _of_normalisation(call: fx.Node, *, alone: bool) -> Iterator[Variant]:
    """Whole; and without its result, where all that the forward pass makes of it can be made of the source."""
    source, weight, bias, *others = all_arguments(call)
    first = When.FIRST if changes_its_arguments(call) else When.ALWAYS
    results = [x for x in (0, 1, 2) if output_of(call, x) is not None]
    yield _variant("fused", _kernel(call, results, source, weight, bias, others), tuple(results), when=first)
    if alone and results == [0, 1, 2]:
        yield _variant("fused, statistics", _kernel(call, [1, 2], source, None, None, others), (1, 2), when=first)


def _kernel(
    call: fx.Node, results: Sequence[int], source: fx.Node, weight: fx.Node | None, bias: fx.Node | None, others: Any
) -> Remade:
    """These results of a normalisation; running statistics take their new values."""
    keeps = call.target is _KEEPING
    own = [source, weight, bias, *(others[:2] if keeps else ())]
    read = tuple(x for x in own if x is not None)
    number = {node: at for at, node in enumerate(read)}
    args = [None if x is None else Value(number[x]) for x in own] + list(others[2:] if keeps else others)
    steps = [GroupStep(_FUNCTIONAL if keeps else _NO_STATISTICS, tuple(args))]
    wanted = [*results, *((3, 4) if keeps else ())]
    steps += [GroupStep(operator.getitem, (Value(len(read)), x)) for x in wanted]
    places = {x: len(read) + 1 + at for at, x in enumerate(wanted)}
    nodes = [output_of(call, x) for x in results]
    layouts = tuple(layout(x) for x in nodes if x is not None)
    over = ((places[3], len(read) - 2), (places[4], len(read) - 1)) if keeps else ()
    group = Group(tuple(map(layout, read)), tuple(steps), tuple(places[x] for x in results), layouts, over)
    return group.freeing(), read


def _variant(name: str, found: Remade, outputs: tuple[int, ...] | None, *, when: When = When.ALWAYS) -> Variant:
    return Variant(name, fused, found, outputs, when, exact=False, optimization=Optimization.FUSED)


@dataclass
class _Plan:
    """What is made again, in order, and what is read for it.

    Attributes:
        within: the graph.
        deep: make more than normalised tensors again.
        made: nodes of the forward pass.
        read: others, each once.
    """

    within: Remaking
    deep: bool
    made: list[fx.Node] = field(default_factory=list)
    read: dict[fx.Node, None] = field(default_factory=dict)

    def visit(self, node: fx.Node) -> None:
        """Make it again if it is made of one normalised tensor, number by number, or read it."""
        if node in self.made or node in self.read:
            return
        norm = _Normalisation.of(node)
        if norm is not None:
            self.read |= dict.fromkeys(x for x in norm.inputs if x is not None)
            self.made.append(node)
        elif self.deep and len(self.within.normalised_below(node, _DEPTH)) == 1:
            for x in node.all_input_nodes:
                self.visit(x)
            self.made.append(node)
        else:
            self.read[node] = None


@dataclass(frozen=True)
class _Normalisation:
    """A normalisation by statistics of the batch.

    Attributes:
        inputs: source, mean, reciprocal standard deviation, weight and bias.
    """

    inputs: tuple[fx.Node, fx.Node, fx.Node, fx.Node | None, fx.Node | None]

    @classmethod
    def of(cls, output: fx.Node) -> _Normalisation | None:
        """The one whose result this is."""
        call = origin(output)
        if call is output or output.args[1] != 0 or call.target not in (_KEEPING, _NO_STATISTICS):
            return None
        source, weight, bias = all_arguments(call)[:3]
        mean, scale = output_of(call, 1), output_of(call, 2)
        return None if mean is None or scale is None else cls((source, mean, scale, weight, bias))

    def steps(self, output: fx.Node, steps: Steps) -> int:
        """Add what leads from the inputs to the output; returns its number."""
        source, mean, scale, weight, bias = self.inputs
        shape = [1, -1] + [1] * (value_of(source).dim() - 2)
        found = steps.number[source]
        for node, call in ((mean, aten.sub), (scale, aten.mul), (weight, aten.mul), (bias, aten.add)):
            if node is not None:
                by_channel = steps.add(GroupStep(aten.view.default, (Value(steps.number[node]), shape)))
                found = steps.add(GroupStep(call.Tensor, (Value(found), Value(by_channel))))
        dtype = value_of(output).dtype
        if dtype != value_of(mean).dtype:
            found = steps.add(GroupStep(aten._to_copy.default, (Value(found),), (("dtype", dtype),)))
        return found
