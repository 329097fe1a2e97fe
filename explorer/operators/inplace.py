"""Results in the memory of an argument that nobody needs afterwards (MONeT appendix C.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators import writing
from explorer.operators.registry import Variant, all_arguments, fits_over, rule, value_of

aten = torch.ops.aten
ACCUMULATES = "explorer.accumulates"
"""In the notes of a sum that autograd makes in place, of gradients: that way is always to be had."""

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

# The same computation of whole rows, into a given tensor: each row is read before it is written.
_INTO: dict[Any, Any] = {
    aten._softmax.default: aten._softmax.out,
    aten._log_softmax.default: aten._log_softmax.out,
    aten._softmax_backward_data.default: aten._softmax_backward_data.out,
    aten._log_softmax_backward_data.default: aten._log_softmax_backward_data.out,
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

# Writes to part of the first argument. Eager mode makes them in place, where the trace has a new tensor: these ways are
# always to be had, whatever optimizations are chosen.
_WRITTEN_OVER: dict[Any, Any] = {
    writing.written: writing.written_over,
    aten.slice_scatter.default: writing.slice_written_over,
    aten.select_scatter.default: writing.select_written_over,
    aten.diagonal_scatter.default: writing.diagonal_written_over,
    aten.as_strided_scatter.default: writing.strided_written_over,
    aten.copy.default: aten.copy_.default,
    aten.fill.Scalar: aten.fill_.Scalar,
    aten.fill.Tensor: aten.fill_.Tensor,
    aten.scatter.src: aten.scatter_.src,
    aten.scatter.value: aten.scatter_.value,
    aten.scatter.reduce: aten.scatter_.reduce,
    aten.scatter.value_reduce: aten.scatter_.value_reduce,
    aten.scatter_add.default: aten.scatter_add_.default,
    aten.scatter_reduce.two: aten.scatter_reduce_.two,
    aten.index_put.default: aten.index_put_.default,
    aten.index_add.default: aten.index_add_.default,
    aten.index_copy.default: aten.index_copy_.default,
    aten.index_fill.int_Scalar: aten.index_fill_.int_Scalar,
    aten.index_fill.int_Tensor: aten.index_fill_.int_Tensor,
    aten.index_reduce.default: aten.index_reduce_.default,
    aten.masked_fill.Scalar: aten.masked_fill_.Scalar,
    aten.masked_fill.Tensor: aten.masked_fill_.Tensor,
    aten.masked_scatter.default: aten.masked_scatter_.default,
}


def in_place_call(target: Any) -> tuple[Any, str | None] | None:
    """The same computation over its first argument, and under which name that is given again, if it has to be."""
    if target in _OVER_FIRST:
        return _OVER_FIRST[target], None
    return (_OVER_GRADIENT[target], "grad_input") if target in _OVER_GRADIENT else None


@rule(*_WRITTEN_OVER)
def written_over(node: fx.Node) -> Iterator[Variant]:
    """What is written elsewhere stays as it was."""
    base, *others = node.args
    read: list[Any] = []
    fx.map_arg((others, node.kwargs), read.append)
    # What is read while it is written must be another tensor: these do not go element by element.
    if isinstance(base, fx.Node) and base not in read and fits_over(base, node):
        yield Variant("in place", _WRITTEN_OVER[node.target], node.args, kwargs=dict(node.kwargs), overwrites=base)


@rule(*_OVER_FIRST)
def over_first(node: fx.Node) -> Iterator[Variant]:
    """Element by element, so reading and writing one memory does no harm."""
    source = all_arguments(node)[0]
    if fits_over(source, node):
        yield _as_noted(node, _in_place("in place", _OVER_FIRST[node.target], node.args, source, node.kwargs))


@rule(aten.add.Tensor, aten.mul.Tensor)
def over_second(node: fx.Node) -> Iterator[Variant]:
    """Sums and products do not depend on the order of their two arguments."""
    first, second, *_ = all_arguments(node)
    if not node.kwargs and isinstance(first, fx.Node) and first is not second and fits_over(second, node):
        yield _as_noted(node, _in_place("in place of second", _OVER_FIRST[node.target], (second, first), second, {}))


@rule(aten._safe_softmax.default)
def safe_softmax_over_source(node: fx.Node) -> Iterator[Variant]:
    """Softmax that is 0 where all is masked, over its source."""
    source, dim, dtype = all_arguments(node)
    if fits_over(source, node) and dtype in (None, value_of(source).dtype):
        yield _in_place("in place", safe_softmax_, (source, dim), source, {})


def safe_softmax_(source: torch.Tensor, dim: int) -> torch.Tensor:
    """``_safe_softmax`` over its source."""
    masked = source.amax(dim, keepdim=True).eq(-torch.inf)
    return aten._softmax.out(source, dim, False, out=source).masked_fill_(masked, 0)


@rule(*_OVER_GRADIENT)
def over_gradient(node: fx.Node) -> Iterator[Variant]:
    """The gradient of the result becomes the gradient of the source."""
    gradient = all_arguments(node)[0]
    if fits_over(gradient, node):
        kwargs = {**node.kwargs, "grad_input": gradient}
        yield _in_place("in place", _OVER_GRADIENT[node.target], node.args, gradient, kwargs)


@rule(*_INTO)
def over_rows(node: fx.Node) -> Iterator[Variant]:
    """Row by row over the source, or over the incoming gradient."""
    source, into = all_arguments(node)[0], _INTO[node.target]
    if fits_over(source, node):
        (result,) = (x.name for x in into._schema.arguments if x.is_out)
        yield _in_place("in place", into, node.args, source, {**node.kwargs, result: source})


def _as_noted(node: fx.Node, variant: Variant) -> Variant:
    return replace(variant, optimization=None) if node.meta.get(ACCUMULATES) else variant


def _in_place(name: str, target: Any, args: tuple[Any, ...], over: Any, kwargs: dict[str, Any]) -> Variant:
    return Variant(name, target, args, kwargs=dict(kwargs), optimization=Optimization.INPLACE, overwrites=over)
