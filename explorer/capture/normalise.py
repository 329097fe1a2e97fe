"""Rewrites of the joint graph that make it run like eager mode and keep its memory ours to decide."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch import fx, nn

from explorer.capture.cross_entropy import join_backward
from explorer.capture.eager_memory import (
    called_again,
    mark_sums_of_gradients,
    merge_constants,
    separate_tangents,
    settle_views,
    tighten_results,
)
from explorer.capture.embedding import join_sums
from explorer.capture.feed_forward import join_feed_forward
from explorer.capture.linear_cross_entropy import join_linear_layers
from explorer.capture.scatter import write_at_once
from explorer.capture.simplify import simplify
from explorer.capture.traced import GraphInput, Source, Traced
from explorer.operators.dropout import dropout_from_mask, dropout_of_eager, dropout_scale
from explorer.operators.registry import (
    AS_EAGER,
    changes_its_arguments,
    device_kind,
    draws_random_numbers,
    fits_over,
    is_dense,
    layout_of,
)
from explorer.torch_private import storage_key

aten = torch.ops.aten
_FUNCTIONAL_NORM = aten._native_batch_norm_legit_functional.default


def normalise(traced: Traced, step: nn.Module) -> Traced:
    """Apply every rewrite; the graph is changed in place.

    Args:
        traced: the joint graph as captured.
        step: the module that was captured; tells which parameters are tied.

    Returns:
        The same graph with the interface that it has now.
    """
    traced = merge_constants(traced)
    separate_tangents(traced)
    settle_views(traced.graph)
    traced = _inline_plain_inputs(traced)
    traced = _drop_aliases(traced)
    _merge_views(traced)
    traced = _merge_tied(traced, step)
    _drop_copies(traced)
    write_at_once(traced.graph)
    traced = tighten_results(traced)
    traced = _update_statistics_in_place(traced)
    _forget_statistics_in_backward(traced)
    _protect_old_buffers(traced)
    _keep_masks(traced)
    _dropout_as_eager(traced)
    simplify(traced.graph, named=_named(traced), backward=backward_nodes(traced))
    join_backward(traced.graph)
    for join in (join_linear_layers, join_sums):
        _sweep(traced)
        traced = _with(traced, join(traced.graph, _named(traced)))
    joined = join_feed_forward(traced.graph, _named(traced), backward_nodes(traced), changed_storages(traced))
    traced = _with(traced, joined)
    traced = _own_gradients(traced)
    mark_sums_of_gradients(backward_nodes(traced))
    _sweep(traced)
    return traced


def value_of(node: fx.Node) -> Any:
    """The fake tensor (or tuple of them) that the node stands for."""
    return node.meta["val"]


def _inline_plain_inputs(traced: Traced) -> Traced:
    """Numbers among the arguments are part of the graph, like every other plain value."""
    plain = [x for x in traced.inputs if not tensors_of(x.node)]
    for graph_input in plain:
        node, value = graph_input.node, value_of(graph_input.node)

        def inlined(x: fx.Node, node: fx.Node = node, value: Any = value) -> Any:
            return value if x is node else x

        for user in list(node.users):
            user.args = fx.map_arg(user.args, inlined)
            user.kwargs = fx.map_arg(user.kwargs, inlined)
        traced.graph.erase_node(node)
    return replace(traced, inputs=tuple(x for x in traced.inputs if x not in plain))


def _drop_aliases(traced: Traced) -> Traced:
    """``detach`` means nothing below autograd; assertions were met while tracing."""
    source_of: dict[fx.Node, fx.Node] = {}
    for node in list(traced.graph.nodes):
        if node.target is aten.detach.default:
            source = node.args[0]
            node.replace_all_uses_with(source)
            source_of[node] = source
            traced.graph.erase_node(node)
        elif node.op == "call_function" and "_assert_" in str(node.target) and not node.users:
            traced.graph.erase_node(node)

    def origin(value: Any) -> Any:
        while value in source_of:
            value = source_of[value]
        return value

    return replace(
        traced,
        outputs=tuple(origin(x) if isinstance(x, fx.Node) else x for x in traced.outputs),
        mutations=tuple((graph_input, origin(node)) for graph_input, node in traced.mutations),
        gradients=tuple((graph_input, origin(node)) for graph_input, node in traced.gradients),
    )


def _merge_views(traced: Traced) -> None:
    """Equal views of one tensor are one: a result that is a view of it is then one of a result with a gradient."""
    named = _named(traced)
    first: dict[Any, fx.Node] = {}
    for node in list(traced.graph.nodes):
        if is_view(node):
            key = (node.target, repr(node.args), repr(node.kwargs))
            known = first.setdefault(key, node)
            if known is not node and node not in named:
                node.replace_all_uses_with(known)
                traced.graph.erase_node(node)


def _named(traced: Traced) -> set[fx.Node]:
    """Results, new values of buffers, and gradients."""
    found = {x for x in traced.outputs if isinstance(x, fx.Node)}
    return found | {node for _, node in (*traced.mutations, *traced.gradients)}


def is_view(node: fx.Node) -> bool:
    """Does it call for other sizes and strides of its source's memory?"""
    return node.target is aten._unsafe_view.default or getattr(node.target, "is_view", False)


