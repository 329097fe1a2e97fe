"""Max-pooling: by pixels; backward from the indices alone, or from one byte that tells the place within each window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.registry import (
    Variant,
    all_arguments,
    auxiliary,
    device_kind,
    is_dense,
    output_of,
    rule,
    value_of,
)

aten = torch.ops.aten
_POSITIONS = 255
_SAMPLES = 4  # copied at a time: few enough to stay in a cache
_ALGORITHM = Optimization.CONVOLUTION
_INTO = {
    2: aten.max_pool2d_with_indices_backward.grad_input,
    3: aten.max_pool3d_with_indices_backward.grad_input,
}


@dataclass(frozen=True)
class Window:
    """Geometry of a pooling: one entry per spatial dimension of the input and of the window."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]


@rule(aten.max_pool2d_with_indices.default)
def forward(node: fx.Node) -> Iterator[Variant]:
    """On a CPU PyTorch's kernel for pixels computes many channels at a time, the one for planes one place at a time."""
    source = value_of(all_arguments(node)[0])
    results = [value_of(x) for x in (output_of(node, 0), output_of(node, 1)) if x is not None]
    planes = all(x.dim() == 4 and x.is_contiguous() for x in (source, *results))
    if planes and device_kind(source.device) == "cpu" and source.shape[1] > 1:
        yield Variant("channels last", max_pool_by_pixels, tuple(all_arguments(node)), optimization=_ALGORITHM)


def max_pool_by_pixels(source: torch.Tensor, *geometry: object) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's own kernel on copies of a few samples, with the channels of a pixel side by side.

    Returns:
        Values and indices, contiguous: the same bits as from the planes.
    """
    values = indices = torch.empty(0)
    for first in range(0, source.shape[0], _SAMPLES):
        some = slice(first, first + _SAMPLES)
        pixels = source[some].contiguous(memory_format=torch.channels_last)
        found, places = aten.max_pool2d_with_indices.default(pixels, *geometry)
        if not first:
            shape = (source.shape[0], *found.shape[1:])
            values, indices = found.new_empty(shape), places.new_empty(shape)
        values[some], indices[some] = found, places
    return values, indices


@rule(aten.max_pool2d_with_indices_backward.default, aten.max_pool3d_with_indices_backward.default)
def alternatives(node: fx.Node) -> Iterator[Variant]:
    """Of its input the backward operator needs the shape alone; PyTorch's own keeps the values alive all the same."""
    gradient, source, kernel, stride, padding, dilation, ceil_mode, indices = all_arguments(node)
    result = value_of(node)
    dimensions = len(kernel)
    stride = stride or kernel
    places = (list(result.shape), list(result.stride()))
    geometry = (list(kernel), list(stride), list(padding), list(dilation), ceil_mode)
    intermediate = Optimization.INTERMEDIATE
    yield Variant(
        "from indices", max_pool_from_indices, (gradient, indices, *places, *geometry), optimization=intermediate
    )
    # Offsets are made and read sample by sample; a lone sample, without a batch dimension, has none to go through.
    if prod(kernel) > _POSITIONS or not is_dense(indices) or len(result.shape) != dimensions + 2:
        return
    size = list(value_of(source).shape[-dimensions:])
    offsets = auxiliary(indices, "offsets", window_offsets, indices, size, *geometry[:4])
    yield Variant(
        "from offsets", max_pool_from_offsets, (gradient, offsets, *places, *geometry), optimization=intermediate
    )


def max_pool_from_indices(
    gradient: torch.Tensor,
    indices: torch.Tensor,
    shape: Sequence[int],
    strides: Sequence[int],
    *geometry: object,
) -> torch.Tensor:
    """PyTorch's own kernel; for its input, of which it reads the shape, stands the result."""
    result = torch.empty_strided(shape, strides, dtype=gradient.dtype, device=gradient.device)
    kernel = geometry[0]
    assert isinstance(kernel, Sequence)
    _INTO[len(kernel)](gradient, result, *geometry, indices, grad_input=result)
    return result


