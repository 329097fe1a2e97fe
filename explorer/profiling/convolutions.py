"""Convolutions on a device that is not here: PyTorch's own, and by cuDNN's families of algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import torch

from explorer.device_profile import Cost
from explorer.operators.convolution_algorithms import Geometry
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.operators.cudnn_plans import OWN
from explorer.profiling.convolution_costs import Part, Sizes, convolution_cost, family_workspace_bytes
from explorer.profiling.convolution_workspace import legacy_workspace_bytes, own_workspace_bytes
from explorer.profiling.devices import DeviceSpec
from explorer.profiling.rates import Family, KernelWork, time_ms

_MIB = 2**20
_PRECOMPUTED_BYTES = 16 * _MIB
_WINOGRAD_BYTES = 64 * _MIB
_TILED_BYTES = 512 * _MIB
"""The most that a plan of these families takes (``cudnn_plans.FILTERS``)."""
_HOPPER = 9.0
"""From this compute capability on cuDNN 9 has no plan by Winograd."""
_READ_FORWARD = {Part.FORWARD: (0, 1)}
_READ_BACKWARD = {Part.INPUT_GRADIENT: (2, 1), Part.WEIGHT_GRADIENT: (2, 0)}
"""Of input, weight and output."""
_PIXELS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True, slots=True)
class Precisions:
    """In what float32 products are computed.

    Attributes:
        matmul: ``"float32"`` or ``"tf32"``.
        convolution: likewise.
    """

    matmul: str
    convolution: str


class Plans(Protocol):
    """What is known of cuDNN's plans for the device."""

    def workspace_bytes(
        self,
        family: str,
        part: Part,
        geometry: Geometry,
        result: tuple[int, ...],
        *,
        precision: str,
        channels_last: bool = False,
    ) -> int | None:
        """Of the plan that a family runs, or with ``cudnn_plans.OWN`` PyTorch by itself; None where there is none."""
        ...


class Convolutions:
    """What convolutions cost on one device."""

    def __init__(self, spec: DeviceSpec, precisions: Precisions, plans: Plans | None = None) -> None:
        """For a device, products of float32 in ``precisions``, and where known what cuDNN plans for it."""
        self.spec = spec
        self.precisions = precisions
        self.plans = plans

    def own(
        self,
        source: torch.Tensor,
        weight: torch.Tensor,
        outside: torch.Tensor,
        settings: Sequence[Any],
        wanted: Sequence[bool] | None,
    ) -> Cost:
        """What PyTorch's own call costs, without what it does to a bias.

        Args:
            source: input.
            weight: of the convolution.
            outside: its output, or the gradient of that.
            settings: stride, padding, dilation, transposed, output padding, groups.
            wanted: the gradients that are; None is the forward pass.
        """
        geometry = geometry_of(source, weight, *settings)
        last = _are_channels_last(source, weight)
        parts = _READ_FORWARD if wanted is None else _READ_BACKWARD
        costs: list[Cost] = []
        for (part, reads), asked in zip(parts.items(), wanted or (True,), strict=False):
            if asked:
                cost = self.part(part, geometry, tuple(outside.shape), channels_last=last)
                copies = sum(_copied_bytes((source, weight, outside)[x], channels_last=last) for x in reads)
                costs.append(replace(cost, workspace_bytes=cost.workspace_bytes + copies))
        return Cost(sum(x.time_ms for x in costs), max((x.workspace_bytes for x in costs), default=0))

    def part(self, part: Part, geometry: Geometry, result: tuple[int, ...], *, channels_last: bool = False) -> Cost:
        """By PyTorch's own choice: as long as GEMM with a table, and the workspace of what cuDNN may name first."""
        if geometry.groups > 1 and geometry.groups == geometry.source[1]:
            return _depthwise(part, geometry, result, self.spec)
        precision = self.precision(geometry.dtype)
        cost = convolution_cost(Algorithms.PRECOMPUTED, part, geometry, result, spec=self.spec, precision=precision)
        planned = None
        if self.plans is not None:
            planned = self.plans.workspace_bytes(
                OWN, part, geometry, result, precision=precision, channels_last=channels_last
            )
        if planned is None:
            planned = own_workspace_bytes(
                part, geometry, result, spec=self.spec, precision=precision, channels_last=channels_last
            )
        elif precision == "float32":
            planned = max(planned, legacy_workspace_bytes(part, geometry, result))
        cost = _with_at_least(cost, planned)
        if precision == "float32" and part is Part.WEIGHT_GRADIENT and self.spec.compute_capability >= _HOPPER:
            cost = self._by_winograd(cost, geometry, result)
        return cost

    def _by_winograd(self, cost: Cost, geometry: Geometry, result: tuple[int, ...]) -> Cost:
        """On an H200 that is what cuDNN names first for every window of 3×3, and much quicker than GEMM."""
        part = Part.WEIGHT_GRADIENT
        if not legacy_workspace_bytes(part, geometry, result):
            return cost
        family = Algorithms.WINOGRAD_NOT_FUSED
        by_it = convolution_cost(family, part, geometry, result, spec=self.spec, precision="float32")
        return replace(cost, time_ms=min(cost.time_ms, by_it.time_ms))

    def family(self, family: Algorithms, part: Part, geometry: Geometry, result: tuple[int, ...]) -> Cost:
        """By a family of cuDNN's algorithms, or what stands in where cuDNN 9 has no plan of it; on the safe side."""
        own = self.part(part, geometry, result)
        sizes = Sizes.of(part, geometry, result)
        if part is Part.INPUT_GRADIENT and sizes.source_bytes > max(sizes.result_bytes, sizes.weight_bytes):
            # PyTorch's own call wants to see an input, of which it reads the shape.
            own = _with_at_least(own, own.workspace_bytes + sizes.source_bytes)
        if part is Part.WEIGHT_GRADIENT and sizes.weight_bytes > max(sizes.result_bytes, sizes.source_bytes):
            own = _with_at_least(own, own.workspace_bytes + sizes.weight_bytes)  # likewise a weight
        precision = self.precision(geometry.dtype)
        modelled = convolution_cost(family, part, geometry, result, spec=self.spec, precision=precision)
        if self.plans is not None:
            planned = self.plans.workspace_bytes(family.value, part, geometry, result, precision=precision)
            return own if planned is None else replace(modelled, workspace_bytes=planned)
        transforms = family in (Algorithms.WINOGRAD, Algorithms.WINOGRAD_NOT_FUSED)
        if family is Algorithms.EXPLICIT or (transforms and self.spec.compute_capability >= _HOPPER):
            return own  # without a limit cuDNN's first plan is PyTorch's
        if family is Algorithms.IMPLICIT:
            return modelled
        if family is Algorithms.PRECOMPUTED:
            return _with_at_least(modelled, min(_PRECOMPUTED_BYTES, own.workspace_bytes))
        if family is Algorithms.WINOGRAD and modelled.workspace_bytes < _WINOGRAD_BYTES - _MIB:
            return _with_at_least(modelled, modelled.workspace_bytes + _MIB)  # channels are filled up
        return _with_at_least(modelled, max(own.workspace_bytes, _other_fft_bytes(sizes) if "FFT" in family else 0))

    def precision(self, dtype: torch.dtype) -> str:
        """Of a convolution's products."""
        return {torch.float16: "float16", torch.bfloat16: "bfloat16"}.get(dtype, self.precisions.convolution)


