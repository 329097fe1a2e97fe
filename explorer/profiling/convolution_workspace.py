"""What PyTorch's own convolutions take beside their tensors on a CUDA device, on the safe side.

PyTorch runs the first plan that cuDNN's heuristics name. On matrix cores that is a kernel for channels side by side: it
copies what it reads and writes, channels filled up to 16 bytes, and adds up in float32 where few tiles share long sums.
In float32 proper it may be an old one: Winograd's for the weight's gradient, FFT for the others. docs/devices.md says
how this was found (cuDNN's plans for described devices, an H200's measurements), and how far off it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2, prod

from explorer.operators.convolution_algorithms import Geometry
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.profiling.convolution_costs import Part, Sizes, family_workspace_bytes
from explorer.profiling.devices import DeviceSpec

_MIB = 2**20
_ALIGNED_BYTES = 16
_TILE = 128
_PLANES, _VOLUMES = (512, 64 * _MIB), (4096, 192 * _MIB)
"""So many tiles of results keep a device busy; where there are fewer, sums are split, and partial ones take at most so
much."""
_MOST_SPLITS = 128
_SMALL_BYTES = _MIB // 4
_MOST_TABLE_BYTES = 8 * _MIB
"""Seen on the H200 beside the copies, and of no shape that would say why."""
_SMALL_PLANE = 32
_FFT_TILE = 30
_FILLED = 0.5
"""Of planes filled up for FFT: where less than that is the plane itself, the heuristics name another kernel."""
_HOPPER = 9.0


def own_workspace_bytes(
    part: Part,
    geometry: Geometry,
    result: tuple[int, ...],
    *,
    spec: DeviceSpec,
    precision: str,
    channels_last: bool = False,
) -> int:
    """Workspace of a part of a convolution by PyTorch's own choice, on the safe side.

    Args:
        part: which product.
        geometry: of the convolution.
        result: shape of its output.
        spec: the device.
        precision: of the products: ``"float32"`` is float32 proper.
        channels_last: are the channels of a pixel side by side in the tensors themselves?
    """
    sizes = Sizes.of(part, geometry, result)
    if precision != "float32":
        return _on_matrix_cores(sizes, channels_last=channels_last)
    copies = 0
    if sizes.part is Part.WEIGHT_GRADIENT and spec.compute_capability >= _HOPPER and not channels_last:
        copies = sizes.source_bytes + sizes.result_bytes + sizes.weight_bytes
    return max(copies, legacy_workspace_bytes(part, geometry, result))


def _on_matrix_cores(sizes: Sizes, *, channels_last: bool) -> int:
    """Copies with channels side by side, and sums in float32 of what is split."""
    if channels_last:
        return _split_bytes(sizes) + _SMALL_BYTES
    source = sizes.source_bytes // sizes.inputs * _filled(sizes.inputs, sizes)
    result = sizes.result_bytes // sizes.outputs * _filled(sizes.outputs, sizes)
    inside = max(1, sizes.inputs // sizes.groups)
    weight = sizes.weight_bytes // (sizes.outputs * inside) * _filled(sizes.outputs, sizes) * _filled(inside, sizes)
    copies = source + result + weight
    return copies + _split_bytes(sizes) + _SMALL_BYTES + min(_MOST_TABLE_BYTES, copies // 16)


def _filled(channels: int, sizes: Sizes) -> int:
    together = _ALIGNED_BYTES // sizes.element_bytes
    return ceil(channels / together) * together


def _split_bytes(sizes: Sizes) -> int:
    """Results in float32, one for each share of a sum that is split to keep the device busy."""
    inside, outside = sizes.inputs // sizes.groups, sizes.outputs // sizes.groups
    if sizes.part is Part.FORWARD:
        rows, columns, elements = sizes.samples * prod(sizes.result), outside, sizes.result_bytes
    elif sizes.part is Part.INPUT_GRADIENT:
        rows, columns, elements = sizes.samples * prod(sizes.source), inside, sizes.source_bytes
    else:
        rows, columns, elements = outside, inside * prod(sizes.window), sizes.weight_bytes
    tiles = ceil(rows / _TILE) * ceil(columns / _TILE) * sizes.groups
    busy, most_bytes = _VOLUMES if len(sizes.window) == 3 else _PLANES
    splits = min(_MOST_SPLITS, ceil(busy / tiles)) if tiles < 2 * busy else 0
    return min(most_bytes, splits * elements * 4 // sizes.element_bytes)


def legacy_workspace_bytes(part: Part, geometry: Geometry, result: tuple[int, ...]) -> int:
    """In float32 proper: what cuDNN's older kernels take where its heuristics may name them first.

    Seen on an H200 for windows of 3×3 without stride: Winograd's in separate kernels for every weight's gradient, FFT
    in tiles for most inputs' gradients, FFT for the forward pass of small planes. Plans for described devices do not
    list them.
    """
    sizes = Sizes.of(part, geometry, result)
    if sizes.window != (3, 3) or sizes.stride != 1 or sizes.groups > 1:
        return 0
    if sizes.part is Part.WEIGHT_GRADIENT:
        return family_workspace_bytes(Algorithms.WINOGRAD_NOT_FUSED, sizes)
    fused = family_workspace_bytes(Algorithms.WINOGRAD, sizes)
    if sizes.part is Part.INPUT_GRADIENT:
        filled = _share(sizes.result, [ceil(x / _FFT_TILE) * _FFT_TILE for x in sizes.result]) >= _FILLED
        return max(fused, family_workspace_bytes(Algorithms.FFT_TILING, sizes)) if filled else fused
    side = 2 ** ceil(log2(max(sizes.result) + 2))
    filled = side <= _SMALL_PLANE and _share(sizes.result, [side] * len(sizes.result)) >= _FILLED
    return max(fused, family_workspace_bytes(Algorithms.FFT, sizes)) if filled else fused


def _share(plane: Sequence[int], filled_up: Sequence[int]) -> float:
    return prod(plane) / prod(filled_up)
