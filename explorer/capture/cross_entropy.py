"""Cross-entropy's backward pass as one call: autograd's several have no other memory, and by rows they need less."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from explorer.operators.cross_entropy import cross_entropy_backward
from explorer.operators.registry import all_arguments, value_of
from explorer.torch_private import storage_key

aten = torch.ops.aten
_MOST = 0.0005
"""Of the joined call's peak: what autograd would have freed between its calls, such as classes that were shifted."""
NLL_BACKWARD = (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)


def join_backward(graph: fx.Graph) -> None:
    """Replace the calls of a loss and of the log-softmax that it reads alone by ``cross_entropy_backward``."""
    there = {storage_key(value_of(x)) for x in graph.nodes if x.op == "placeholder"}
    for node in list(graph.nodes):
        if node.target is not aten._log_softmax_backward_data.default:
            continue
        given, log_probabilities, dim, dtype = all_arguments(node)
        parts = _parts(given, log_probabilities) if dim % value_of(log_probabilities).dim() == 1 else None
        if parts is None:
            continue
        loss, smoothed, shares = parts
        gradient, _, *others = all_arguments(loss)
        if kept_too_long(gradient, *others, smoothed, given=there, log_probabilities=log_probabilities):
            continue
        other = dtype if dtype != value_of(log_probabilities).dtype else None
        with graph.inserting_before(node):
            args = (gradient, log_probabilities, *others, smoothed, shares, other)
            joined = graph.call_function(cross_entropy_backward, args)
        joined.meta = node.meta
        node.replace_all_uses_with(joined)
        graph.erase_node(node)
        # What made the gradient of the log-probabilities alone is swept away with what else nobody reads.


def kept_too_long(*read: Any, given: set[int], log_probabilities: fx.Node) -> int:
    """How much would a joined call hold to its end of what the step makes for the loss's own call alone?

    Args:
        read: by that call.
        given: storages that the caller has.
        log_probabilities: what the gradient is of.

    Returns:
        Bytes; 0 where they are too few to count.
    """
    values = [value_of(x) for x in read if isinstance(x, fx.Node)]
    kept = sum(x.nbytes for x in values if x.numel() > 1 and storage_key(x) not in given)
    return kept if kept > _MOST * 3 * value_of(log_probabilities).nbytes else 0


def _parts(given: Any, log_probabilities: Any) -> tuple[fx.Node, fx.Node | None, Any] | None:
    """The loss's own call, what smoothed labels add to every row, and the shares of the classes of that.

    None where the gradient of the log-probabilities is another one.
    """
    if len(given.users) > 1:
        return None
    loss, smoothed, shares = given, None, None
    if given.target is aten.add.Tensor and not given.kwargs:
        first, second = given.args
        loss, other = (first, second) if getattr(first, "target", None) in NLL_BACKWARD else (second, first)
        smoothed, shares = smoothed_of(other, log_probabilities)
        if smoothed is None:
            return None
    if getattr(loss, "target", None) not in NLL_BACKWARD or len(loss.users) > 1:
        return None
    return (loss, smoothed, shares) if loss.args[1] is log_probabilities else None


def smoothed_of(node: Any, log_probabilities: fx.Node) -> tuple[fx.Node | None, fx.Node | None]:
    """One number for each row, which all its classes have, and the classes' shares, where it is a product with them."""
    shares = None
    wanted = list(value_of(log_probabilities).shape)
    if node.target is aten.mul.Tensor and len(node.users) == 1:
        node, shares = node.args
        if not isinstance(shares, fx.Node) or list(value_of(shares).shape) != [1, wanted[1], *(1 for _ in wanted[2:])]:
            return None, None
    if node.target is not aten.expand.default or list(value_of(node).shape) != wanted:
        return None, None
    source = node.args[0]
    return (source, shares) if list(value_of(source).shape) == [wanted[0], 1, *wanted[2:]] else (None, None)
