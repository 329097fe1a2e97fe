"""Workspace and time of cuDNN's families of convolution algorithms, from shapes alone.

Workspaces follow from what each algorithm has to store. Times add up the products and the bytes of an algorithm's
passes. Sources: Chetlur et al., *cuDNN* (2014), for GEMM; Lavin and Gray, *Fast algorithms for convolutional neural
networks* (2016), for Winograd; Mathieu et al., *Fast training of convolutional networks through FFTs* (2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, log2, prod

from explorer.device_profile import Cost
from explorer.operators.convolution_algorithms import Geometry
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.profiling.devices import DeviceSpec
from explorer.profiling.rates import Family, KernelWork, time_ms

_TILE = 128
_HALF_TILE = 64
_COMPLEX_BYTES = 8
_FFT_TILE = 32
_WINOGRAD_OUTPUT, _WINOGRAD_TRANSFORM = 4, 36
_FUSED_WEIGHT_TRANSFORM = 25
_TABLE_OF_VOLUMES = 2**18
"""The most that a table for a volume was seen to have besides."""
_SPLIT = 1.2
"""Weight gradients have few rows and columns: the inner dimension is split over the device and added up afterwards."""


class Part(StrEnum):
    """Which of a convolution's three products."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"


@dataclass(frozen=True, slots=True)
class Sizes:
    """A convolution in numbers.

    Attributes:
        part: which product.
        samples: batch size.
        inputs: channels in.
        outputs: channels out.
        source: places of the input's plane.
        result: places of the output's plane.
        window: places of the kernel.
        stride: product of the strides.
        groups: of channels.
        element_bytes: of the tensors.
    """

    part: Part
    samples: int
    inputs: int
    outputs: int
    source: tuple[int, ...]
    result: tuple[int, ...]
    window: tuple[int, ...]
    stride: int
    groups: int
    element_bytes: int

    @classmethod
    def of(cls, part: Part, geometry: Geometry, result: tuple[int, ...]) -> Sizes:
        """Of a convolution whose output has the shape ``result``; a transposed one is another's input gradient."""
        samples, inputs, *source = geometry.source
        outputs, planes = result[1], result[2:]
        if geometry.transposed:
            swapped = {Part.FORWARD: Part.INPUT_GRADIENT, Part.INPUT_GRADIENT: Part.FORWARD}
            part, inputs, outputs, source, planes = swapped.get(part, part), outputs, inputs, list(planes), source
        return cls(
            part=part,
            samples=samples,
            inputs=inputs,
            outputs=outputs,
            source=tuple(source),
            result=tuple(planes),
            window=tuple(geometry.weight[2:]),
            stride=prod(geometry.stride),
            groups=geometry.groups,
            element_bytes=geometry.dtype.itemsize,
        )

    @property
    def source_bytes(self) -> int:
        """Of the input."""
        return self.samples * self.inputs * prod(self.source) * self.element_bytes

    @property
    def result_bytes(self) -> int:
        """Of the output."""
        return self.samples * self.outputs * prod(self.result) * self.element_bytes

    @property
    def weight_bytes(self) -> int:
        """Of the weight."""
        return self.outputs * self.inputs // self.groups * prod(self.window) * self.element_bytes

    @property
    def channels(self) -> tuple[int, int]:
        """In and out."""
        return self.inputs, self.outputs


def convolution_cost(
    algorithm: str, part: Part, geometry: Geometry, result: tuple[int, ...], *, spec: DeviceSpec, precision: str
) -> Cost:
    """Time and workspace of one part of a convolution by a family of algorithms.

    Args:
        algorithm: a name of ``Algorithms``.
        part: which product.
        geometry: of the convolution.
        result: shape of its output.
        spec: the device.
        precision: in which products of GEMM's families are computed; others compute in float32.
    """
    sizes = Sizes.of(part, geometry, result)
    family = Algorithms(algorithm)
    model = {
        Algorithms.IMPLICIT: _implicit,
        Algorithms.PRECOMPUTED: _precomputed,
        Algorithms.EXPLICIT: _explicit,
        Algorithms.FFT: _fft,
        Algorithms.FFT_TILING: _fft_tiling,
        Algorithms.WINOGRAD: _winograd,
        Algorithms.WINOGRAD_NOT_FUSED: _winograd_not_fused,
    }[family]
    return Cost(model(sizes, spec, precision), family_workspace_bytes(family, sizes))


