"""cuDNN's plans for devices that are described to it, without a GPU.

The library plans for a device by its description; it loads without a driver. That needs, from PyPI,
``nvidia-cudnn-frontend``, and cuDNN with cuBLAS, NVRTC and the runtime of CUDA (``nvidia-cudnn-cu13``,
``nvidia-cublas``, ``nvidia-cuda-nvrtc``, ``nvidia-cuda-runtime``); for a P100, a V100 and a T4 the last cuDNN that
knows them, 9.10 (``nvidia-cudnn-cu12==9.10.2.21`` and the others for CUDA 12). What it does not list are cuDNN's older
kernels (Winograd's in separate kernels, FFT), which exist on the devices themselves.
"""

from __future__ import annotations

import ctypes
import json
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from explorer.operators import cudnn_plans
from explorer.operators.convolution_algorithms import Geometry
from explorer.profiling.convolution_costs import Part
from explorer.profiling.devices import DeviceSpec

_LIBRARIES = ("libcudart.so.*", "libcublasLt.so.*", "libcublas.so.*", "libnvrtc.so.*")
_GIB, _MIB = 2**30, 2**20
_SHARED_BYTES = {6.0: 49152, 7.0: 98304, 7.5: 65536, 8.0: 166912, 9.0: 232448, 10.0: 232448}
_THREADS = {7.5: 1024, 8.6: 1536, 8.9: 1536, 12.0: 1536}


@cache
def library() -> Any:
    """The frontend of cuDNN.

    Raises:
        ImportError: it or one of the libraries it needs is not installed.
    """
    nvidia = find_spec("nvidia")
    folders = [] if nvidia is None else [Path(x) for x in nvidia.submodule_search_locations or ()]
    for pattern in _LIBRARIES:
        found = [
            path for folder in folders for path in sorted(folder.glob(f"*/lib/{pattern}")) if ".alt" not in path.name
        ]
        if not found:
            raise ImportError(f"no {pattern} beside this Python: install what the module's first lines name")
        ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)
    return import_module("cudnn")


class DescribedPlans:
    """What PyTorch's own convolutions take on a device, by cuDNN's plans for it (``convolutions.Plans``)."""

    def __init__(self, spec: DeviceSpec) -> None:
        """For one device of the table."""
        self._description = json.dumps(_described(spec))
        self._known: dict[Any, int | None] = {}
        self.asked: dict[tuple[Part, Geometry, tuple[int, ...], str], int | None] = {}

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
        """Of the first plan of cuDNN's heuristics, filtered as PyTorch does it; None where there is none."""
        exact = precision == "float32"
        problem = _problem(family, part, geometry, result, exact=exact, channels_last=channels_last)
        if problem not in self._known:
            self._known[problem] = self._planned(problem)
        if family == cudnn_plans.OWN:
            self.asked[part, geometry, result, precision] = self._known[problem]
        return self._known[problem]

    def _planned(self, problem: cudnn_plans.ConvolutionProblem) -> int | None:
        cudnn = library()
        device = cudnn.create_device_properties(self._description)
        try:
            graph, _, _ = cudnn_plans._graph(cudnn, problem, device_property=device)  # noqa: SLF001 - looked into here
        except KeyError:
            return None  # another dtype
        chosen = cudnn_plans._first_plan(cudnn, graph, problem)  # noqa: SLF001 - likewise
        return None if chosen is None else graph.get_workspace_size_plan_at_index(chosen)


def _problem(
    family: str, part: Part, geometry: Geometry, result: tuple[int, ...], *, exact: bool, channels_last: bool
) -> cudnn_plans.ConvolutionProblem:
    """As cuDNN sees it: a transposed convolution is the input gradient of another, one of signals has rows of one."""
    source, weight = geometry.source, geometry.weight
    if geometry.transposed:
        swapped = {Part.FORWARD: Part.INPUT_GRADIENT, Part.INPUT_GRADIENT: Part.FORWARD}
        part, source, result = swapped.get(part, part), result, source
    stride, padding, dilation = geometry.stride, geometry.padding, geometry.dilation
    if geometry.dimensions == 1:
        source, weight, result = ((*x[:2], 1, x[2]) for x in (source, weight, result))
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    layout = torch.channels_last if len(source) == 4 else torch.channels_last_3d
    tensors = [torch.empty(x, device="meta") for x in (source, weight, result)]
    if channels_last:
        tensors = [x.contiguous(memory_format=layout) for x in tensors]
    described = [(tuple(x.shape), x.stride()) for x in tensors]
    first, second, made = {
        Part.FORWARD: (0, 1, 2),
        Part.INPUT_GRADIENT: (2, 1, 0),
        Part.WEIGHT_GRADIENT: (2, 0, 1),
    }[part]
    return cudnn_plans.ConvolutionProblem(
        part=part.value,
        family=family,
        first=described[first],
        second=described[second],
        result=tuple(tensors[made].shape),
        stride=stride,
        padding=padding,
        dilation=dilation,
        dtype=geometry.dtype,
        exact=exact,
        deterministic=False,
        device=0,
    )


def _described(spec: DeviceSpec) -> dict[str, Any]:
    """What cuDNN wants to know of a device; clocks and the cache's size are an A100's."""
    capability = spec.compute_capability
    return {
        "cudaDeviceId": 0,
        "deviceName": f"NVIDIA {spec.name}",
        "deviceVer": round(100 * capability),
        "driverVer": 13000,
        "totalGlobalMem": int(spec.memory_gib * _GIB),
        "maxGridSize": [2**31 - 1, 65535, 65535],
        "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536,
        "multiProcessorCount": spec.multiprocessors,
        "smClockRateKHz": 1410000,
        "memClockRateKHz": 1593000,
        "l2CacheSize": 40 * _MIB,
        "warpSize": 32,
        "maxSharedMemoryPerBlock": 49152,
        "maxSharedMemoryPerBlockOptin": _SHARED_BYTES.get(capability, 101376),
        "reservedSharedMemoryPerBlock": 1024 if capability >= 8.0 else 0,
        "maxRegistersPerSM": 65536,
        "pciDeviceId": 0,
        "maxCtasPerSM": 32 if capability in (6.0, 7.0, 8.0, 9.0, 10.0) else 24 if capability > 8.6 else 16,
        "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": _THREADS.get(capability, 2048),
        "isTccDriver": 0,
        "supportCoopLaunch": 1,
    }
