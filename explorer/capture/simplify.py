"""Calls that autograd's formulas lead to, and that take memory for nothing: the same bits are to be had without."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from explorer.operators.registry import layout_of, value_of
from explorer.torch_private import storage_key

aten = torch.ops.aten


def simplify(graph: fx.Graph, *, named: set[fx.Node], backward: set[fx.Node]) -> None:
    """Leave them out of the backward pass: both are what hand-made normalisation leads to.

    Args:
        graph: joint; it is changed in place.
        named: nodes that are results or gradients.
        backward: nodes that depend on a gradient.
    """
    given = {
        storage_key(value_of(x)) for x in graph.nodes if x.op == "placeholder" and isinstance(value_of(x), torch.Tensor)
    }
    for node in list(graph.nodes):
        if node in named:
            continue
        if node.target is aten.pow.Tensor_Scalar and node.args[1] == 1:
            _drop_first_power(graph, node, given)
        elif node.target is aten.div.Scalar and node in backward:
            _divide_before_expanding(graph, node)


def _drop_first_power(graph: fx.Graph, node: fx.Node, given: set[int]) -> None:
    """The derivative of a square has a first power in it, which is a copy; of what is the caller's, it stays one."""
    source: Any = node.args[0]
    if not _is_viewed(node) and layout_of(source) == layout_of(node) and storage_key(value_of(source)) not in given:
        node.replace_all_uses_with(source)
        graph.erase_node(node)


def _is_viewed(node: fx.Node) -> bool:
    """Do calls see it another way, which they could not if it lay in memory otherwise?"""
    return any(getattr(x.target, "is_view", False) for x in node.users)


def _divide_before_expanding(graph: fx.Graph, node: fx.Node) -> None:
    """The gradient of a mean over rows is one number for each row, which is divided for every element of it."""
    expanded: Any = node.args[0]
    divide: Any = node.target
    if expanded.target is not aten.expand.default or len(expanded.users) > 1 or _is_viewed(node):
        return
    source = expanded.args[0]
    few, many = value_of(source), value_of(expanded)
    if few.shape[:-1] != many.shape[:-1] or few.shape[-1:] != (1,):
        return
    with graph.inserting_before(node):
        divided = graph.call_function(divide, (source, *node.args[1:]))
        repeated = graph.call_function(expanded.target, (divided, *expanded.args[1:]))
    with few.fake_mode:
        divided.meta = {**node.meta, "val": torch.empty(few.shape, dtype=value_of(node).dtype, device=few.device)}
    repeated.meta = {**node.meta, "val": divided.meta["val"].expand(many.shape)}
    node.replace_all_uses_with(repeated)
    graph.erase_node(node)
    graph.erase_node(expanded)
