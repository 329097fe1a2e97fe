"""Ways to run a linear layer with cross-entropy, and its backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from explorer.graph import Optimization, When
from explorer.operators import linear_cross_entropy as ways
from explorer.operators.registry import Variant, rule, value_of

_PARTS = (4, 16, 64)
_LEAST_ROWS = 8
_IN_PARTS: dict[str, Any] = {"exact": False, "optimization": Optimization.CONVOLUTION}


@rule(ways.linear_cross_entropy)
def forward_ways(node: fx.Node) -> Iterator[Variant]:
    """Whole, or only what is no larger than the rows, in parts."""
    *_, target, plan = node.args
    assert isinstance(plan, ways.Plan)
    losses, made = tuple(range(plan.losses)), tuple(range(plan.kept, len(value_of(node))))
    if not plan.half_to_float and plan.last_computed not in plan.saved:
        yield Variant(
            "in place", ways.over_logits, node.args, tuple(range(plan.kept)), optimization=Optimization.INPLACE
        )
    for parts in _counts(target):
        args = (*node.args, parts)
        yield Variant(f"loss alone, in {parts} parts", ways.loss_alone, args, losses, When.FIRST, **_IN_PARTS)
        if made:
            name = f"with gradients, in {parts} parts"
            yield Variant(name, ways.with_gradients, args, (*losses, *made), When.FIRST, **_IN_PARTS)


@rule(ways.linear_cross_entropy_backward)
def backward_ways(node: fx.Node) -> Iterator[Variant]:
    """In parts, from the log-probabilities or from the layer's source; or little is left to do.

    The call has the layer's bias and the gradients made before behind what PyTorch's own way reads.
    """
    *whole, bias, made = node.args
    *of_loss, source, weight, class_weight, target, log_probabilities, _, plan = whole
    assert isinstance(plan, ways.Plan)
    assert isinstance(log_probabilities, fx.Node)
    for parts in _counts(target):
        yield Variant(f"in {parts} parts", ways.in_parts, (*whole, parts), **_IN_PARTS)
        if plan.dtype is None and all(x.moves for x in plan.backward):
            yield Variant(
                f"in {parts} parts, in place",
                ways.over_log_probabilities,
                (*whole, parts),
                optimization=Optimization.INPLACE,
                overwrites=log_probabilities,
            )
        again = (*of_loss, source, weight, bias, class_weight, target, plan, parts)
        yield Variant(f"logits again, in {parts} parts", ways.logits_again, again, **_IN_PARTS)
    if made:
        assert isinstance(made, tuple | list)
        largest = max(made, key=lambda x: value_of(x).numel())
        args = (of_loss[0], *made)
        yield Variant("made before", ways.gradients_made_before, args, overwrites=largest, **_IN_PARTS)


def _counts(target: Any) -> Iterator[int]:
    rows = len(value_of(target))
    return (x for x in _PARTS if rows >= _LEAST_ROWS * x)