def _other_fft_bytes(sizes: Sizes) -> int:
    """Its filter may let through plans of another kind of FFT."""
    whole = family_workspace_bytes(Algorithms.FFT, sizes)
    return max(family_workspace_bytes(Algorithms.FFT_TILING, sizes), whole if whole <= _TILED_BYTES else 0)


def _with_at_least(cost: Cost, workspace_bytes: int) -> Cost:
    return replace(cost, workspace_bytes=max(cost.workspace_bytes, workspace_bytes))


_DEPTHWISE = {Part.FORWARD: 0.058, Part.INPUT_GRADIENT: 0.033, Part.WEIGHT_GRADIENT: 0.029}
"""Of what ordinary cores get done, by an H200: most of the work is to find out where a window's places are."""


def _depthwise(part: Part, geometry: Geometry, result: tuple[int, ...], spec: DeviceSpec) -> Cost:
    """PyTorch's own kernels for one channel a group: every place of a window is read for itself."""
    size = geometry.dtype.itemsize
    moved = (prod(geometry.source) + prod(result)) * size
    places = prod(geometry.source) if part is Part.INPUT_GRADIENT else prod(result)
    flops = 2.0 * places * prod(geometry.weight[1:]) / _DEPTHWISE[part]
    kernels = 2 if part is Part.WEIGHT_GRADIENT else 1
    return Cost(time_ms(KernelWork(Family.DEPTHWISE, flops, moved, kernels=kernels), spec), 0)


def geometry_of(source: torch.Tensor, weight: torch.Tensor, *settings: Any) -> Geometry:
    """Of a convolution of ATen on a CUDA device."""
    stride, padding, dilation, transposed, output_padding, groups = settings
    count = len(stride)
    return Geometry(
        source=tuple(source.shape),
        weight=tuple(weight.shape),
        stride=tuple(stride),
        padding=tuple(padding) * (count // len(padding)),
        dilation=tuple(dilation),
        transposed=transposed,
        output_padding=tuple(output_padding),
        groups=groups,
        dtype=source.dtype,
        device="cuda",
    )


def _are_channels_last(source: torch.Tensor, weight: torch.Tensor) -> bool:
    """Does PyTorch run a convolution with the channels of a pixel side by side?"""
    layout = _PIXELS.get(source.dim())
    return layout is not None and any(
        x.is_contiguous(memory_format=layout) and not x.is_contiguous() for x in (source, weight)
    )


def _copied_bytes(tensor: torch.Tensor, *, channels_last: bool) -> int:
    """PyTorch copies what is not laid out as the convolution is run."""
    layout = _PIXELS[tensor.dim()] if channels_last else torch.contiguous_format
    return 0 if tensor.is_contiguous(memory_format=layout) else tensor.numel() * tensor.element_size()
