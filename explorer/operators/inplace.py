"""Results in the memory of an argument that nobody needs afterwards (MONeT appendix C.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.registry import Variant, all_arguments, fits_over, rule

aten = torch.ops.aten

# The same computation over its first argument.
_OVER_FIRST: dict[Any, Any] = {
    aten.relu.default: aten.relu_.default,
    aten.leaky_relu.default: aten.leaky_relu_.default,
    aten.hardtanh.default: aten.hardtanh_.default,
    aten.hardswish.default: aten.hardswish_.default,
    aten.sigmoid.default: aten.sigmoid_.default,
    aten.tanh.default: aten.tanh_.default,
    aten.add.Tensor: aten.add_.Tensor,
    aten.add.Scalar: aten.add_.Scalar,
    aten.sub.Tensor: aten.sub_.Tensor,
    aten.mul.Tensor: aten.mul_.Tensor,
    aten.mul.Scalar: aten.mul_.Scalar,
    aten.div.Tensor: aten.div_.Tensor,
    aten.div.Scalar: aten.div_.Scalar,
}

# Backward operators that may write where they read the incoming gradient, their first argument.
_OVER_GRADIENT: dict[Any, Any] = {
    aten.threshold_backward.default: aten.threshold_backward.grad_input,
    aten.leaky_relu_backward.default: aten.leaky_relu_backward.grad_input,
    aten.hardtanh_backward.default: aten.hardtanh_backward.grad_input,
    aten.sigmoid_backward.default: aten.sigmoid_backward.grad_input,
    aten.tanh_backward.default: aten.tanh_backward.grad_input,
    aten.gelu_backward.default: aten.gelu_backward.grad_input,
    aten.silu_backward.default: aten.silu_backward.grad_input,
}


@rule(*_OVER_FIRST)
def over_first(node: fx.Node) -> Iterator[Variant]:
    """Element by element, so reading and writing one memory does no harm."""
    source = all_arguments(node)[0]
    if fits_over(source, node):
        yield _in_place("in place", _OVER_FIRST[node.target], node.args, source, node.kwargs)


@rule(aten.add.Tensor, aten.mul.Tensor)
def over_second(node: fx.Node) -> Iterator[Variant]:
    """Sums and products do not depend on the order of their two arguments."""
    first, second, *_ = all_arguments(node)
    if not node.kwargs and isinstance(first, fx.Node) and first is not second and fits_over(second, node):
        yield _in_place("in place of second", _OVER_FIRST[node.target], (second, first), second, {})


@rule(*_OVER_GRADIENT)
def over_gradient(node: fx.Node) -> Iterator[Variant]:
    """The gradient of the result becomes the gradient of the source."""
    gradient = all_arguments(node)[0]
    if fits_over(gradient, node):
        kwargs = {**node.kwargs, "grad_input": gradient}
        yield _in_place("in place", _OVER_GRADIENT[node.target], node.args, gradient, kwargs)


def _in_place(name: str, target: Any, args: tuple[Any, ...], over: Any, kwargs: dict[str, Any]) -> Variant:
    return Variant(name, target, args, kwargs=dict(kwargs), optimization=Optimization.INPLACE, overwrites=over)
