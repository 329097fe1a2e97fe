"""What lies between linear layers, and works number by number: calls of the graph as a ``Middle``."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from explorer.capture.joining import require
from explorer.operators.dropout import dropout_from_mask, dropout_from_mask_, dropout_scale
from explorer.operators.feed_forward import Middle, Step, Value
from explorer.operators.inplace import in_place_call
from explorer.operators.registry import AS_EAGER, all_arguments, draws_random_numbers, value_of

aten = torch.ops.aten
VIEWS = (aten.view.default, aten._unsafe_view.default)
_COMMUTATIVE = (aten.mul.Tensor, aten.add.Tensor)
POINTWISE_WITHOUT_TAG = (
    aten.native_dropout_backward.default,
    aten.mish_backward.default,
    aten.softplus_backward.default,
    aten.elu_backward.default,
    aten.hardswish_backward.default,
)
"""Calls that are not marked as such, but compute each number by itself."""
MOST_STEPS = 40
"""Of a middle: GELU in plain calls has ten in the forward pass, and twice as many backward."""


@dataclass(frozen=True)
class Layer:
    """A linear layer of the first half."""

    source: Any
    weight: Any
    bias: Any


class Tracing:
    """From linear layers' results, and what else is given, to tensors of as many rows and the same width."""

    def __init__(self, rows: int, width: int) -> None:
        """Of so many rows, each so wide; nothing is known yet."""
        self.rows, self.width = rows, width
        self.layers: dict[fx.Node, Layer] = {}
        self.given: dict[fx.Node, None] = {}
        self.calls: dict[fx.Node, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def back(self, node: fx.Node) -> fx.Node:
        """Find out what ``node`` is made from; returns the node whose rows it is a view of."""
        node = self._viewed(node)
        if node in self.layers or node in self.given or node in self.calls:
            return node
        layer = _layer(node)
        if layer is not None:
            self.layers[node] = layer
        elif self.works_by_number(node):
            require(len(self.calls) < MOST_STEPS)
            target, args, kwargs = node.meta.get(AS_EAGER, (node.target, node.args, node.kwargs))
            args, kwargs = fx.map_arg((args, dict(kwargs)), self.back)
            self.calls[node] = (target, args, kwargs)
        elif _is_dropout(node):
            self._dropout(node)
        else:
            require(self.fits(node))
            self.given[node] = None
        return node

    def _dropout(self, node: fx.Node) -> None:
        """What was drawn is given."""
        call: Any = node.args[0]
        source, probability, training = call.args
        masks = [x for x in call.users if x.args[1] == 1]
        require(training and masks and self.fits(masks[0]))
        self.given[masks[0]] = None
        self.calls[node] = (dropout_from_mask, (self.back(source), masks[0], dropout_scale(probability, source)), {})

    def fits(self, node: fx.Node) -> bool:
        """Has it these rows, one behind the other?"""
        value = value_of(node)
        if not isinstance(value, torch.Tensor) or not value.dim() or value.shape[-1] != self.width:
            return False
        return value.numel() == self.rows * self.width and value.is_contiguous()

    def works_by_number(self, node: fx.Node) -> bool:
        """Does it compute each number from those in the same places?"""
        if node.op != "call_function" or not node.all_input_nodes:
            return False
        if not all(self.fits(x) for x in (node, *node.all_input_nodes)):
            return False
        if node.target is aten._to_copy.default:
            return set(node.kwargs) == {"dtype"}
        if node.target in POINTWISE_WITHOUT_TAG:
            return True
        return bool(torch.Tag.pointwise in getattr(node.target, "tags", ()) and not draws_random_numbers(node))

    def is_view(self, node: fx.Node) -> bool:
        """Are these the same rows in another shape?"""
        return node.target in VIEWS and self.fits(node) and self.fits(node.args[0])  # type: ignore[arg-type]

    def _viewed(self, node: fx.Node) -> fx.Node:
        while self.is_view(node):
            node = node.args[0]  # type: ignore[assignment]
        return node

    def with_calls(self, other: Tracing) -> Tracing:
        """With those of ``other`` behind its own."""
        found = Tracing(self.rows, self.width)
        found.layers, found.given, found.calls = self.layers, self.given, self.calls | other.calls
        return found

    def leaves(self, results: Iterable[fx.Node]) -> list[fx.Node]:
        """Of which linear layers' results, and of what else that is given, these are made."""
        pending, seen = list(results), set()
        while pending:
            node = pending.pop()
            if node not in seen:
                seen.add(node)
                pending.extend(self.read(node) if node in self.calls else ())
        return [x for x in (*self.layers, *self.given) if x in seen]

    def middle(self, given: Sequence[fx.Node], results: Sequence[fx.Node], *, over: Collection[fx.Node] = ()) -> Middle:
        """The calls that lead from ``given`` to ``results``, each of these as ``back`` returns it.

        Args:
            given: in order.
            results: in order.
            over: of what is given, what is of no use afterwards.
        """
        order = list(self._leading(given, results))
        number = {node: at for at, node in enumerate((*given, *order))}
        last = {x: at for at, node in enumerate(order) for x in self.read(node)}
        steps = []
        for at, node in enumerate(order):
            target, args, kwargs = self.calls[node]
            dying = [x for x in dict.fromkeys(self.read(node)) if last[x] == at]
            if target in _COMMUTATIVE and not kwargs and args[0] not in dying:
                args = (args[1], args[0])
            first = args[0]
            free = first in dying and (first in over or first in order) and first not in results
            in_place = _in_place(target) if free and self.read(node).count(first) == 1 else None
            if in_place is not None and value_of(first).dtype == value_of(node).dtype:
                target, name = in_place
                kwargs = kwargs | ({} if name is None else {name: first})
            if node not in last:
                dying.append(node)
            steps.append(
                Step(
                    target,
                    tuple(Value(number[x]) if isinstance(x, fx.Node) else x for x in args),
                    tuple((key, Value(number[x]) if isinstance(x, fx.Node) else x) for key, x in kwargs.items()),
                    tuple(number[x] for x in dying),
                )
            )
        return Middle(tuple(steps), tuple(number[x] for x in results))

    def read(self, node: fx.Node) -> list[fx.Node]:
        """What a call reads."""
        _, args, kwargs = self.calls[node]
        return [x for x in (*args, *kwargs.values()) if isinstance(x, fx.Node)]

    def _leading(self, given: Collection[fx.Node], results: Iterable[fx.Node]) -> list[fx.Node]:
        """The calls that are needed, in the order in which they are known, which is one in which they can run."""
        wanted, pending = set(given), [x for x in results if x not in given]
        while pending:
            node = pending.pop()
            if node not in wanted:
                wanted.add(node)
                require(node in self.calls)
                pending.extend(self.read(node))
        return [x for x in self.calls if x in wanted and x not in given]


def _in_place(target: Any) -> tuple[Any, str | None] | None:
    return (dropout_from_mask_, None) if target is dropout_from_mask else in_place_call(target)


def _layer(node: fx.Node) -> Layer | None:
    if node.target is not aten.mm.default and node.target is not aten.addmm.default:
        return None
    *begin, source, weight = all_arguments(node)[: 2 if node.target is aten.mm.default else 3]
    bias = begin[0] if begin else None
    plain = all_arguments(node)[3:] in ([], [1, 1])
    if not plain or (bias is not None and value_of(bias).shape != value_of(weight).shape[1:]):
        return None
    return Layer(source, weight, bias)


def _is_dropout(node: fx.Node) -> bool:
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and source.target is aten.native_dropout.default and node.args[1:] == (0,)
