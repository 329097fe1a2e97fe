"""Batch normalisation's backward pass over the incoming gradient.

PyTorch's kernel holds the source, the gradient and the result at once: three tensors of a layer's size, and often that
is what sets the smallest feasible budget. Here the gradient becomes the result, piece by piece (MONeT appendix C.3 has
this for activations): with n the normalised input, ``(g − mean(g) − n · mean(g · n)) · w / σ``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import starmap
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.normalisation import by_channel, forward_of_batch_norm, from_output_variant
from explorer.operators.registry import (
    Variant,
    all_arguments,
    fits_over,
    is_precise,
    layout_of,
    output_of,
    rule,
    value_of,
)

aten = torch.ops.aten
_KERNEL = aten.native_batch_norm_backward.default
_PIECES = 32
_LEAST_PIECES = 8
"""With fewer the piece that is worked on would take as much memory as is saved."""


@rule(_KERNEL)
def over_gradient(node: fx.Node) -> Iterator[Variant]:
    """From the source as PyTorch does, and from the output."""
    gradient, source, *_ = arguments = all_arguments(node)
    weight, scale, wanted = arguments[2], arguments[6], arguments[9]
    forward, result = forward_of_batch_norm(node), output_of(node, 0)
    if forward is None or result is None or not fits_over(gradient, result) or layout_of(source) != layout_of(result):
        return
    if _axis(value_of(result)) is None or not is_precise(*(x for x in arguments if isinstance(x, fx.Node))):
        return
    yield Variant(
        "in place",
        batch_norm_backward_,
        tuple(arguments),
        exact=False,
        optimization=Optimization.INPLACE,
        overwrites=gradient,
    )
    output, bias = output_of(forward, 0), all_arguments(forward)[2]
    if output is not None and layout_of(output) == layout_of(source):
        args = (gradient, output, weight, bias, scale, wanted)
        target = batch_norm_backward_from_output_
        yield from from_output_variant(target, args, (weight, bias), over=gradient)


def batch_norm_backward_(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    _running_mean: torch.Tensor | None,
    _running_variance: torch.Tensor | None,
    mean: torch.Tensor,
    scale: torch.Tensor,
    _training: bool,  # noqa: FBT001
    epsilon: float,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """PyTorch's own sums, and the gradient of the source in place of that of the result."""
    sums = _KERNEL(gradient, source, weight, None, None, mean, scale, True, epsilon, [False, True, True])[1:]
    factor = scale if weight is None else scale * weight
    _finish(gradient, source, (mean, scale), sums, factor)
    return _results(gradient, sums, wanted)


def batch_norm_backward_from_output_(
    gradient: torch.Tensor,
    output: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    scale: torch.Tensor,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """The same from the output, whose normalised input has mean ``bias`` and deviation ``weight``."""
    mean = torch.zeros_like(scale) if bias is None else bias
    factor = torch.ones_like(scale) if weight is None else weight.reciprocal()
    totals = [torch.zeros_like(scale), torch.zeros_like(scale)]
    for part, of, *channels in _in_pieces(gradient, output, mean, factor, *totals):
        piece_mean, piece_factor, *sums = (x.flatten() for x in channels)
        found = _KERNEL(part, of, None, None, None, piece_mean, piece_factor, True, 0.0, [False, True, True])
        for total, amount in zip(sums, found[1:], strict=True):
            total.add_(amount)
    _finish(gradient, output, (mean, factor), totals, scale if weight is None else scale * weight)
    return _results(gradient, totals, wanted)


def _finish(
    gradient: torch.Tensor,
    source: torch.Tensor,
    normalise: tuple[torch.Tensor, torch.Tensor],
    sums: Sequence[torch.Tensor],
    factor: torch.Tensor,
) -> None:
    """Turn the gradient of the result into that of the source, which ``(source − mean) · scale`` normalises."""
    mean, scale = normalise
    count = gradient.numel() // mean.numel()
    slope, offset = (x / count for x in sums)
    for part, of, piece_mean, piece_slope, piece_offset, piece_factor in _in_pieces(
        gradient, source, mean, slope * scale, offset, factor
    ):
        fitted = torch.sub(of, piece_mean).mul_(piece_slope).add_(piece_offset)
        part.sub_(fitted).mul_(piece_factor)


def _in_pieces(
    gradient: torch.Tensor, source: torch.Tensor, *channels: torch.Tensor
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Pieces of gradient and source, and what belongs to their channels, in a shape that goes with them."""
    axis = _axis(gradient)
    assert axis is not None, "not offered"
    size = -(-gradient.size(axis) // _PIECES)
    parts = gradient.split(size, axis), source.split(size, axis)
    placed = [by_channel(x, gradient) for x in channels]
    if axis == 0:
        return ((*pair, *placed) for pair in zip(*parts, strict=True))
    return zip(*parts, *(x.split(size, 0) for x in placed), strict=True)


def _axis(like: torch.Tensor) -> int | None:
    """Samples if there are enough, else channels if those lie one after the other."""
    if like.size(0) >= _LEAST_PIECES:
        return 0
    return 1 if like.size(1) >= _LEAST_PIECES and like.is_contiguous() else None


def _results(gradient: torch.Tensor, sums: Sequence[torch.Tensor], wanted: Sequence[bool]) -> tuple[Any, ...]:
    return tuple(starmap(lambda x, asked: x if asked else None, zip((gradient, *sums), wanted, strict=True)))
