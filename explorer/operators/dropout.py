"""Dropout: drawn once; its mask as truth values (a byte each) or as bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import fx

from explorer.graph import Optimization, When
from explorer.operators import bits
from explorer.operators.registry import (
    Variant,
    all_arguments,
    auxiliary,
    device_kind,
    fits_over,
    is_dense,
    layout_of,
    origin,
    output_of,
    rule,
    value_of,
)

aten = torch.ops.aten


@rule(aten.native_dropout.default)
def forward(node: fx.Node) -> Iterator[Variant]:
    """A first run draws the mask; a recomputation multiplies by the mask that was drawn."""
    source, probability, training = all_arguments(node)
    mask, result = output_of(node, 1), output_of(node, 0)
    if mask is None or result is None or not training:
        return
    scale = dropout_scale(probability, source)
    args, again = (source, mask, scale), When.AGAIN
    yield Variant("from mask", dropout_from_mask, args, (0,), when=again)
    if fits_over(source, result):
        inplace = Optimization.INPLACE
        yield Variant(
            "from mask, in place", dropout_from_mask_, args, (0,), when=again, optimization=inplace, overwrites=source
        )
        if device_kind(value_of(source).device) == "cpu":
            # On CUDA one kernel draws and multiplies; drawing as here would give other random numbers.
            drawn = (source, probability, scale)
            yield Variant("in place", dropout_, drawn, when=When.FIRST, optimization=inplace, overwrites=source)


@rule(aten.native_dropout_backward.default)
def backward(node: fx.Node) -> Iterator[Variant]:
    """The gradient times the mask, or times its bits."""
    gradient, mask, scale = all_arguments(node)
    if fits_over(gradient, node):
        yield Variant(
            "in place",
            dropout_from_mask_,
            (gradient, mask, scale),
            optimization=Optimization.INPLACE,
            overwrites=gradient,
        )
    drawn = origin(mask)
    bits_of_mask = _bits(mask, node) if drawn.target is aten.native_dropout.default else None
    if bits_of_mask is None or layout_of(gradient) != layout_of(node) or not is_dense(gradient):
        return
    args, intermediate = (gradient, bits_of_mask, scale), Optimization.INTERMEDIATE
    yield Variant("from bits", dropout_from_bits, args, optimization=intermediate)
    yield Variant("from bits, in place", dropout_from_bits_, args, optimization=intermediate, overwrites=gradient)


@rule(aten.mul.Tensor)
def product_with_noise(node: fx.Node) -> Iterator[Variant]:
    """Dropout over its input, captured as a product with noise ``bernoulli(1 − p) / (1 − p)``, forward and backward."""
    source, noise = all_arguments(node)
    if not isinstance(noise, fx.Node) or noise.target is not aten.div.Scalar or not isinstance(source, fx.Node):
        return
    drawn, kept = all_arguments(noise)
    plain = drawn.target is aten.bernoulli.p and layout_of(source) == layout_of(noise) == layout_of(node)
    if plain and is_dense(source) and is_dense(noise):
        scale = dropout_scale(1.0 - kept, source, rounded=True)
        args = (source, auxiliary(noise, "bits", noise_bits, noise), scale)
        intermediate = Optimization.INTERMEDIATE
        yield Variant("from bits", dropout_from_bits, args, optimization=intermediate)
        yield Variant("from bits, in place", dropout_from_bits_, args, optimization=intermediate, overwrites=source)


def dropout_scale(probability: float, source: fx.Node, *, rounded: bool = False) -> float:
    """What is kept is multiplied by this.

    Rounded to the source's dtype on the CPU, as eager mode's noise is, and on CUDA where it is noise (``rounded``);
    CUDA's kernel divides in the precision that it calculates with: float32, float64 for float64.
    """
    if probability == 1:
        return 0.0
    dtype = value_of(source).dtype
    if device_kind(value_of(source).device) == "cpu":
        return torch.ones((), dtype=dtype).div(1.0 - probability).item()
    precise = np.float64 if dtype == torch.float64 else np.float32
    scale = float(precise(1) / precise(1.0 - probability))
    return torch.tensor(scale, dtype=dtype).item() if rounded else scale


def noise_bits(noise: torch.Tensor) -> torch.Tensor:
    """One bit for each number: is it not 0?"""
    return bits.pack(noise, lambda x: x.ne(0))


def _bits(mask: fx.Node, like: fx.Node) -> fx.Node | None:
    """The mask as bits, where it lies in memory like the tensor that it is for."""
    shape, strides, _ = layout_of(mask)
    if (shape, strides) != layout_of(like)[:2] or not is_dense(mask) or not is_dense(like):
        return None
    return auxiliary(mask, "bits", mask_bits, mask)


def mask_bits(mask: torch.Tensor) -> torch.Tensor:
    """One bit for each truth value."""
    return bits.pack(mask, lambda x: x)


def dropout_(source: torch.Tensor, probability: float, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """``native_dropout`` over its source: the same random numbers and the same products."""
    mask = torch.empty_like(source, dtype=torch.bool).bernoulli_(1 - probability)
    return dropout_from_mask_(source, mask, scale), mask


def dropout_of_eager(source: torch.Tensor, probability: float, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """``native_dropout`` with a scale that is rounded as eager mode's noise: for p = 0.15 the last bits differ."""
    mask = torch.empty_like(source, dtype=torch.bool).bernoulli_(1 - probability)
    return dropout_from_mask(source, mask, scale), mask


def dropout_from_mask(source: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``source * mask * scale`` in the order of PyTorch's own kernel, so that the bits are the same."""
    return bits.multiply_by_truth(source, mask, torch.empty_like(source)).mul_(scale)


def dropout_from_mask_(source: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``dropout_from_mask`` over its source; or over the gradient, for which the same product is wanted."""
    return bits.multiply_by_truth(source, mask, source).mul_(scale)


def dropout_from_bits(source: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``dropout_from_mask`` from bits."""
    return bits.multiply(source, mask, torch.empty_like(source)).mul_(scale)


def dropout_from_bits_(source: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``dropout_from_bits`` over its source."""
    return bits.multiply(source, mask, source).mul_(scale)
