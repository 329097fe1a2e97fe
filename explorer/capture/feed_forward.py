"""Two calls for the backward pass of a feed-forward layer, which may go by parts of the rows.

One is the gradient of the second half's weight, as it was; it knows now from what it may make again what it reads. The
other joins what follows, from the product that makes the middle's gradient to the gradients of the first half's linear
layers, whatever works number by number in between. The forward pass stays as it is.

Joined only where nothing that the joined call keeps to its end, and autograd does not, can raise a peak.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from explorer.capture.joining import OtherwiseError, products_of, replace_by, require
from explorer.capture.middles import MOST_STEPS, VIEWS, Tracing
from explorer.operators import feed_forward as ways
from explorer.operators.feed_forward import Begin, FeedForward, Middle, Value, parts_of
from explorer.operators.registry import AS_EAGER, value_of
from explorer.torch_private import storage_key

aten = torch.ops.aten


def join_feed_forward(
    graph: fx.Graph, named: Collection[fx.Node], backward: Collection[fx.Node], changed: Collection[int]
) -> dict[fx.Node, fx.Node]:
    """Join the backward pass of every feed-forward layer.

    Args:
        graph: joint, without what nobody reads; it is changed in place.
        named: nodes that are results or gradients.
        backward: nodes of the backward pass.
        changed: storages that the forward pass changes, of which the backward pass must read nothing.

    Returns:
        For each node that another one stands for now, that one.
    """
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target is aten.mm.default and node in backward and node.users:
            try:
                found = _Found(node, named, backward)
                require(not any(storage_key(value_of(x)) in changed for x in found.read()))
            except OtherwiseError:
                continue
            replaced |= found.join(graph)
    return replaced


class _Found:
    """The calls of a feed-forward layer's backward pass.

    Raises:
        OtherwiseError: they are others.
    """

    def __init__(self, arriving: fx.Node, named: Collection[fx.Node], backward: Collection[fx.Node]) -> None:
        """From the product that makes the gradient of the middle's result."""
        self.arriving = arriving
        self.gradient: Any
        self.weight: Any
        self.gradient, self.weight = arriving.args
        require(self.gradient in backward and self.weight not in backward)
        rows, width = value_of(arriving).shape
        require(parts_of(rows))
        self.forward, self.after = Tracing(rows, width), Tracing(rows, width)
        self.members, ends = self._members()
        self.saved = self._saved()
        # A sum of gradients may read what is computed from the joined call's results.
        require(not any(x in backward and self.arriving < x for x in self.saved))
        require(self.after.calls and ends)
        for node in self.saved:
            self.forward.back(node)
        self.partner = self._partner()
        self.layers: list[fx.Node] = []
        self.products: list[tuple[Any, ...]] = []
        for end in ends:
            layer, products = self._layer_of(end)
            self.layers.append(layer)
            self.products.append(products)
        self.ends = [self.after.back(x) for x in ends]
        require(set(self.layers) == set(self.forward.layers) and len(set(self.layers)) == len(self.layers))
        self.wanted = [x for *found, _ in self.products for x in found if x is not None]
        require(self.wanted and not self.members.intersection(named))
        self.sources = [self.forward.layers[x].source for x in self.layers]
        self.weights = [self.forward.layers[x].weight for x in self.layers]
        self.middle = self.after.middle([*self.saved, arriving], self.ends, over=[arriving])
        self.all = self.forward.with_calls(self.after)
        require(self._no_higher())

    def _members(self) -> tuple[set[fx.Node], list[fx.Node]]:
        """What leads from the middle's gradient to those of the layers' results, and these."""
        self.after.given[self.arriving] = None
        members, ends, pending = {self.arriving}, {}, [self.arriving]
        while pending:
            node = pending.pop()
            for reader in node.users:
                if reader in members:
                    continue
                if self.after.is_view(reader) or self.after.works_by_number(reader):
                    require(len(members) < MOST_STEPS)
                    members.add(reader)
                    pending.append(reader)
                else:
                    ends[node] = None
        # What only they read is made for them alone.
        pending = list(members)
        while pending:
            for source in pending.pop().all_input_nodes:
                if source not in members and self._serves(source, members):
                    members.add(source)
                    pending.append(source)
        return members, sorted(ends)

    def _serves(self, node: fx.Node, members: set[fx.Node]) -> bool:
        return members.issuperset(node.users) and (self.after.is_view(node) or self.after.works_by_number(node))

    def _saved(self) -> list[fx.Node]:
        """What the members read that is there."""
        found: dict[fx.Node, None] = {}
        for node in sorted(self.members):
            for source in node.all_input_nodes:
                if source not in self.members and node is not self.arriving:
                    require(self.after.fits(source))
                    found[self._root(source)] = None
                    self.after.given[self._root(source)] = None
        for node in sorted(self.members):
            self.after.back(node)
        return list(found)

    def _partner(self) -> tuple[fx.Node, fx.Node, bool] | None:
        """The gradient of the second half's weight, what it reads of the middle, and has it a row for each result?"""
        for reader in self.gradient.users:
            if reader.target is aten.t.default:
                products = [x for x in reader.users if x.target is aten.mm.default and x.args[0] is reader]
                found = [(x, x.args[1], True) for x in products]
            elif reader.target is aten.mm.default and reader.args[1] is self.gradient:
                transposed: Any = reader.args[0]
                found = [(reader, transposed.args[0], False)] if transposed.target is aten.t.default else []
            else:
                continue
            for product, wide, by_class in found:
                if isinstance(wide, fx.Node) and self.forward.fits(wide):
                    return product, self.forward.back(wide), by_class
        return None

    def _layer_of(self, end: fx.Node) -> tuple[fx.Node, tuple[Any, ...]]:
        for node, layer in self.forward.layers.items():
            try:
                return node, products_of(end, layer.source, layer.weight)
            except OtherwiseError:
                continue
        raise OtherwiseError

    def _no_higher(self) -> bool:
        """Is the joined call's worst moment one that autograd's calls have, too?

        What a function of autograd has saved is freed when all its gradients are there.
        """
        steps = [x for x in sorted(self.members) if not self.after.is_view(x)]
        steps = sorted({*steps, *self.wanted})
        members = {*self.members, *self.ends}
        read = {x: [self._root(y) for y in x.all_input_nodes] for x in steps}
        last = {y: at for at, x in enumerate(steps) for y in read[x]}
        # With the gradient that arrives at a function, all that its calls read is freed.
        until = {x: max((last[y] for y in read[x] if y in members), default=0) for x in steps}
        outside = {x for x in self.saved if any(y not in self.members for y in _readers(x) if self.arriving < y)}
        apart = now = sum(map(_bytes, self.saved))
        alive = set(self.saved)
        for at, node in enumerate(steps):
            now += _bytes(node)
            alive.add(node)
            apart = max(apart, now)
            for x in [x for x in alive if x in last and x not in self.wanted and x not in outside]:
                readers = [y for y in steps if x in read[y]]
                if max(last[x] if x in members else until[y] for y in readers) <= at:
                    alive.remove(x)
                    now -= _bytes(x)
        return self._joined_bytes() <= apart

    def _joined_bytes(self) -> int:
        """At the joined call's worst moment."""
        given = [*self.saved, self.arriving]
        sizes = dict(enumerate(map(_bytes, given)))
        now = most = sum(sizes.values())
        calls = [x for x in self.after.calls if x in self.members]
        for number, (step, node) in enumerate(zip(self.middle.steps, calls, strict=True), start=len(given)):
            in_place = step.target is not self.after.calls[node][0]
            sizes[number] = _bytes(node)
            now += 0 if in_place else sizes[number]
            most = max(most, now)
            first = step.args[0]
            over = first.number if in_place and isinstance(first, Value) else None
            now -= sum(sizes[x] for x in step.frees if x >= len(self.saved) and x not in (over, number))
            if number in self.middle.results:
                products = self.products[self.middle.results.index(number)][:3]
                now += sum(_bytes(x) for x in products if x is not None)
                most = max(most, now)
            now -= sizes[number] if number in step.frees else 0
        return most

    def _root(self, node: Any) -> fx.Node:
        while self.after.is_view(node):
            node = node.args[0]
        return node

    def _from_memory(self) -> tuple[list[fx.Node], bool]:
        """What was saved, or what that is made from where it is less; and is it?"""
        leaves = self.all.leaves(self.saved)
        less = sum(map(_bytes, leaves)) < sum(map(_bytes, self.saved))
        return (leaves if less else self.saved), less

    def _again(self, results: Sequence[fx.Node]) -> tuple[Begin, list[fx.Node], list[fx.Node]]:
        """From the linear layers' sources; with nodes for their results, and for those and all else that is read."""
        leaves = self.all.leaves(results)
        layers = [x for x in leaves if x in self.all.layers]
        given = [x for x in leaves if x not in layers]
        found = [self.all.layers[x] for x in layers]
        sources, weights, biases = (tuple(getattr(x, y) for x in found) for y in ("source", "weight", "bias"))
        return Begin(tuple(given), sources, weights, biases), layers, [*layers, *given]

    def read(self) -> set[fx.Node]:
        """All that the joined calls read, in one way or another, of what was there before them."""
        wide = [] if self.partner is None else [self.partner[1]]
        begin, _, there = self._again([*self.saved, *wide])
        nodes = pytree.tree_leaves(begin.arguments())
        return {*self.saved, *self.sources, *self.weights, *there, *(x for x in nodes if isinstance(x, fx.Node))}

    def join(self, graph: fx.Graph) -> dict[fx.Node, fx.Node]:
        """Put the joined calls in; returns what stands for what."""
        place = self.arriving
        replaced: dict[fx.Node, fx.Node] = {}
        if self.partner is not None:
            product, wide, by_class = self.partner
            begin, layers, read = self._again([wide])
            own: Any = product.args
            behind: Any = (self.gradient, by_class, self.all.middle(read, [wide], over=layers), begin.arguments())
            with graph.inserting_before(product):
                joined = graph.call_function(ways.weight_gradient, (*own, *behind))
            joined.meta = product.meta | {AS_EAGER: (product.target, own, {})}
            product.replace_all_uses_with(joined)
            replaced[product] = joined
            place = max(place, joined)
        wanted: Any = tuple(tuple(x is not None for x in products[:3]) for products in self.products)
        by_class = tuple(products[3] for products in self.products)

        def plan(middle: Middle) -> FeedForward:
            return FeedForward(middle, wanted, by_class)

        own = (self.gradient, self.weight, tuple(self.saved), tuple(self.sources), tuple(self.weights))
        own = (*own, plan(self.middle))
        kept, is_less = self._from_memory()
        over = [self.arriving]
        memory = Begin(tuple(kept)).arguments(), plan(self.all.middle([*kept, *over], self.ends, over=over))
        begin, layers, read = self._again(self.saved)
        source = begin.arguments(), plan(self.all.middle([*read, *over], self.ends, over=[*over, *layers]))
        with graph.inserting_after(place):
            args: Any = (*own, memory, source, is_less)
            joined = graph.call_function(ways.feed_forward_backward, args)
        joined.meta = {**self.wanted[-1].meta, "val": tuple(map(value_of, self.wanted))}
        joined.meta[AS_EAGER] = (ways.feed_forward_backward, own, {})
        replaced |= dict(zip(self.wanted, replace_by(joined, self.wanted), strict=True))
        return replaced


def _readers(node: fx.Node) -> Iterable[fx.Node]:
    for reader in node.users:
        if reader.target in VIEWS:
            yield from _readers(reader)
        else:
            yield reader


def _bytes(node: fx.Node) -> int:
    return value_of(node).nbytes