def max_pool_from_offsets(
    gradient: torch.Tensor,
    offsets: torch.Tensor,
    shape: Sequence[int],
    strides: Sequence[int],
    *geometry: object,
) -> torch.Tensor:
    """As ``max_pool_from_indices``, sample by sample, so that the indices of one sample exist at a time."""
    result = torch.empty_strided(shape, strides, dtype=gradient.dtype, device=gradient.device)
    kernel, stride, padding, dilation = (_sizes(x) for x in geometry[:4])
    window = Window(tuple(shape[2:]), kernel, stride, padding, dilation)
    backward = _INTO[len(kernel)]
    for sample in range(shape[0]):
        one = slice(sample, sample + 1)
        indices = window_indices(offsets[one], window)
        backward(gradient[one], result[one], *geometry, indices, grad_input=result[one])
    return result


def window_offsets(
    indices: torch.Tensor,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """For each index into a plane of the input: which place of its window it is, counted row by row.

    Args:
        indices: of a max-pooling.
        size: of the input's plane (or volume).
        kernel: of the pooling, as all that follows.
        stride: in places of the input.
        padding: on each side.
        dilation: distance between places of a window.
    """
    window = Window(*(tuple(x) for x in (size, kernel, stride, padding, dilation)))
    offsets = torch.empty_like(indices, dtype=torch.uint8)
    for sample in range(indices.shape[0]):
        rest, place, steps = indices[sample], torch.zeros_like(indices[sample]), 1
        for axis in reversed(range(len(kernel))):
            along = rest.remainder(window.size[axis]).sub_(_starts(window, axis, indices))
            place.add_(along.div_(window.dilation[axis], rounding_mode="trunc"), alpha=steps)
            rest = rest.div(window.size[axis], rounding_mode="trunc")
            steps *= window.kernel[axis]
        offsets[sample] = place
    return offsets


def nominal_offsets(indices: torch.Tensor, *_geometry: Sequence[int]) -> torch.Tensor:
    """A tensor of the layout that ``window_offsets`` returns, without computing it."""
    return torch.empty_like(indices, dtype=torch.uint8)


window_offsets.nominal = nominal_offsets  # type: ignore[attr-defined]  # thousands of calls, for a layout that is known


def window_indices(offsets: torch.Tensor, window: Window) -> torch.Tensor:
    """The inverse of ``window_offsets``."""
    table = torch.tensor(_flat_places(window), dtype=torch.int64, device=offsets.device)
    return table[offsets.to(torch.int32)].add_(_flat_starts(window, offsets))


def _flat_places(window: Window) -> list[int]:
    """Distance in memory of each place of a window from the window's first."""
    steps = [prod(window.size[axis + 1 :]) * window.dilation[axis] for axis in range(len(window.kernel))]
    return [
        sum(step * x for step, x in zip(steps, place, strict=True))
        for place in product(*(range(n) for n in window.kernel))
    ]


def _flat_starts(window: Window, like: torch.Tensor) -> torch.Tensor:
    """Index of each window's first place (outside the plane where there is padding), in the shape of a plane."""
    total = torch.zeros((), dtype=torch.int64, device=like.device)
    for axis in range(len(window.kernel)):
        total = total + _starts(window, axis, like) * prod(window.size[axis + 1 :])
    return total


def _starts(window: Window, axis: int, like: torch.Tensor) -> torch.Tensor:
    """Coordinate along ``axis`` of each window's first place, broadcastable to a plane of the output."""
    dimensions = len(window.kernel)
    count = like.shape[axis - dimensions]
    stop = count * window.stride[axis] - window.padding[axis]
    starts = torch.arange(-window.padding[axis], stop, window.stride[axis], device=like.device)
    return starts.view(-1, *(1 for _ in range(dimensions - 1 - axis)))


def _sizes(value: object) -> tuple[int, ...]:
    assert isinstance(value, Sequence)
    return tuple(int(x) for x in value)
