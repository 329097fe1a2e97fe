"""The gradient of an embedding and its sum with another one as one call, so that it need not be a tensor of its own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import fx

from explorer.operators.embedding import embedding_backward_added
from explorer.operators.registry import all_arguments, layout_of

aten = torch.ops.aten


def join_sums(graph: fx.Graph, named: Collection[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Replace sums of a gradient and of an embedding's that was made just before.

    Args:
        graph: joint, without what nobody reads; it is changed in place.
        named: nodes that are results or gradients.

    Returns:
        For each sum, what stands for it now.
    """
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target is not aten.add.Tensor or node.kwargs or len(node.args) != 2:
            continue
        parts: Any = node.args
        own = next((x for x in parts if _is_embeddings(x) and x not in named), None)
        other = next((x for x in parts if x is not own), None)
        if own is None or not isinstance(other, fx.Node) or layout_of(other) != layout_of(own) or not other < own:
            continue
        with graph.inserting_before(node):
            joined = graph.call_function(embedding_backward_added, (other, *all_arguments(own)))
        joined.meta = dict(node.meta)
        node.replace_all_uses_with(joined)
        replaced[node] = joined
    return replaced


def _is_embeddings(node: Any) -> bool:
    """Is it an embedding's gradient that nothing else reads?"""
    return isinstance(node, fx.Node) and node.target is aten.embedding_dense_backward.default and len(node.users) == 1
