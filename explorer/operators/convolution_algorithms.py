"""Algorithms for convolutions: the same sums with another workspace and another time.

Each algorithm computes the forward pass, the weight gradient and the input gradient, or some of them. Those here are
for the CPU. What a device's library offers plugs in through ``register``, as ``cudnn_algorithms`` does: nothing else
knows algorithms by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch

aten = torch.ops.aten

Sizes = Sequence[int]


@dataclass(frozen=True)
class Geometry:
    """A convolution without its tensors' values.

    Attributes:
        source: shape of the input.
        weight: shape of the weight.
        stride: one entry per spatial dimension.
        padding: likewise.
        dilation: likewise.
        transposed: is it a transposed convolution?
        output_padding: of a transposed one.
        groups: into how many its channels are split.
        dtype: of all tensors.
        device: ``"cpu"`` or ``"cuda"``.
    """

    source: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    transposed: bool
    output_padding: tuple[int, ...]
    groups: int
    dtype: torch.dtype
    device: str

    @property
    def dimensions(self) -> int:
        """How many spatial dimensions."""
        return len(self.stride)

    @property
    def plain(self) -> bool:
        """One group, not transposed."""
        return self.groups == 1 and not self.transposed

    @property
    def is_matmul(self) -> bool:
        """Is every output pixel the product of the weight with one input pixel?"""
        ones = (1,) * self.dimensions
        return self.plain and self.weight[2:] == ones == tuple(self.stride) and not any(self.padding)


@dataclass(frozen=True)
class Algorithm:
    """One way to convolve.

    Results are contiguous. ``geometry`` is stride, padding, dilation, transposed, output padding and groups, as ATen
    wants them.

    Attributes:
        name: unique.
        fits: is it of any use for a geometry?
        forward: ``forward(source, weight, bias, *geometry)`` gives the output.
        weight_gradient: ``weight_gradient(gradient, source, weight_shape, *geometry)`` gives the weight's.
        input_gradient: ``input_gradient(gradient, weight, source_shape, *geometry)`` gives the input's.
    """

    name: str
    fits: Callable[[Geometry], bool]
    forward: Callable[..., torch.Tensor] | None = None
    weight_gradient: Callable[..., torch.Tensor] | None = None
    input_gradient: Callable[..., torch.Tensor] | None = None


_ALGORITHMS: dict[str, Algorithm] = {}


def register(algorithm: Algorithm) -> None:
    """Offer an algorithm wherever it fits."""
    _ALGORITHMS[algorithm.name] = algorithm


def algorithm_called(name: str) -> Algorithm:
    """The registered algorithm."""
    return _ALGORITHMS[name]


def algorithms_for(geometry: Geometry) -> list[Algorithm]:
    """Those that fit, in the order of their registration."""
    return [x for x in _ALGORITHMS.values() if x.fits(geometry)]


def stand_in(shape: Sizes, strides: Sizes | None, *there: torch.Tensor) -> torch.Tensor:
    """A tensor of which a kernel reads the shape and the layout, not the values.

    It lies over the memory of another argument, for kernels want it as large as it looks: one element expanded, they
    copy. Where none of ``there`` is large enough, it is memory of its own.
    """
    if strides is None:
        strides = _contiguous_strides(shape)
    wanted = _span(shape, strides)
    for tensor in there:
        if wanted <= _span(tensor.shape, tensor.stride()):
            return tensor.as_strided(shape, strides, tensor.storage_offset())
    return there[0].new_empty_strided(shape, strides)


def _span(shape: Sizes, strides: Sizes) -> int:
    """Elements from the first to the last of a tensor that is not empty."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _contiguous_strides(shape: Sizes) -> list[int]:
    """Of a tensor in PyTorch's default layout."""
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * max(1, size))
    return strides


def own_weight_gradient(gradient: torch.Tensor, source: torch.Tensor, shape: Sizes, *geometry: Any) -> torch.Tensor:
    """PyTorch's own kernel."""
    weight = stand_in(shape, None, source, gradient)
    return aten.convolution_backward.default(gradient, source, weight, None, *geometry, [False, True, False])[1]


