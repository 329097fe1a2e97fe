"""Batch normalisation's backward pass over the incoming gradient, a few channels at a time.

PyTorch's kernel holds the source, the gradient and the result at once: three tensors of a layer's size, and often that
is what sets the smallest feasible budget. Channels do not depend on one another, so the same kernel for some of them
after the other gives the same bits, and each result can go where its gradient was (MONeT appendix C.3 has this for
activations).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.normalisation import (
    batch_norm_backward_from_output,
    forward_of_batch_norm,
    from_output_variant,
)
from explorer.operators.registry import (
    Variant,
    all_arguments,
    device_kind,
    fits_over,
    layout_of,
    output_of,
    rule,
    value_of,
)

aten = torch.ops.aten
_KERNEL = aten.native_batch_norm_backward.default
_PIECES = (8, 32)
"""At least and at most: with fewer the piece that is worked on would take much of the memory that is saved."""
_PIECE_BYTES = 2**18


@rule(_KERNEL)
def over_gradient(node: fx.Node) -> Iterator[Variant]:
    """From the source as PyTorch does, and from the output."""
    gradient, source, *_ = arguments = all_arguments(node)
    forward, result = forward_of_batch_norm(node), output_of(node, 0)
    if forward is None or result is None or not fits_over(gradient, result) or layout_of(source) != layout_of(result):
        return
    if value_of(result).size(1) < _PIECES[0] or not value_of(result).is_contiguous():
        return
    yield Variant(
        "in place",
        batch_norm_backward_,
        tuple(arguments),
        exact=_channels_apart(value_of(result)),
        optimization=Optimization.INPLACE,
        overwrites=gradient,
    )
    output, bias = output_of(forward, 0), all_arguments(forward)[2]
    if output is not None and layout_of(output) == layout_of(source):
        weight, scale, wanted = arguments[2], arguments[6], arguments[9]
        args = (gradient, output, weight, bias, scale, wanted)
        yield from from_output_variant(batch_norm_backward_from_output_, args, (weight, bias), over=gradient)


def _channels_apart(tensor: torch.Tensor) -> bool:
    """Are a channel's bits the same whatever other channels there are?

    Not known of other devices, and not so where neighbours in memory are neighbouring channels (rows, pictures of one
    pixel): that kernel works on several channels at once, and on those that are left over in another way.
    """
    neighbours = tensor.stride(1) == 1 or (tensor.dim() in (4, 5) and _in_channels_last(tensor))
    return device_kind(tensor.device) == "cpu" and not neighbours


def _in_channels_last(tensor: torch.Tensor) -> bool:
    layout = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
    return tensor.is_contiguous(memory_format=layout)


def batch_norm_backward_(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    _running_mean: torch.Tensor | None,
    _running_variance: torch.Tensor | None,
    mean: torch.Tensor,
    scale: torch.Tensor,
    training: bool,  # noqa: FBT001  (the arguments of PyTorch's own)
    epsilon: float,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """PyTorch's own kernel; the gradient of the source in place of that of the result."""

    def some(part: torch.Tensor, of: torch.Tensor, *channels: torch.Tensor | None) -> tuple[Any, ...]:
        part_weight, part_mean, part_scale = channels
        return _KERNEL(part, of, part_weight, None, None, part_mean, part_scale, training, epsilon, list(wanted))

    return _piece_by_piece(some, gradient, source, weight, mean, scale)


def batch_norm_backward_from_output_(
    gradient: torch.Tensor,
    output: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    scale: torch.Tensor,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """``batch_norm_backward_from_output`` over the gradient."""

    def some(part: torch.Tensor, of: torch.Tensor, *channels: torch.Tensor | None) -> tuple[Any, ...]:
        part_weight, part_bias, part_scale = channels
        assert part_scale is not None
        return batch_norm_backward_from_output(part, of, part_weight, part_bias, part_scale, wanted)

    return _piece_by_piece(some, gradient, output, weight, bias, scale)


def _piece_by_piece(
    some: Callable[..., tuple[Any, ...]],
    gradient: torch.Tensor,
    source: torch.Tensor,
    *channels: torch.Tensor | None,
) -> tuple[Any, ...]:
    """Call ``some`` for pieces of all arguments, one after the other, and gather what it returns."""
    wanted = gradient.numel() * gradient.element_size() // _PIECE_BYTES
    size = -(-gradient.size(1) // min(max(wanted, _PIECES[0]), _PIECES[1]))
    parts = gradient.split(size, 1)
    along = [[None] * len(parts) if x is None else x.split(size) for x in channels]
    sums: list[tuple[Any, ...]] = []
    for part, of, *some_channels in zip(parts, source.split(size, 1), *along, strict=True):
        result, *rest = some(part.contiguous(), of.contiguous(), *some_channels)
        part.copy_(result)
        sums.append(tuple(rest))
    return gradient, *(None if found[0] is None else torch.cat(found) for found in zip(*sums, strict=True))
