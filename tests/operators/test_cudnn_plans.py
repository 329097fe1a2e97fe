"""What can be known of cuDNN's plans without a GPU: which are asked for, and what happens without the package."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from explorer.operators import cudnn_plans
from explorer.operators.convolution_algorithms import algorithm_called
from explorer.operators.cudnn_algorithms import Algorithms

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
    def check_support(self) -> None: ...

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
            raise RuntimeError("filtered out")

    def get_workspace_size_plan_at_index(self, number: int) -> int | None:
        return self.workspaces[number]


def problem(family: str, *, exact: bool = True) -> cudnn_plans.Problem:
    layout = ((4, 8, 16, 16), (2048, 256, 16, 1))
    ones = (1, 1)
    return cudnn_plans.Problem(
        part="forward",
        family=family,
        first=layout,
        second=((8, 8, 3, 3), (72, 9, 3, 1)),
        result=layout[0],
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
    assert cudnn_plans._first_plan(CUDNN, Plans([None]), problem("FFT")) is None


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
