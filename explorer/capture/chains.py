"""Chains of calls that PyTorch's compiler can make one loop of: which they are, and which may become one operator."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from explorer.capture.middles import POINTWISE_WITHOUT_TAG
from explorer.capture.normalise import changed_storages, is_view, tensors_of
from explorer.capture.passes import EQUALITIES
from explorer.capture.traced import Traced
from explorer.operators.inplace import ACCUMULATES
from explorer.operators.registry import (
    AS_EAGER,
    OWN_RESULTS,
    ROLE,
    changes_its_arguments,
    draws_random_numbers,
    fits_over,
    value_of,
)
from explorer.torch_private import storage_key

aten = torch.ops.aten
_ALONG_ROWS = (
    aten.sum.dim_IntList,
    aten.mean.dim,
    aten.amax.default,
    aten._softmax.default,
    aten._softmax_backward_data.default,
    aten.cat.default,
)
"""Sums over rows (gradients of a norm's weight) among them: the compiler makes one loop of those, too."""
_POINTWISE = (
    *POINTWISE_WITHOUT_TAG,
    aten.hardshrink_backward.default,
    aten.hardsigmoid_backward.default,
    aten.hardtanh_backward.default,
    aten.leaky_relu_backward.default,
    aten.softshrink_backward.default,
)
_APART = (aten.threshold_backward.default, aten.hardtanh_backward.default, aten.leaky_relu_backward.default)
"""They have ways that read a bit for each number, or the output, which is there anyway."""
LEAST_NUMBERS = 4096
"""Of a group's largest tensor: a kernel takes seconds to compile."""
_MOST_CALLS = 60
_MOST_BETWEEN = 2


def chains_of(nodes: Sequence[fx.Node], traced: Traced, *, apart: Collection[fx.Node] = ()) -> list[list[fx.Node]]:
    """Calls that read each other, and that all can run where the last of them does.

    Others may stand between, such as the second linear layer of a gated one, if they read nothing of the chain.

    Args:
        nodes: of a pass, in order.
        traced: their graph.
        apart: those that may be in no chain.
    """
    updates = {node for _, node in traced.mutations}
    changed = changed_storages(traced)
    calls = [x for x in nodes if not is_view(x)]
    place = {node: at for at, node in enumerate(calls)}
    chain_of: dict[fx.Node, list[fx.Node]] = {}
    for at, node in enumerate(calls):
        if node in updates or node in apart or not is_fusible(node) or changed & storages(node.all_input_nodes):
            continue
        own = [node]
        for source in dict.fromkeys(y for x in node.all_input_nodes for y in below(x) if y in chain_of):
            chain = chain_of[source]
            near = at - place[chain[-1]] <= 1 + _MOST_BETWEEN
            early = any(place.get(x, at) < at for y in chain for x in readers(y) if x not in chain)
            if node not in chain and near and not early and len(chain) + len(own) <= _MOST_CALLS:
                own = sorted([*chain, *own], key=place.__getitem__)
                chain_of |= dict.fromkeys(own, own)
        chain_of.setdefault(node, own)
    chains = {id(x): x for x in chain_of.values()}
    return sorted((x for x in chains.values() if _is_worth_it(x)), key=lambda x: place[x[-1]])


def is_fusible(node: fx.Node) -> bool:
    """May the compiler run it, and is there no way to run it that needs less than it would?"""
    if node.target in _ALONG_ROWS:
        return _is_plain_call(node)
    return node.target not in _APART and works_by_number(node)


def _is_plain_call(node: fx.Node) -> bool:
    """Is it a call that makes one tensor of others, as eager mode makes it?"""
    if node.op != "call_function" or not isinstance(value_of(node), torch.Tensor) or not node.all_input_nodes:
        return False
    return not any(x in node.meta for x in (AS_EAGER, OWN_RESULTS, ROLE))


def works_by_number(node: fx.Node) -> bool:
    """May the compiler run it, each number of its result by itself?"""
    if not _is_plain_call(node):
        return False
    if node.target is aten._to_copy.default:
        return set(node.kwargs) == {"dtype"}
    if node.target in EQUALITIES:
        return False  # the forward pass has to know what is compared
    if node.target in _POINTWISE:
        return True
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return pointwise and not draws_random_numbers(node) and not changes_its_arguments(node)


def _is_worth_it(chain: Sequence[fx.Node]) -> bool:
    largest = max(value_of(x).numel() for x in chain)
    return len(chain) > 1 and largest >= LEAST_NUMBERS


def below(node: fx.Node) -> Iterator[fx.Node]:
    """The node, and what it is a view of."""
    yield node
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
        yield node


def base(node: fx.Node) -> fx.Node:
    """What it is a view of."""
    return list(below(node))[-1]


class Memory:
    """What is alive when, as plain PyTorch runs the step: without workspaces, which can only raise its peak."""

    def __init__(self, traced: Traced, nodes: Sequence[fx.Node]) -> None:
        """Of calls and views in the order in which they run."""
        self.place = {node: at for at, node in enumerate(nodes)}
        self.bytes: dict[int, int] = {}
        self.born: dict[int, int] = {}
        self.last: dict[int, int] = {}
        for at, node in enumerate(nodes):
            for tensor in tensors_of(node):
                key = storage_key(tensor)
                self.bytes.setdefault(key, tensor.untyped_storage().nbytes())
                self.born.setdefault(key, at)
                self.last[key] = at
            if not is_view(node):
                self.last |= {key: at for key in storages(node.all_input_nodes) if key in self.born}
        for at, node in enumerate(nodes):
            # A sum of gradients is made in the place of one.
            first: Any = node.args[0] if node.meta.get(ACCUMULATES) else None
            if first is not None and fits_over(first, node) and self.last.get(storage_key(value_of(first))) == at:
                self.last[storage_key(value_of(first))] = at - 1
        results = [x for x in traced.outputs if isinstance(x, fx.Node)]
        for key in storages([*results, *(x for _, x in traced.gradients)]):
            self.last[key] = len(nodes)
        alive = [0] * (len(nodes) + 2)
        for key, start in self.born.items():
            alive[start] += self.bytes[key]
            alive[self.last[key] + 1] -= self.bytes[key]
        self.alive: list[int] = []
        now = 0
        for change in alive:
            now += change
            self.alive.append(now)
        self.peak = max(self.alive)

    def allows(self, chain: Sequence[fx.Node]) -> bool:
        """Is there room at all times for what a joined call's caller holds to its end?"""
        begin, end = self.place[chain[0]], self.place[chain[-1]]
        own = storages(chain)
        held = [x for x in storages(y for x in chain for y in x.all_input_nodes) - own if x in self.born]
        return all(
            self.alive[at] + sum(self.bytes[x] for x in held if self.last[x] < at) <= self.peak
            for at in range(begin, end + 1)
        )


def storages(nodes: Iterable[fx.Node]) -> set[int]:
    """All that these nodes' tensors lie in."""
    return {storage_key(x) for node in nodes for x in tensors_of(node)}


def readers(node: fx.Node) -> Iterator[fx.Node]:
    """What computes from it, also by a view of it."""
    for reader in node.users:
        if is_view(reader):
            yield from readers(reader)
        else:
            yield reader


def views(node: fx.Node) -> set[fx.Node]:
    """It, and all views of it."""
    return {node}.union(*(views(x) for x in node.users if is_view(x)))
