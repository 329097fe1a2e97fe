"""Families of cuDNN's convolution algorithms, for CUDA: the same sums with another workspace and another time.

Besides, PyTorch's own choice in parts of the batch: where a kernel wants the channels of a pixel side by side, as those
for TF32 and half precision do, its workspace is a copy of all that it reads and writes, and follows the part.

Which families are offered depends on the geometry alone, so that the same model has the same implementations on every
GPU, with a GPU or without. What a family runs is cuDNN's business: see ``cudnn_plans``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

import torch

from explorer.operators import cudnn_plans
from explorer.operators.convolution_algorithms import (
    Algorithm,
    Geometry,
    Sizes,
    chunks,
    chunks_input_gradient,
    chunks_weight_gradient,
    own_input_gradient,
    own_weight_gradient,
    register,
)

aten = torch.ops.aten
_LARGEST_PLANE = 256
_LARGEST_WINDOW = 32


class Algorithms(StrEnum):
    """The families, by the names that their implementations have."""

    IMPLICIT = "implicit GEMM"
    PRECOMPUTED = "precomputed GEMM"
    EXPLICIT = "explicit GEMM"
    FFT = "FFT"
    FFT_TILING = "FFT tiling"
    WINOGRAD = "Winograd"
    WINOGRAD_NOT_FUSED = "Winograd, not fused"


PARTS = (4, 16)
"""Of the batch, for PyTorch's own choice."""


def _is_product(geometry: Geometry) -> bool:
    return geometry.device == "cuda" and geometry.plain and geometry.dimensions in (2, 3) and _is_known(geometry.dtype)


def _is_known(dtype: torch.dtype) -> bool:
    return dtype in (torch.float32, torch.float16, torch.bfloat16)


def _is_plane(geometry: Geometry) -> bool:
    """Stride and dilation 1, and a window: what the fast algorithms are made for."""
    apart = (*geometry.stride, *geometry.dilation)
    window = geometry.weight[2:]
    fast = _is_product(geometry) and geometry.dtype is not torch.bfloat16
    return fast and geometry.dimensions == 2 and set(apart) == {1} and max(window) > 1


def _is_small(geometry: Geometry) -> bool:
    sides = zip(geometry.source[2:], geometry.padding, strict=True)
    return all(side + 2 * padding <= _LARGEST_PLANE for side, padding in sides)


def _fits_fft(geometry: Geometry) -> bool:
    return _is_plane(geometry) and max(geometry.weight[2:]) <= _LARGEST_WINDOW and _is_small(geometry)


def _fits_fft_tiling(geometry: Geometry) -> bool:
    return _is_plane(geometry) and max(geometry.weight[2:]) <= _LARGEST_WINDOW


def _fits_winograd(geometry: Geometry) -> bool:
    return _is_plane(geometry) and geometry.weight[2:] == (3, 3)


def _fits_explicit(geometry: Geometry) -> bool:
    return _is_product(geometry) and geometry.dimensions == 2


def _forward(
    source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any, family: Algorithms
) -> torch.Tensor:
    plan = cudnn_plans.plan("forward", family.value, source, weight, source.shape, geometry)
    if plan is None:
        return aten.convolution.default(source, weight, bias, *geometry)
    result = plan(source, weight)
    return result if bias is None else result.add_(bias.view(1, -1, *(1 for _ in geometry[0])))


def _weight_gradient(
    gradient: torch.Tensor, source: torch.Tensor, shape: Sizes, *geometry: Any, family: Algorithms
) -> torch.Tensor:
    plan = cudnn_plans.plan("weight gradient", family.value, gradient, source, shape, geometry)
    return own_weight_gradient(gradient, source, shape, *geometry) if plan is None else plan(gradient, source)


def _input_gradient(
    gradient: torch.Tensor, weight: torch.Tensor, shape: Sizes, *geometry: Any, family: Algorithms
) -> torch.Tensor:
    plan = cudnn_plans.plan("input gradient", family.value, gradient, weight, shape, geometry)
    return own_input_gradient(gradient, weight, shape, *geometry) if plan is None else plan(gradient, weight)


def _offer(family: Algorithms, fits: Callable[[Geometry], bool], *, weight: bool = True, source: bool = True) -> None:
    register(
        Algorithm(
            family.value,
            fits,
            partial(_forward, family=family),
            partial(_weight_gradient, family=family) if weight else None,
            partial(_input_gradient, family=family) if source else None,
        )
    )


_offer(Algorithms.IMPLICIT, _is_product)
_offer(Algorithms.PRECOMPUTED, _is_product)
_offer(Algorithms.EXPLICIT, _fits_explicit, weight=False, source=False)
_offer(Algorithms.FFT, _fits_fft)
_offer(Algorithms.FFT_TILING, _fits_fft_tiling, weight=False)
_offer(Algorithms.WINOGRAD, _fits_winograd, weight=False)
_offer(Algorithms.WINOGRAD_NOT_FUSED, _fits_winograd)


def in_parts(count: int) -> str:
    """What PyTorch's own choice in so many parts of the batch is called."""
    return f"in {count} parts"


def _has_parts(count: int, geometry: Geometry) -> bool:
    return _is_product(geometry) and geometry.source[0] >= count


def _forward_in_parts(source: torch.Tensor, *args: Any, count: int) -> torch.Tensor:
    return chunks(source, *args, size=_size(source, count))


def _weight_gradient_in_parts(gradient: torch.Tensor, *args: Any, count: int) -> torch.Tensor:
    return chunks_weight_gradient(gradient, *args, size=_size(gradient, count))


def _input_gradient_in_parts(gradient: torch.Tensor, *args: Any, count: int) -> torch.Tensor:
    return chunks_input_gradient(gradient, *args, size=_size(gradient, count))


def _size(batch: torch.Tensor, count: int) -> int:
    return -(-len(batch) // count)


for _count in PARTS:
    register(
        Algorithm(
            in_parts(_count),
            partial(_has_parts, _count),
            partial(_forward_in_parts, count=_count),
            partial(_weight_gradient_in_parts, count=_count),
            partial(_input_gradient_in_parts, count=_count),
        )
    )
