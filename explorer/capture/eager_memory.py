"""Where memory is otherwise than a trace says: sums and tangents, larger results, views of constants."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from explorer.capture.traced import Source, Traced
from explorer.operators.inplace import ACCUMULATES
from explorer.operators.registry import all_arguments
from explorer.torch_private import storage_key

aten = torch.ops.aten


def mark_sums_of_gradients(backward: set[fx.Node]) -> None:
    """Let sums in the backward pass be made in place: so does autograd with gradients that it adds up."""
    for node in backward:
        if node.target is aten.add.Tensor and not node.kwargs:
            node.meta[ACCUMULATES] = True


def merge_constants(traced: Traced) -> Traced:
    """One graph input for each constant, however often the trace came upon it."""
    first: dict[Any, fx.Node] = {}
    kept = []
    for graph_input in traced.inputs:
        constant = graph_input.constant
        if constant is not None:
            key = (storage_key(constant), constant.storage_offset(), constant.shape, constant.stride(), constant.dtype)
            known = first.setdefault(key, graph_input.node)
            if known is not graph_input.node:
                graph_input.node.replace_all_uses_with(known)
                traced.graph.erase_node(graph_input.node)
                continue
        kept.append(graph_input)
    return replace(traced, inputs=tuple(kept))


def separate_tangents(traced: Traced) -> None:
    """Let the gradient of every result be memory of its own, and no more than it takes.

    A trace has the gradients of two views of one tensor share it, and that of a view be as large as what it views.
    """
    known: set[int] = set()
    for graph_input in traced.inputs:
        if graph_input.source is Source.TANGENT:
            made = graph_input.node.meta["val"]
            with made.fake_mode:
                own = torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device=made.device)
            if storage_key(made) in known or own.untyped_storage().nbytes() < made.untyped_storage().nbytes():
                graph_input.node.meta["val"] = own
            known.add(storage_key(graph_input.node.meta["val"]))


def settle_views(graph: fx.Graph) -> None:
    """Let every view lie in the memory of what it is a view of: tracing loses that of constants, and of conjugates."""
    settled: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "call_function" or not node.args or not isinstance(node.args[0], fx.Node):
            continue
        base = node.args[0]
        if node.target is operator.getitem and base in settled:
            node.meta["val"] = called_again(node)
        elif getattr(node.target, "is_view", False) and not _shares_memory(node, base):
            node.meta["val"] = called_again(node)
            settled.add(node)


def _shares_memory(node: fx.Node, base: fx.Node) -> bool:
    made, below = ({storage_key(x) for x in pytree.tree_leaves(y.meta["val"])} for y in (node, base))
    return made <= below


def called_again(node: fx.Node) -> Any:
    """What the call returns for the fake tensors that its arguments are now."""
    assert callable(node.target)
    args: Any = fx.map_arg(node.args, lambda x: x.meta["val"])
    kwargs: Any = fx.map_arg(node.kwargs, lambda x: x.meta["val"])
    values = (pytree.tree_leaves(x.meta["val"]) for x in node.all_input_nodes)
    fake: Any = next(x for leaves in values for x in leaves if isinstance(x, torch.Tensor))
    with fake.fake_mode:
        return node.target(*args, **kwargs)


def tighten_results(traced: Traced) -> Traced:
    """Copy results whose kernels leave them in the memory of something larger, which goes then.

    A loss computes each element's first, and then has one number in memory for all of them.
    """
    copies: dict[fx.Node, fx.Node] = {}
    for node in list(traced.graph.nodes):
        needs = _LARGER.get(node.target)
        if needs is not None and (elements := needs(all_arguments(node))) > node.meta["val"].numel():
            copies[node] = _copied(node, elements)

    def copied(value: Any) -> Any:
        return copies.get(value, value) if isinstance(value, fx.Node) else value

    return replace(
        traced,
        outputs=tuple(map(copied, traced.outputs)),
        mutations=tuple((graph_input, copied(node)) for graph_input, node in traced.mutations),
        gradients=tuple((graph_input, copied(node)) for graph_input, node in traced.gradients),
    )


def storage_bytes(node: fx.Node, tensor: torch.Tensor) -> int:
    """Bytes of the storage that a call makes; ``im2col`` allocates as much as its input at least, and keeps it."""
    traced_bytes = tensor.untyped_storage().nbytes()
    if node.target is aten.im2col.default:
        return max(traced_bytes, _of_columns(list(node.args)) * tensor.element_size())
    return traced_bytes


def _copied(node: fx.Node, elements: int) -> fx.Node:
    """A copy that everybody reads from now on; ``node`` gets as much memory as it takes."""
    made = node.meta["val"]
    with node.graph.inserting_after(node):
        copy = node.graph.call_function(aten.clone.default)
    node.replace_all_uses_with(copy)
    copy.args = (node,)
    copy.meta = dict(node.meta)
    with made.fake_mode:
        # In a storage of its own before, so still one of its own, and a larger one.
        node.meta["val"] = made.new_empty(elements).as_strided(made.shape, made.stride())
    return copy


def _of_elements(arguments: list[Any]) -> int:
    """Of a loss: as many as it is the sum or mean of."""
    shapes = [x.meta["val"].shape for x in arguments[:2]]
    return prod(torch.broadcast_shapes(*shapes))


def _of_columns(arguments: list[Any]) -> int:
    return arguments[0].meta["val"].numel()


_LARGER: dict[Any, Callable[[list[Any]], int]] = {
    aten.mse_loss.default: _of_elements,
    aten.smooth_l1_loss.default: _of_elements,
    aten.soft_margin_loss.default: _of_elements,
    aten.binary_cross_entropy.default: _of_elements,
    aten.col2im.default: _of_columns,
}
