"""Batch normalisation in training: running statistics change once, in the first run only."""

from __future__ import annotations

import torch
from torch import fx

from explorer.graph import When
from explorer.operators.registry import DEFAULT, Variant, rule

aten = torch.ops.aten


@rule(aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default)
def variants(node: fx.Node) -> tuple[Variant, ...]:
    """First run: as captured, updating the running statistics. Recomputation: leaves them alone, same bits."""
    source, weight, bias, _mean, _variance, training, momentum, epsilon = node.args
    assert callable(node.target)
    assert training, "without training there is nothing to update, and another operator is captured"
    again = aten._native_batch_norm_legit.no_stats
    return (
        Variant(DEFAULT, node.target, node.args, when=When.FIRST),
        Variant("no statistics", again, (source, weight, bias, True, momentum, epsilon), (0, 1, 2), when=When.AGAIN),
    )
