"""What a device gets done of what its data sheet says: efficiency by family of operators, and the roofline.

The factors are fractions of published rates. Those of ordinary cores and of memory come from MONeT's measurements on a
P100 (three models together: benchmarks/execution/estimates.py), those of matrix cores from public training throughputs;
docs/devices.md says which. Nothing here knows a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from explorer.profiling.devices import DeviceSpec


class Family(StrEnum):
    """Kinds of kernels that use a device equally well."""

    MATMUL = "matmul"
    CONVOLUTION = "convolution"
    ATTENTION = "attention"
    ELEMENTWISE = "elementwise"
    NORMALISATION = "normalisation"
    REDUCTION = "reduction"
    POOLING = "pooling"
    SCATTER = "scatter"
    ADAPTIVE = "adaptive pooling"
    DEPTHWISE = "depthwise convolution"
    COPY = "copy"


ORDINARY_CORES = 0.86
"""Of the float32 rate, in the inner loop of a large product: a convolution of 1024 channels measures 8.2 of 9.3."""
TWICE_AS_MANY_LANES = 8.6
"""From this compute capability on a multiprocessor has 128 lanes in float32 for as much shared memory, which feeds a
convolution half of what it could take: an H200 gets 27 to 31 of 67 TFLOPS done."""
CONVOLUTION_ON_THEM = 0.5
MATRIX_CORES = {Family.MATMUL: 0.78, Family.CONVOLUTION: 0.45, Family.ATTENTION: 0.4}
"""Of the rate of matrix cores, which wait for data more often."""
BANDWIDTH = {
    Family.MATMUL: 0.66,
    Family.CONVOLUTION: 0.66,
    Family.ATTENTION: 0.5,
    Family.ELEMENTWISE: 0.71,
    Family.NORMALISATION: 0.55,
    Family.REDUCTION: 0.6,
    Family.POOLING: 0.58,
    Family.SCATTER: 0.085,
    Family.ADAPTIVE: 0.12,
    Family.DEPTHWISE: 0.4,
    Family.COPY: 0.6,
}
"""Of the published bandwidth. ReLU on a P100 measures 0.71, batch normalisation 0.5 to 0.6, max-pooling's backward
pass, whose writes are scattered and atomic, 0.07 to 0.1."""
BANDWIDTH_SINCE_VOLTA = {Family.ELEMENTWISE: 0.84, Family.COPY: 0.75, Family.SCATTER: 0.13}
"""An H200's ReLU, ``cat`` and max-pooling; NVIDIA's throughput of a V100 is nearer to these than to the P100's."""
_VOLTA = 7.0


@dataclass(frozen=True, slots=True)
class KernelWork:
    """What a kernel, or several in a row, has to do.

    Attributes:
        family: which efficiency holds.
        flops: multiplications and additions, tiles' padding included.
        moved_bytes: read and written.
        precision: of the products.
        kernels: how many are launched.
    """

    family: Family
    flops: float = 0.0
    moved_bytes: float = 0.0
    precision: str = "float32"
    kernels: int = 1


def time_ms(work: KernelWork, spec: DeviceSpec) -> float:
    """How long it takes on a device: the longer of computing and moving, and the launches.

    Convolutions and other products rarely overlap the two perfectly: the first and last tiles only move. A part of the
    shorter one is added (``_EXPOSED``).
    """
    rate = flop_rate(spec, work.precision, work.family)
    compute_s = work.flops / rate if work.flops else 0.0
    move_s = work.moved_bytes / byte_rate(spec, work.family)
    longer, shorter = max(compute_s, move_s), min(compute_s, move_s)
    return (longer + _EXPOSED * shorter) * 1e3 + work.kernels * spec.launch_us / 1e3


_EXPOSED = 0.5


def flop_rate(spec: DeviceSpec, precision: str, family: Family) -> float:
    """Operations a second."""
    if spec.has_matrix_cores(precision):
        return spec.matrix_rate_tflops(precision) * 1e12 * MATRIX_CORES.get(family, MATRIX_CORES[Family.MATMUL])
    share = ORDINARY_CORES
    if family in (Family.CONVOLUTION, Family.DEPTHWISE) and spec.compute_capability >= TWICE_AS_MANY_LANES:
        share = CONVOLUTION_ON_THEM
    return max(spec.matrix_rate_tflops(precision), spec.vector_tflops) * 1e12 * share


def byte_rate(spec: DeviceSpec, family: Family) -> float:
    """Bytes a second."""
    share = BANDWIDTH[family]
    if spec.compute_capability >= _VOLTA:
        share = BANDWIDTH_SINCE_VOLTA.get(family, share)
    return spec.bandwidth_gb_s * 1e9 * share