def own_input_gradient(gradient: torch.Tensor, weight: torch.Tensor, shape: Sizes, *geometry: Any) -> torch.Tensor:
    """PyTorch's own kernel."""
    source = stand_in(shape, None, gradient, weight)
    return aten.convolution_backward.default(gradient, source, weight, None, *geometry, [True, False, False])[0]


def _pixels_last(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the channels of a pixel side by side."""
    return tensor.contiguous(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)


def _channels_first(tensor: torch.Tensor) -> torch.Tensor:
    """In PyTorch's usual layout, dimensions of size 1 included."""
    return tensor.contiguous().view(-1).view(tensor.shape)


def channels_last(
    source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any
) -> torch.Tensor:
    """Through copies with the channels of a pixel side by side."""
    return _channels_first(aten.convolution.default(_pixels_last(source), _pixels_last(weight), bias, *geometry))


def channels_last_weight_gradient(
    gradient: torch.Tensor, source: torch.Tensor, shape: Sizes, *geometry: Any
) -> torch.Tensor:
    """Likewise."""
    return _channels_first(own_weight_gradient(_pixels_last(gradient), _pixels_last(source), shape, *geometry))


def channels_last_input_gradient(
    gradient: torch.Tensor, weight: torch.Tensor, shape: Sizes, *geometry: Any
) -> torch.Tensor:
    """Likewise."""
    return _channels_first(own_input_gradient(_pixels_last(gradient), _pixels_last(weight), shape, *geometry))


def chunks(
    source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any, size: int
) -> torch.Tensor:
    """A few samples at a time."""
    result = None
    for part in _parts(source.shape[0], size):
        one = aten.convolution.default(source[part], weight, bias, *geometry)
        if result is None:
            result = one.new_empty((source.shape[0], *one.shape[1:]))
        result[part] = one
    assert result is not None
    return result


def chunks_weight_gradient(
    gradient: torch.Tensor, source: torch.Tensor, shape: Sizes, *geometry: Any, size: int
) -> torch.Tensor:
    """Added up from a few samples at a time."""
    total = None
    for part in _parts(source.shape[0], size):
        one = own_weight_gradient(gradient[part], source[part], shape, *geometry)
        total = one if total is None else total.add_(one)
    assert total is not None
    return total


def chunks_input_gradient(
    gradient: torch.Tensor, weight: torch.Tensor, shape: Sizes, *geometry: Any, size: int
) -> torch.Tensor:
    """A few samples at a time."""
    result = gradient.new_empty(shape)
    for part in _parts(shape[0], size):
        some = gradient[part]
        result[part] = own_input_gradient(some, weight, (len(some), *shape[1:]), *geometry)
    return result


def _parts(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))


def matmul(source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *_geometry: Any) -> torch.Tensor:
    """A product of matrices for each sample, written where it belongs."""
    result = source.new_empty((source.shape[0], weight.shape[0], *source.shape[2:]))
    matrix = weight.flatten(1)
    for one, made in zip(source.flatten(2), result.flatten(2), strict=True):
        if bias is None:
            torch.mm(matrix, one, out=made)
        else:
            torch.addmm(bias.view(-1, 1), matrix, one, out=made)
    return result


def matmul_weight_gradient(gradient: torch.Tensor, source: torch.Tensor, shape: Sizes, *_geometry: Any) -> torch.Tensor:
    """Added up sample by sample."""
    total = source.new_empty((shape[0], shape[1]))
    for number, (one, seen) in enumerate(zip(gradient.flatten(2), source.flatten(2), strict=True)):
        total.addmm_(one, seen.t(), beta=1 if number else 0)
    return total.view(shape)


def matmul_input_gradient(gradient: torch.Tensor, weight: torch.Tensor, shape: Sizes, *_geometry: Any) -> torch.Tensor:
    """A product of matrices for each sample."""
    result = gradient.new_empty(shape)
    matrix = weight.flatten(1).t()
    for one, made in zip(gradient.flatten(2), result.flatten(2), strict=True):
        torch.mm(matrix, one, out=made)
    return result


def im2col(source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any) -> torch.Tensor:
    """Every window as a column, all samples at once, then one product of matrices."""
    stride, padding, *_ = geometry
    return aten._slow_conv2d_forward.default(source, weight, weight.shape[2:], bias, stride, padding)