def _drop_copies(traced: Traced) -> None:
    """A copy in the same layout is of no use where nothing can overwrite what it was made from.

    Autograd makes one of what an in-place activation overwrites and its backward pass needs. What the caller gets may
    be changed by the caller, buffers by the step, parameters and batch by anybody: copies of those stay, and so do
    copies that are gradients or for the caller.
    """
    given = [x.node for x in traced.inputs if x.source is not Source.TANGENT]
    results = [x for x in traced.outputs if isinstance(x, fx.Node)]
    results += [node for _, node in (*traced.mutations, *traced.gradients)]
    shared = {storage_key(x) for node in (*given, *results) for x in tensors_of(node)}
    dropped: set[int] = set()
    for node in list(traced.graph.nodes):
        if node.target is aten.clone.default:
            source = node.args[0]
            assert isinstance(source, fx.Node)
            keys = {storage_key(value_of(x)) for x in (source, node)}
            if not keys & shared and layout_of(source) == layout_of(node) and is_dense(source):
                dropped.add(storage_key(value_of(node)))
                node.replace_all_uses_with(source)
                traced.graph.erase_node(node)
        elif any(storage_key(x) in dropped for x in tensors_of(node)):
            # A view of the copy is one of the original now, and has its storage.
            node.meta["val"] = called_again(node)


def _merge_tied(traced: Traced, step: nn.Module) -> Traced:
    """One graph input per parameter object; gradients of its uses add up in the order in which they are made."""
    named = dict(step.named_parameters(remove_duplicate=False))
    kept: dict[int, GraphInput] = {}
    alias: dict[GraphInput, GraphInput] = {}
    for graph_input in traced.inputs:
        if graph_input.source is Source.PARAMETER:
            first = kept.setdefault(id(named[graph_input.name]), graph_input)
            if first is not graph_input:
                alias[graph_input] = first
                graph_input.node.replace_all_uses_with(first.node)
                traced.graph.erase_node(graph_input.node)
    if not alias:
        return traced
    position = {node: index for index, node in enumerate(traced.graph.nodes)}
    gradients: dict[GraphInput, fx.Node] = {}
    for graph_input, gradient in sorted(traced.gradients, key=lambda x: position[x[1]]):
        target = alias.get(graph_input, graph_input)
        so_far = gradients.get(target)
        gradients[target] = (
            gradient if so_far is None else _insert_after(traced.graph, gradient, aten.add.Tensor, (so_far, gradient))
        )
    inputs = tuple(x for x in traced.inputs if x not in alias)
    return replace(traced, inputs=inputs, gradients=tuple(gradients.items()))


def _insert_after(graph: fx.Graph, place: fx.Node, target: Any, args: tuple[Any, ...]) -> fx.Node:
    with graph.inserting_after(place):
        node = graph.call_function(target, args)
    fake = next(value_of(x) for x in node.all_input_nodes)
    with fake.fake_mode:
        node.meta = dict(place.meta)
        node.meta["val"] = target(*fx.map_arg(args, value_of))
    return node


def _update_statistics_in_place(traced: Traced) -> Traced:
    """Let batch normalisation update its running statistics itself, as in eager mode, instead of copying them."""
    mutated = {node: graph_input for graph_input, node in traced.mutations}
    done: set[fx.Node] = set()
    for node in list(traced.graph.nodes):
        if node.target is not _FUNCTIONAL_NORM:
            continue
        updates = {user.args[1]: user for user in node.users if user.args[1] in (3, 4)}
        readers = [x for update in updates.values() for x in update.users if not _is_norm_backward(x)]
        own = all(
            update in mutated and mutated[update].node is node.args[int(index)] for index, update in updates.items()
        )
        if any(x.op != "output" for x in readers) or not own or len(updates) != 2:
            continue
        node.target = aten._native_batch_norm_legit.default
        node.meta = {**node.meta, "val": value_of(node)[:3]}
        done |= set(updates.values())
    return replace(traced, mutations=tuple((i, node) for i, node in traced.mutations if node not in done))


def _is_norm_backward(node: fx.Node) -> bool:
    return node.target is aten.native_batch_norm_backward.default


def _forget_statistics_in_backward(traced: Traced) -> None:
    """In training the backward operator ignores the running statistics: do not make it wait for them."""
    for node in traced.graph.nodes:
        if _is_norm_backward(node) and node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])


def _protect_old_buffers(traced: Traced) -> None:
    """Backward operators that read a buffer which the forward pass changes, or a view of it, read a copy of before."""
    backward = backward_nodes(traced)
    changed = changed_storages(traced)
    for node in list(traced.graph.nodes):
        if node in backward or not any(storage_key(x) in changed for x in tensors_of(node)):
            continue
        readers = [user for user in node.users if user in backward]
        if readers and isinstance(value_of(node), torch.Tensor):
            place = node if node.op == "call_function" else _last_input(traced)
            copy = _insert_after(traced.graph, place, aten.clone.default, (node,))
            for reader in readers:
                reader.replace_input_with(node, copy)


