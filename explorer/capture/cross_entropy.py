"""Cross-entropy's backward pass as one call: autograd's two have no other memory, and by rows they need less."""

from __future__ import annotations

import torch
from torch import fx

from explorer.operators.cross_entropy import cross_entropy_backward
from explorer.operators.registry import all_arguments, value_of

aten = torch.ops.aten
_BACKWARD = (aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)


def join_backward(graph: fx.Graph) -> None:
    """Replace pairs of calls, of a loss and of the log-softmax that it reads alone, by ``cross_entropy_backward``."""
    for node in list(graph.nodes):
        if node.target is not aten._log_softmax_backward_data.default:
            continue
        given, log_probabilities, dim, dtype = all_arguments(node)
        if given.target not in _BACKWARD or len(given.users) > 1 or dim != 1:
            continue
        gradient, read, *others = all_arguments(given)
        if read is log_probabilities:
            with graph.inserting_before(node):
                other = dtype if dtype != value_of(log_probabilities).dtype else None
                args = (gradient, log_probabilities, *others, other)
                joined = graph.call_function(cross_entropy_backward, args)
            joined.meta = node.meta
            node.replace_all_uses_with(joined)
            graph.erase_node(node)
            graph.erase_node(given)
