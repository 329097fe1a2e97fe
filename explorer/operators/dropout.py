"""Dropout: drawn once, recomputed from its kept mask."""

from __future__ import annotations

import operator

import torch
from torch import fx

from explorer.graph import When
from explorer.operators.registry import DEFAULT, Variant, rule

aten = torch.ops.aten


@rule(aten.native_dropout.default)
def variants(node: fx.Node) -> tuple[Variant, ...]:
    """First run: the captured call. Recomputation: the same product from the mask that the first run drew."""
    source, probability, *_ = node.args
    assert callable(node.target)
    assert isinstance(probability, float | int)
    first = Variant(DEFAULT, node.target, node.args, (0, 1), when=When.FIRST)
    mask = next((user for user in node.users if user.target is operator.getitem and user.args[1] == 1), None)
    if mask is None:
        return (first,)
    scale = 0.0 if probability == 1 else 1.0 / (1.0 - probability)
    return (first, Variant("from mask", dropout_from_mask, (source, mask, scale), (0,), when=When.AGAIN))


def dropout_from_mask(source: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``source * mask * scale`` in the order of PyTorch's own kernel, so that the bits are the same."""
    return source.mul(mask).mul_(scale)
