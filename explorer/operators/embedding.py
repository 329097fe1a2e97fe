"""The gradient of an embedding whose weight is used elsewhere too, such as by a language model's last layer.

Autograd makes it as a tensor of its own, of zeros but for the rows of the tokens, and adds it to what there is. Those
rows may be added where they belong: the other tensor, as large as the vocabulary, is never made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.registry import Variant, fits_over, rule

aten = torch.ops.aten
# Arguments of captured calls are values by position.
# ruff: noqa: FBT001


def embedding_backward_added(
    other: torch.Tensor, gradient: torch.Tensor, tokens: torch.Tensor, count: int, padding: int, scaled: bool
) -> torch.Tensor:
    """The sum of ``other`` and of an embedding's gradient.

    Args:
        other: (count, width).
        gradient: of what the embedding gave, (…, width).
        tokens: (…).
        count: of rows.
        padding: the token that gets no gradient; −1: none.
        scaled: each token's gradient is divided by how often it occurs.
    """
    return other + aten.embedding_dense_backward.default(gradient, tokens, count, padding, scaled)


def embedding_backward_added_(
    other: torch.Tensor, gradient: torch.Tensor, tokens: torch.Tensor, count: int, padding: int, scaled: bool
) -> torch.Tensor:
    """The same over ``other``, as autograd does it."""
    return other.add_(aten.embedding_dense_backward.default(gradient, tokens, count, padding, scaled))


def rows_added_(other: torch.Tensor, gradient: torch.Tensor, tokens: torch.Tensor, padding: int) -> torch.Tensor:
    """The same over ``other``, row by row; no token's gradient is scaled."""
    rows, places = gradient.reshape(-1, gradient.shape[-1]), tokens.reshape(-1)
    if padding >= 0:
        rows = rows * (places != padding).unsqueeze(1)
    if other.device.type == "cpu":
        return other.index_add_(0, places, rows)
    # Elsewhere sums of several rows would come in any order.
    return other.index_put_((places,), rows, accumulate=True)


@rule(embedding_backward_added)
def over_other(node: fx.Node) -> Iterator[Variant]:
    """Over the other gradient: as autograd does it, or row by row."""
    args: Any = node.args
    other, gradient, tokens, _, padding, scaled = args
    if fits_over(other, node):
        yield Variant("in place", embedding_backward_added_, node.args, overwrites=other)
        if not scaled:
            yield Variant(
                "rows in place",
                rows_added_,
                (other, gradient, tokens, padding),
                exact=False,
                optimization=Optimization.INPLACE,
                overwrites=other,
            )
