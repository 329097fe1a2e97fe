"""Which calls of the joint graph are forward, which are backward, and in which order they run."""

from __future__ import annotations

import operator

import torch
from torch import fx

from explorer.capture.normalise import backward_nodes, changed_storages, tensors_of
from explorer.capture.traced import Traced
from explorer.operators.registry import changes_its_arguments, draws_random_numbers
from explorer.torch_private import storage_key

aten = torch.ops.aten
EQUALITIES = (aten.eq.Tensor, aten.ne.Tensor)


def passes_of(traced: Traced) -> tuple[list[fx.Node], list[fx.Node]]:
    """Computing and viewing nodes of the forward and of the backward pass, each in order.

    What only serves the backward pass and needs no gradient (a constant, a mask) runs there, before its first reader;
    unless it draws random numbers, whose order must stay.
    """
    backward = backward_nodes(traced)
    calls = [x for x in traced.graph.nodes if x.op == "call_function" and x.target is not operator.getitem]
    needed = _needed_in_forward(traced, backward)
    forward = [node for node in calls if node not in backward and node in needed]
    late = {node for node in calls if node not in backward and node not in needed}
    ordered: list[fx.Node] = []
    placed: set[fx.Node] = set()

    def place(node: fx.Node) -> None:
        if node in placed or node.op != "call_function":
            return
        placed.add(node)
        for source in node.all_input_nodes:
            origin = source.args[0] if source.target is operator.getitem else source
            if origin in late:
                assert isinstance(origin, fx.Node)
                place(origin)
        ordered.append(node)

    for node in calls:
        if node in backward:
            place(node)
    for _, gradient in traced.gradients:
        # Of some functions it is zero, whatever the gradient that arrives.
        if gradient in late:
            place(gradient)
    return forward, _weight_gradients_first(traced, ordered, backward)


def _weight_gradients_first(traced: Traced, ordered: list[fx.Node], backward: set[fx.Node]) -> list[fx.Node]:
    """Of the two products in a linear layer's backward pass, run the one that needs the layer's input first.

    Autograd runs it second. The input is of no use afterwards, the other product needs no activation: in this order
    they are never in memory together (MONeT appendix D, for convolutions).
    """
    gradients = {storage_key(x) for node in backward for x in tensors_of(node)}
    outside = {storage_key(x) for graph_input in traced.inputs for x in tensors_of(graph_input.node)}

    def reads(node: fx.Node) -> set[int]:
        return {storage_key(x) for source in node.all_input_nodes for x in tensors_of(source)}

    result = list(ordered)
    products = [node for node in ordered if node.target is aten.mm.default]
    for product in (x for x in products if not reads(x) - gradients - outside):
        start = result.index(product)
        first_use = next((i for i in range(start, len(result)) if product in result[i].all_input_nodes), len(result))
        partners = [x for x in result[start:first_use] if x in products and reads(x) - gradients - outside]
        partners = [x for x in partners if reads(x) & reads(product) & gradients]
        if partners:
            result.remove(product)
            result.insert(result.index(partners[-1]) + 1, product)
    return result


def _needed_in_forward(traced: Traced, backward: set[fx.Node]) -> set[fx.Node]:
    pending = [x for x in traced.outputs if isinstance(x, fx.Node)]
    pending += [node for _, node in traced.mutations]
    changed = changed_storages(traced)
    for node in traced.graph.nodes:
        if node.op != "call_function" or node in backward:
            continue
        happens = changes_its_arguments(node) or draws_random_numbers(node)
        # What is read of a buffer that the forward pass changes is its old value, which is gone afterwards.
        early = any(storage_key(x) in changed for source in node.all_input_nodes for x in tensors_of(source))
        if happens or early:
            pending.append(node)
    return _leading_to(pending)


def _leading_to(nodes: list[fx.Node]) -> set[fx.Node]:
    """The nodes, and all that they are computed from."""
    pending, found = list(nodes), set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.all_input_nodes)
    return found


def compared_for_equality(forward: list[fx.Node], backward: list[fx.Node]) -> set[fx.Node]:
    """Forward calls that lead to tensors which the backward pass asks to be equal, as that of ``amax`` does.

    It looks for the largest number where it was found. One side may be kept and the other computed again: unless the
    same numbers come out, nothing is equal, and the gradient is zero divided by zero.
    """
    compared = [x for node in backward if node.target in EQUALITIES for x in node.all_input_nodes]
    return _leading_to(compared) & set(forward)
