"""What joins of calls have in common: products of a linear layer's backward pass, and results that stand for others."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from explorer.operators.registry import AS_EAGER, OWN_RESULTS, value_of
from explorer.torch_private import storage_key

aten = torch.ops.aten


class OtherwiseError(Exception):
    """The calls are others than those that may be joined."""


def require(condition: object) -> None:
    """Raises OtherwiseError if this is false."""
    if not condition:
        raise OtherwiseError


def products_of(
    of_result: fx.Node, source: Any, weight: fx.Node
) -> tuple[fx.Node | None, fx.Node | None, fx.Node | None, bool]:
    """What reads the gradient of a linear layer's result.

    Args:
        of_result: that gradient.
        source: (rows, width), of the layer.
        weight: (width, results).

    Returns:
        The gradients of the layer's source, weight and bias; and whether the weight's has a row for each result.

    Raises:
        OtherwiseError: something else reads it.
    """
    of_source = of_weight = of_bias = None
    by_class = True
    for reader in of_result.users:
        if reader.target is aten.t.default:
            (of_weight,) = reader.users if of_weight is None and len(reader.users) == 1 else (None,)
            require(of_weight is not None and of_weight.args == (reader, source))
        elif reader.target is aten.sum.dim_IntList:
            require(reader.args[1:] == ([0], True) and not reader.kwargs and of_bias is None)
            of_bias = reader
        elif reader.target is aten.mm.default and reader.args[0] is of_result:
            require(of_source is None and is_transposed(reader.args[1], weight))
            of_source = reader
        else:
            require(reader.target is aten.mm.default and of_weight is None)
            require(is_transposed(reader.args[0], source))
            of_weight, by_class = reader, False
    return of_source, of_weight, of_bias, by_class


def is_transposed(node: Any, of: fx.Node) -> bool:
    """Are these the same numbers, transposed?"""
    if not isinstance(node, fx.Node):
        return False
    one, other = value_of(node), value_of(of)
    same_place = storage_key(one) == storage_key(other) and one.storage_offset() == other.storage_offset()
    return same_place and one.shape == other.shape[::-1] and one.stride() == other.stride()[::-1]


def replace_by(node: fx.Node, old: Sequence[fx.Node]) -> list[fx.Node]:
    """Let the results of ``node`` stand for these."""
    found: list[fx.Node] = []
    for number, other in enumerate(old):
        found.append(element_of(node, number, after=found[-1] if found else node))
        other.replace_all_uses_with(found[-1])
    return found


def element_of(node: fx.Node, number: int, *, after: fx.Node) -> fx.Node:
    """A result of a call of several, as a node behind ``after``."""
    with node.graph.inserting_after(after):
        element = node.graph.call_function(operator.getitem, (node, number))
    element.meta = {**node.meta, "val": value_of(node)[number]}
    for key in (AS_EAGER, OWN_RESULTS):
        element.meta.pop(key, None)
    return element