def _last_input(traced: Traced) -> fx.Node:
    return [node for node in traced.graph.nodes if node.op == "placeholder"][-1]


def changed_storages(traced: Traced) -> set[int]:
    """Storages of the graph inputs that the forward pass changes."""
    return {storage_key(x) for graph_input in traced.changed for x in tensors_of(graph_input.node)}


def backward_nodes(traced: Traced) -> set[fx.Node]:
    """What depends on a tangent."""
    found = {x.node for x in traced.inputs if x.source is Source.TANGENT}
    for node in traced.graph.nodes:
        if node.op == "call_function" and any(x in found for x in node.all_input_nodes):
            found.add(node)
    return found


def _keep_masks(traced: Traced) -> None:
    """Name the mask of every dropout, so that its output can be recomputed from it."""
    for node in list(traced.graph.nodes):
        if node.target is aten.native_dropout.default and all(user.args[1] != 1 for user in node.users):
            with traced.graph.inserting_after(node):
                mask = traced.graph.call_function(operator.getitem, (node, 1))
            mask.meta = {**node.meta, "val": value_of(node)[1]}


def _dropout_as_eager(traced: Traced) -> None:
    """On the CPU, eager mode rounds dropout's scale to the tensor's dtype, and makes no copy of a mask as numbers."""
    for node in traced.graph.nodes:
        if node.target is aten.native_dropout.default:
            source, probability, training = node.args
            if training and device_kind(value_of(source).device) == "cpu":
                args = (source, probability, dropout_scale(probability, source))
                node.meta[AS_EAGER] = (dropout_of_eager, args, {})
        elif node.target is aten.native_dropout_backward.default:
            gradient, mask, _ = node.args
            drawn = mask.args[0] if mask.target is operator.getitem else mask
            if drawn.target is aten.native_dropout.default:
                node.args = (gradient, mask, dropout_scale(drawn.args[1], gradient))
            if device_kind(value_of(gradient).device) == "cpu" and fits_over(gradient, node):
                node.meta[AS_EAGER] = (dropout_from_mask, node.args, {})


def _with(traced: Traced, joined: dict[fx.Node, fx.Node]) -> Traced:
    """With results and gradients of joined calls in place of others'."""
    return replace(
        traced,
        outputs=tuple(joined.get(x, x) if isinstance(x, fx.Node) else x for x in traced.outputs),
        gradients=tuple((graph_input, joined.get(x, x)) for graph_input, x in traced.gradients),
    )


def _own_gradients(traced: Traced) -> Traced:
    """Give each gradient a storage of its own, in its parameter's layout.

    Otherwise autograd would copy it when it accumulates, in memory that no schedule accounts for; or two gradients
    would share their memory.
    """
    backward = backward_nodes(traced)
    position = {node: index for index, node in enumerate(traced.graph.nodes)}
    made_in_backward = {storage_key(value_of(x)) for x in backward if _computes(x)}
    seen: set[int] = set()
    gradients = []
    for graph_input, gradient in sorted(traced.gradients, key=lambda x: position[x[1]]):
        storage = storage_key(value_of(gradient))
        same_layout = value_of(gradient).stride() == value_of(graph_input.node).stride()
        own = gradient
        if storage in seen or storage not in made_in_backward or not same_layout:
            own = _insert_after(traced.graph, gradient, copy_in_layout, (gradient, graph_input.node))
        seen.add(storage_key(value_of(own)))
        gradients.append((graph_input, own))
    return replace(traced, gradients=tuple(gradients))


def copy_in_layout(source: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A copy of ``source`` with the strides of ``like``."""
    return torch.empty_strided(like.shape, like.stride(), dtype=source.dtype, device=source.device).copy_(source)


def _computes(node: fx.Node) -> bool:
    """Does the node make new memory (a computing call, or an element of what one returned)?"""
    if node.op != "call_function" or not isinstance(value_of(node), torch.Tensor):
        return False
    source = node.args[0] if node.target is operator.getitem else node
    assert isinstance(source, fx.Node)
    inputs = {storage_key(x) for n in source.all_input_nodes for x in tensors_of(n)}
    return storage_key(value_of(node)) not in inputs


def tensors_of(node: fx.Node) -> tuple[torch.Tensor, ...]:
    """The fake tensors that a node stands for: one, several, or none."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return (value,)
    return tuple(x for x in value if isinstance(x, torch.Tensor)) if isinstance(value, tuple | list) else ()


def _sweep(traced: Traced) -> None:
    """Erase what leads to no result, buffer or gradient."""
    wanted = _named(traced)
    for node in reversed(list(traced.graph.nodes)):
        # Random numbers that nobody reads are drawn too: those that follow depend on how many there were.
        happens = node.op == "call_function" and (changes_its_arguments(node) or draws_random_numbers(node))
        unused = node not in wanted and not node.users and not happens
        if node.op == "output" or (node.op == "call_function" and unused):
            traced.graph.erase_node(node)
