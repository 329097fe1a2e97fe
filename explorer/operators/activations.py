"""Activations: backward from the output, or from one bit for each element."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators import bits
from explorer.operators.registry import (
    Variant,
    all_arguments,
    auxiliary,
    fits_over,
    forward_call,
    is_dense,
    layout_of,
    rule,
)

aten = torch.ops.aten


@rule(aten.threshold_backward.default)
def relu_from_mask(node: fx.Node) -> Iterator[Variant]:
    """ReLU: its gradient goes through where the output is not ≤ 0; so does a NaN's."""
    gradient, output, limit = all_arguments(node)
    if not isinstance(output, fx.Node) or output.target is not aten.relu.default or limit != 0:
        return
    if layout_of(output) == layout_of(node) and is_dense(output):
        mask = auxiliary(output, "mask", relu_mask, output)
        yield from _from_mask(node, gradient, mask)


@rule(aten.hardtanh_backward.default)
def hardtanh_from_mask(node: fx.Node) -> Iterator[Variant]:
    """Hardtanh and ReLU6: the gradient goes through where the output lies between the limits."""
    gradient, source, *limits = all_arguments(node)
    output = forward_call(source, aten.hardtanh.default, limits)
    if output is None:
        return
    yield from _from_output(node, aten.hardtanh_backward, (gradient, output, *limits))
    if layout_of(output) == layout_of(node) and is_dense(output):
        mask = auxiliary(output, "mask", hardtanh_mask, output, *limits)
        yield from _from_mask(node, gradient, mask)


def _from_output(node: fx.Node, kernel: Any, args: tuple[Any, ...]) -> Iterator[Variant]:
    """PyTorch's own kernel, which gets the output for the input; its result may take the gradient's memory."""
    gradient, output = args[0], Optimization.OUTPUT
    yield Variant("from output", kernel.default, args, optimization=output)
    if fits_over(gradient, node):
        kwargs = {"grad_input": gradient}
        yield Variant(
            "from output, in place", kernel.grad_input, args, kwargs=kwargs, optimization=output, overwrites=gradient
        )


def _from_mask(node: fx.Node, gradient: object, mask: fx.Node) -> Iterator[Variant]:
    assert isinstance(gradient, fx.Node)
    if layout_of(gradient) != layout_of(node) or not is_dense(gradient):
        return
    intermediate = Optimization.INTERMEDIATE
    yield Variant("from mask", select_by_mask, (gradient, mask), optimization=intermediate)
    yield Variant(
        "from mask, in place", select_by_mask_, (gradient, mask), optimization=intermediate, overwrites=gradient
    )


def relu_mask(output: torch.Tensor) -> torch.Tensor:
    """One bit for each element of a ReLU's output: does its gradient go through?"""
    return bits.pack(output, lambda x: x.le(0)).bitwise_not_()


def hardtanh_mask(output: torch.Tensor, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    """One bit for each element of a hardtanh's output: does its gradient go through?

    That of a NaN does on CUDA and does not on the CPU, as with PyTorch's own kernels.
    """
    if output.device.type == "cpu":
        return bits.pack(output, lambda x: x.gt(low).logical_and_(x.lt(high)))
    return bits.pack(output, lambda x: x.le(low).logical_or_(x.ge(high))).bitwise_not_()


def select_by_mask(gradient: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The gradient where it goes through, 0 elsewhere."""
    return bits.select(gradient, mask, torch.empty_like(gradient))


def select_by_mask_(gradient: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``select_by_mask`` over the gradient."""
    return bits.select(gradient, mask, gradient)


@rule(aten.leaky_relu_backward.default)
def leaky_relu_from_output(node: fx.Node) -> Iterator[Variant]:
    """A positive slope keeps the sign, so the output tells as much as the input."""
    gradient, source, slope, _ = all_arguments(node)
    output = forward_call(source, aten.leaky_relu.default, [slope])
    if output is None or slope <= 0:
        return
    yield from _from_output(node, aten.leaky_relu_backward, (gradient, output, slope, True))