def family_workspace_bytes(algorithm: Algorithms, sizes: Sizes) -> int:
    """What a family of algorithms has to store beside the tensors of one part of a convolution."""
    model = {
        Algorithms.PRECOMPUTED: _table_bytes,
        Algorithms.EXPLICIT: _columns_bytes,
        Algorithms.FFT: _fft_bytes,
        Algorithms.FFT_TILING: _fft_tiling_bytes,
        Algorithms.WINOGRAD: lambda x: _FUSED_WEIGHT_TRANSFORM * 4 * prod(x.channels),
        Algorithms.WINOGRAD_NOT_FUSED: lambda x: sum(_winograd_transforms_bytes(x)),
    }.get(algorithm)
    return 0 if model is None else model(sizes)


def _table_bytes(sizes: Sizes) -> int:
    if sizes.part is Part.WEIGHT_GRADIENT:
        return 0
    if len(sizes.window) < 3:
        return 6 * prod(sizes.result)
    return 6 * max(prod(sizes.source), prod(sizes.result)) * sizes.window[0] + _TABLE_OF_VOLUMES


def _columns_bytes(sizes: Sizes) -> int:
    return sizes.samples * prod(sizes.result) * sizes.inputs * prod(sizes.window) * sizes.element_bytes


def _fft_tiling_bytes(sizes: Sizes) -> int:
    return _bins(_FFT_TILE) * _COMPLEX_BYTES * (prod(sizes.channels) + sum(sizes.channels) * _tiles(sizes)[1])


def _winograd_transforms_bytes(sizes: Sizes) -> tuple[int, int]:
    """Of input and output, and of the weight."""
    tiles = sizes.samples * prod(ceil(x / _WINOGRAD_OUTPUT) for x in sizes.result)
    each = 4 * _WINOGRAD_TRANSFORM
    return each * tiles * sum(sizes.channels), each * prod(sizes.channels)