def im2col_weight_gradient(gradient: torch.Tensor, source: torch.Tensor, shape: Sizes, *geometry: Any) -> torch.Tensor:
    """Likewise."""
    stride, padding, *_ = geometry
    weight = source.new_empty(1).expand(shape)
    kernel = aten._slow_conv2d_backward.output_mask
    return kernel(gradient, source, weight, shape[2:], stride, padding, [False, True, False])[1]


def im2col_input_gradient(gradient: torch.Tensor, weight: torch.Tensor, shape: Sizes, *geometry: Any) -> torch.Tensor:
    """Likewise."""
    stride, padding, *_ = geometry
    source = gradient.new_empty(1).expand(shape)
    kernel = aten._slow_conv2d_backward.output_mask
    return kernel(gradient, source, weight, weight.shape[2:], stride, padding, [True, False, False])[0]


def dilated(source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any) -> torch.Tensor:
    """Windows as columns, one sample at a time."""
    stride, padding, dilation, *_ = geometry
    kernel = aten.slow_conv_dilated2d if source.dim() == 4 else aten.slow_conv_dilated3d
    return kernel.default(source, weight, weight.shape[2:], bias, stride, padding, dilation)


def dilated_weight_gradient(gradient: torch.Tensor, source: torch.Tensor, shape: Sizes, *geometry: Any) -> torch.Tensor:
    """Likewise, for images."""
    stride, padding, dilation, *_ = geometry
    total = source.new_empty((shape[0], prod(shape[1:])))
    for number, (one, seen) in enumerate(zip(gradient.flatten(2), source, strict=True)):
        columns = aten.im2col.default(seen, shape[2:], dilation, padding, stride)
        total.addmm_(one, columns.t(), beta=1 if number else 0)
    return total.view(shape)


def dilated_input_gradient(gradient: torch.Tensor, weight: torch.Tensor, shape: Sizes, *geometry: Any) -> torch.Tensor:
    """Likewise, for images."""
    stride, padding, dilation, *_ = geometry
    result = gradient.new_empty(shape)
    matrix = weight.flatten(1).t()
    for one, made in zip(gradient.flatten(2), result, strict=True):
        made.copy_(aten.col2im.default(matrix.mm(one), shape[2:], weight.shape[2:], dilation, padding, stride))
    return result


def _has_windows(geometry: Geometry) -> bool:
    return (
        geometry.device == "cpu"
        and geometry.plain
        and not geometry.is_matmul
        and geometry.dtype in (torch.float32, torch.float64)
    )


def _has_safe_channels_last(geometry: Geometry) -> bool:
    """Not for single pixels far apart: oneDNN's weight gradient is wrong now and then for them (PyTorch 2.13)."""
    apart = set(geometry.weight[2:]) == {1} and set(geometry.stride) != {1}
    return geometry.device == "cpu" and geometry.dimensions in (2, 3) and not apart


def _divides(size: int, geometry: Geometry) -> bool:
    return geometry.device == "cpu" and geometry.source[0] > size and geometry.source[0] % size == 0


register(
    Algorithm(
        "channels last",
        _has_safe_channels_last,
        channels_last,
        channels_last_weight_gradient,
        channels_last_input_gradient,
    )
)
for _size in (4, 1):
    register(
        Algorithm(
            f"chunks of {_size}",
            partial(_divides, _size),
            partial(chunks, size=_size),
            partial(chunks_weight_gradient, size=_size),
            partial(chunks_input_gradient, size=_size),
        )
    )
register(
    Algorithm(
        "matmul", lambda x: x.device == "cpu" and x.is_matmul, matmul, matmul_weight_gradient, matmul_input_gradient
    ),
)
register(
    Algorithm(
        "im2col",
        lambda x: x.dimensions == 2 and _has_windows(x) and set(x.dilation) == {1},
        im2col,
        im2col_weight_gradient,
        im2col_input_gradient,
    )
)
register(
    Algorithm(
        "dilated",
        lambda x: x.dimensions == 2 and _has_windows(x),
        dilated,
        dilated_weight_gradient,
        dilated_input_gradient,
    )
)
register(Algorithm("dilated volumes", lambda x: x.dimensions == 3 and _has_windows(x), dilated))
