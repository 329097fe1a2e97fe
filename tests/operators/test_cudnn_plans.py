"""What can be known of cuDNN's plans without a GPU: which are asked for, which there are, and what happens without."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from explorer.operators import cudnn_plans
from explorer.operators.convolution_algorithms import Geometry, algorithm_called
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.profiling.convolution_costs import Part, convolution_cost
from explorer.profiling.devices import device_spec

NOTES = ("FFT", "WINOGRAD", "TENSOR_CORE", "DOWN_CONVERT_INPUTS", "NONDETERMINISTIC")
CUDNN = SimpleNamespace(
    heur_mode=SimpleNamespace(A="A", B="B", FALLBACK="F"),
    numerical_note=SimpleNamespace(**{x: x for x in NOTES}),
    cudnnGraphNotSupportedError=type("cudnnGraphNotSupportedError", (Exception,), {}),
)


@dataclass
class Plans:
    """The library's graph, as far as choosing goes: the workspaces of its plans, None for one that cannot be built."""

    workspaces: list[int | None]
    asked: dict[str, Any] = field(default_factory=dict)

    def validate(self) -> None: ...
    def build_operation_graph(self) -> None: ...

    def create_execution_plans(self, modes: list[str]) -> None:
        self.asked["modes"] = modes

    def deselect_numeric_notes(self, notes: list[str]) -> None:
        self.asked["without"] = notes

    def select_numeric_notes(self, notes: list[str]) -> None:
        self.asked["with"] = notes

    def deselect_workspace_greater_than(self, amount: int) -> None:
        self.asked["most"] = amount

    def get_execution_plan_count(self) -> int:
        return len(self.workspaces)

    def build_plan_at_index(self, number: int) -> None:
        if self.workspaces[number] is None:
            raise (RuntimeError, ValueError)[number % 2]("filtered out")

    def get_workspace_size_plan_at_index(self, number: int) -> int | None:
        return self.workspaces[number]


def problem(family: str, *, part: str = "forward", exact: bool = True) -> cudnn_plans.ConvolutionProblem:
    """The layer of MONeT's figure 7."""
    images = ((256, 64, 56, 56), (64 * 56 * 56, 56 * 56, 56, 1))
    window = ((64, 64, 3, 3), (64 * 9, 9, 3, 1))
    ones = (1, 1)
    return cudnn_plans.ConvolutionProblem(
        part=part,
        family=family,
        first=images,
        second=images if part == "weight gradient" else window,
        result=window[0] if part == "weight gradient" else images[0],
        stride=ones,
        padding=ones,
        dilation=ones,
        dtype=torch.float32,
        exact=exact,
        deterministic=False,
        device=0,
    )


def test_every_family_has_a_filter() -> None:
    assert set(cudnn_plans.FILTERS) == {x.value for x in Algorithms}


def test_the_first_plan_that_builds_and_fits_is_taken() -> None:
    plans = Plans([None, 2**30, 0, 0])
    assert cudnn_plans._first_plan(CUDNN, plans, problem("implicit GEMM")) == 2
    assert plans.asked["most"] == 0
    assert {"FFT", "WINOGRAD", "TENSOR_CORE"} <= set(plans.asked["without"])
    assert "with" not in plans.asked
    plans = Plans([None, 2**30])
    assert cudnn_plans._first_plan(CUDNN, plans, problem("Winograd, not fused", exact=False)) == 1
    assert plans.asked["with"] == ["WINOGRAD"]
    assert "TENSOR_CORE" not in plans.asked["without"]
    assert cudnn_plans._first_plan(CUDNN, Plans([None, None]), problem("FFT")) is None


def test_without_the_package_it_is_said_once() -> None:
    cudnn_plans._say_once.cache_clear()
    with pytest.warns(UserWarning, match="nvidia-cudnn-frontend is not installed"):
        cudnn_plans._say_once()
    cudnn_plans._say_once()  # a second warning would be an error here


@pytest.mark.parametrize("family", list(Algorithms))
def test_elsewhere_a_family_is_pytorchs_own(family: Algorithms) -> None:
    source, weight = torch.randn(2, 4, 8, 8), torch.randn(6, 4, 3, 3)
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    run = algorithm_called(family.value).forward
    assert run is not None
    assert torch.equal(run(source, weight, None, *geometry), torch.conv2d(source, weight, padding=1))


# What cuDNN wants to know of a device to plan for it; figures of an A100.
A100 = {
    "cudaDeviceId": 0,
    "deviceName": "NVIDIA A100-SXM4-80GB",
    "deviceVer": 800,
    "driverVer": 13000,
    "totalGlobalMem": 80 * 2**30,
    "maxGridSize": [2**31 - 1, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "multiProcessorCount": 108,
    "smClockRateKHz": 1410000,
    "memClockRateKHz": 1593000,
    "l2CacheSize": 40 * 2**20,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152,
    "maxSharedMemoryPerBlockOptin": 166912,
    "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536,
    "pciDeviceId": 0,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
}


@pytest.fixture(scope="module")
def cudnn() -> Any:
    """The library itself, where it is: it plans for a device that is described to it, and needs none for that."""
    if not cudnn_plans.available():
        pytest.skip("needs nvidia-cudnn-frontend")
    try:
        return import_module("cudnn")
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"nvidia-cudnn-frontend found no cuDNN: {error}")


def workspace_of_plan(cudnn: Any, wanted: cudnn_plans.ConvolutionProblem) -> int | None:
    device = cudnn.create_device_properties(json.dumps(A100))
    graph, _, _ = cudnn_plans._graph(cudnn, wanted, device_property=device)
    chosen = cudnn_plans._first_plan(cudnn, graph, wanted)
    return None if chosen is None else graph.get_workspace_size_plan_at_index(chosen)


@pytest.mark.parametrize("part", ["forward", "input gradient", "weight gradient"])
@pytest.mark.parametrize("exact", [True, False])
def test_cudnn_has_plans_with_and_without_workspace(cudnn: Any, *, part: str, exact: bool) -> None:
    assert workspace_of_plan(cudnn, problem("implicit GEMM", part=part, exact=exact)) == 0
    precomputed = workspace_of_plan(cudnn, problem("precomputed GEMM", part=part, exact=exact))
    assert precomputed is not None and precomputed <= 16 * 2**20
    if not exact:
        # On matrix cores, on copies with the channels of a pixel side by side.
        largest = workspace_of_plan(cudnn, problem("explicit GEMM", part=part, exact=False))
        assert largest is not None and largest > 100 * 2**20


@pytest.mark.parametrize("part", ["forward", "input gradient"])
def test_cudnns_winograd_takes_the_workspace_that_is_estimated(cudnn: Any, part: str) -> None:
    shape = (256, 64, 56, 56)
    ones = (1, 1)
    geometry = Geometry(shape, (64, 64, 3, 3), ones, ones, ones, False, (0, 0), 1, torch.float32, "cuda")
    spec = device_spec("A100-80GB")
    estimated = convolution_cost("Winograd", Part(part), geometry, shape, spec=spec, precision="float32")
    found = workspace_of_plan(cudnn, problem("Winograd", part=part))
    assert found is not None
    assert estimated.workspace_bytes == pytest.approx(found, rel=0.01)


def test_cudnn_without_a_plan_says_so(cudnn: Any) -> None:
    assert workspace_of_plan(cudnn, problem("Winograd", part="weight gradient")) is None