def _bins(side: int) -> int:
    """Frequencies of a real plane."""
    return side * (side // 2 + 1)


def _side(sizes: Sizes) -> int:
    """Of a whole plane, filled up to a power of two."""
    return 2 ** ceil(log2(max(x + k - 1 for x, k in zip(sizes.result, sizes.window, strict=True)) or 1))


def _tiles(sizes: Sizes) -> tuple[int, int]:
    """How many tiles of FFT a plane has, and how many planes' tiles are transformed together."""
    tiles = prod(ceil(x / (_FFT_TILE + 1 - k)) for x, k in zip(sizes.result, sizes.window, strict=True))
    return tiles, sizes.samples * min(2, tiles)


def _fft_bytes(sizes: Sizes) -> int:
    """Spectra; of a weight's gradient (as an H200 has it) those of one side twice, and a copy of the gradient."""
    spectra = _bins(_side(sizes)) * _COMPLEX_BYTES
    weights, ends = prod(sizes.channels), sum(sizes.channels) * sizes.samples
    if sizes.part is Part.WEIGHT_GRADIENT:
        return 2 * spectra * max(ends, weights) + sizes.result_bytes
    return spectra * (2 * weights + ends) + sizes.weight_bytes


def _tensors_bytes(sizes: Sizes) -> int:
    return sizes.source_bytes + sizes.result_bytes + sizes.weight_bytes


def _padded(amount: float, tile: int) -> int:
    return ceil(amount / tile) * tile


def _product(sizes: Sizes, *, tile: int, fill: int) -> float:
    """Operations of the part as a product of matrices.

    Rows and columns are padded to tiles; ``fill`` is what the inner dimension loses to the start and the end of a tile.
    """
    inner_in, inner_out = sizes.inputs // sizes.groups, sizes.outputs // sizes.groups
    window, places = prod(sizes.window), prod(sizes.result)
    if sizes.part is Part.FORWARD:
        rows, columns, inner = sizes.samples * places, inner_out, inner_in * window
    elif sizes.part is Part.INPUT_GRADIENT:
        # Written for every place of the input: all windows' places are gone through, those between strides in vain.
        rows, columns, inner = sizes.samples * prod(sizes.source), inner_in, inner_out * window
        inner = max(inner_out, inner / sizes.stride**0.5)
    else:
        rows, columns, inner = inner_out, inner_in * window, sizes.samples * places
    if sizes.part is Part.WEIGHT_GRADIENT:
        padded = _padded(rows, min(tile, _HALF_TILE)) * _padded(columns, tile)
    else:
        padded = _padded(rows, tile) * _padded(columns, tile)
    return 2.0 * padded * (inner + fill) * sizes.groups


def _gemm(sizes: Sizes, spec: DeviceSpec, precision: str, *, tile: int, fill: int, slower: float = 1.0) -> float:
    if sizes.part is Part.WEIGHT_GRADIENT:
        slower *= _SPLIT
    flops = _product(sizes, tile=tile, fill=fill) * slower
    return time_ms(KernelWork(Family.CONVOLUTION, flops, _tensors_bytes(sizes), precision), spec)


def _implicit(sizes: Sizes, spec: DeviceSpec, precision: str) -> float:
    """Windows are looked up while the product runs; wide tiles, indices computed over and over."""
    return _gemm(sizes, spec, precision, tile=_TILE, fill=40, slower=1.2)


def _precomputed(sizes: Sizes, spec: DeviceSpec, precision: str) -> float:
    """The same with a table of where each place's window begins."""
    return _gemm(sizes, spec, precision, tile=_HALF_TILE, fill=32)


def _explicit(sizes: Sizes, spec: DeviceSpec, precision: str) -> float:
    """All windows written out, then one product."""
    columns = family_workspace_bytes(Algorithms.EXPLICIT, sizes)
    product = _gemm(sizes, spec, precision, tile=_TILE, fill=16, slower=1.1)
    return product + time_ms(KernelWork(Family.COPY, moved_bytes=sizes.source_bytes + 2 * columns), spec)


def _winograd(sizes: Sizes, spec: DeviceSpec, _precision: str) -> float:
    """F(2×2, 3×3) in one kernel: 2.25 times fewer multiplications, some of it lost to transforms on the way."""
    inner, outer = sizes.channels if sizes.part is Part.FORWARD else sizes.channels[::-1]
    places = prod(_padded(x, 2) for x in sizes.result)
    flops = 2.0 * sizes.samples * places * prod(sizes.window) * (_padded(inner, 8) + 32) * _padded(outer, 32) / 2.25
    return time_ms(KernelWork(Family.CONVOLUTION, flops * 1.35, _tensors_bytes(sizes)), spec)


def _winograd_not_fused(sizes: Sizes, spec: DeviceSpec, _precision: str) -> float:
    """F(4×4, 3×3): transform input and weight, 36 products, transform back; each pass through memory."""
    tiles = sizes.samples * prod(ceil(x / _WINOGRAD_OUTPUT) for x in sizes.result)
    transforms = sum(_winograd_transforms_bytes(sizes))
    flops = (
        2.0 * _WINOGRAD_TRANSFORM * _padded(tiles, _HALF_TILE) * prod(_padded(x, _HALF_TILE) for x in sizes.channels)
    )
    passes = KernelWork(Family.CONVOLUTION, moved_bytes=_tensors_bytes(sizes) + 2 * transforms, kernels=3)
    return time_ms(KernelWork(Family.MATMUL, flops), spec) + time_ms(passes, spec)


def _fft_tiling(sizes: Sizes, spec: DeviceSpec, _precision: str) -> float:
    """Tiles of 32×32 places, transformed two for each sample at a time."""
    tiles, together = _tiles(sizes)
    chunks = ceil(tiles * sizes.samples / together)
    return _spectral_time_ms(sizes, spec, bins=_bins(_FFT_TILE), rows=together, times=chunks, side=_FFT_TILE)


def _fft(sizes: Sizes, spec: DeviceSpec, _precision: str) -> float:
    """The whole plane, padded to a power of two."""
    side = _side(sizes)
    return _spectral_time_ms(sizes, spec, bins=_bins(side), rows=sizes.samples, times=1, side=side)


def _spectral_time_ms(sizes: Sizes, spec: DeviceSpec, *, bins: int, rows: int, times: int, side: int) -> float:
    """Transforms of inputs, weights and outputs, and a complex product for every bin."""
    inner, outer = sizes.channels
    m, n, k = (rows, outer, inner)
    flops = 8.0 * bins * _padded(m, _HALF_TILE) * _padded(n, _HALF_TILE) * (k + 16) * times
    transforms = inner * outer + (inner + outer) * rows * times
    moved = _tensors_bytes(sizes) + 2 * _COMPLEX_BYTES * bins * (transforms + inner * outer)
    # Larger transforms go through memory once more for every factor of 32 of their side.
    passes = KernelWork(Family.CONVOLUTION, moved_bytes=moved * (side / 32) ** 0.5, kernels=4 * times)
    return time_ms(KernelWork(Family.MATMUL, flops), spec) + time_ms(passes, spec)
