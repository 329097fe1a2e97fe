"""Every execution plan that cuDNN has for a layer: its engine, workspace, time, and how exact it is."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import torch

from explorer.operators import cudnn_plans
from explorer.operators.cudnn_plans import ConvolutionProblem

aten = torch.ops.aten
_ROUNDS = 7
_GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
_PARTS = ("forward", "input gradient", "weight gradient")
_INEXACT = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS")
_TRANSFORMS = ("FFT", "WINOGRAD")


@dataclass(frozen=True)
class PlanFound:
    """One plan, run.

    Attributes:
        part: of the convolution.
        name: of its engine and settings, as cuDNN writes it.
        workspace_bytes: that it takes.
        time_ms: median of a few runs.
        error: against float64, relative, by norms.
        exact: without TF32.
        transforms: is it FFT's or Winograd's?
    """

    part: str
    name: str
    workspace_bytes: int
    time_ms: float
    error: float
    exact: bool
    transforms: bool


def plans_of_layer(batch: int) -> list[dict[str, Any]]:
    """Of the layer of MONeT's figure 7 (64 channels of 56 × 56, 3 × 3), in all three parts.

    Raises:
        ImportError: ``nvidia-cudnn-frontend`` is not installed.
    """
    images = [torch.randn(batch, 64, 56, 56, device="cuda") for _ in range(2)]
    weight = torch.randn(64, 64, 3, 3, device="cuda")
    found: list[dict[str, Any]] = []
    for part in _PARTS:
        first, second = {
            "forward": (images[0], weight),
            "input gradient": (images[1], weight),
            "weight gradient": (images[1], images[0]),
        }[part]
        result = weight if part == "weight gradient" else images[0]
        problem = ConvolutionProblem(
            part=part,
            family="",
            first=(tuple(first.shape), first.stride()),
            second=(tuple(second.shape), second.stride()),
            result=tuple(result.shape),
            stride=(1, 1),
            padding=(1, 1),
            dilation=(1, 1),
            dtype=torch.float32,
            exact=False,
            deterministic=False,
            device=0,
        )
        expected = _expected(part, first, second)
        found += [asdict(x) for x in plans_of(problem, first, second, expected)]
    return found


def plans_of(
    problem: ConvolutionProblem, first: torch.Tensor, second: torch.Tensor, expected: torch.Tensor
) -> Iterator[PlanFound]:
    """All that can be built and run."""
    exact = _names(problem, without=_INEXACT)
    plain = _names(problem, without=_TRANSFORMS)
    cudnn: Any = import_module("cudnn")
    graph, inputs, output = _planned(cudnn, problem)
    for number in range(graph.get_execution_plan_count()):
        if not _is_built(cudnn, graph, number):
            continue
        name, workspace_bytes = _name(graph, number), graph.get_workspace_size_plan_at_index(number)
        workspace = torch.empty(max(1, workspace_bytes), dtype=torch.uint8, device="cuda")
        result = torch.empty(problem.result, device="cuda")
        values = {inputs[0]: first, inputs[1]: second, output: result}
        handle = cudnn_plans._handle(cudnn, problem.device)  # noqa: SLF001 - what is looked into here
        try:
            times_ms = [_timed(graph, values, workspace, number, handle) for _ in range(_ROUNDS)]
        except (RuntimeError, cudnn.cudnnGraphNotSupportedError):
            continue
        error = float((result - expected).norm() / expected.norm())
        yield PlanFound(
            problem.part,
            name,
            workspace_bytes,
            statistics.median(times_ms[1:]),
            error,
            name in exact,
            name not in plain,
        )


def _expected(part: str, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """In float64, a few samples at a time: the backward parts from PyTorch's own."""
    one, other = first.double(), second.double()
    if part == "forward":
        return aten.convolution.default(one, other, None, *_GEOMETRY)
    if part == "input gradient":
        return aten.convolution_backward.default(one, one, other, None, *_GEOMETRY, [True, False, False])[0]
    weight = torch.empty(64, 64, 3, 3, device="cuda", dtype=torch.float64)
    return aten.convolution_backward.default(one, other, weight, None, *_GEOMETRY, [False, True, False])[1]


def _planned(cudnn: Any, problem: ConvolutionProblem) -> tuple[Any, Any, Any]:
    graph, inputs, output = cudnn_plans._graph(  # noqa: SLF001 - what is looked into here
        cudnn,
        problem,
        handle=cudnn_plans._handle(cudnn, problem.device),  # noqa: SLF001 - likewise
    )
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.B, cudnn.heur_mode.FALLBACK])
    return graph, inputs, output


def _names(problem: ConvolutionProblem, *, without: tuple[str, ...]) -> set[str]:
    """Of the plans that can be built without some numerical notes."""
    cudnn: Any = import_module("cudnn")
    graph, _, _ = _planned(cudnn, problem)
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, x) for x in without])
    return {_name(graph, x) for x in range(graph.get_execution_plan_count()) if _is_built(cudnn, graph, x)}


def _name(graph: Any, number: int) -> str:
    return str(graph.get_plan_name_at_index(number))


def _is_built(cudnn: Any, graph: Any, number: int) -> bool:
    try:
        graph.build_plan_at_index(number)
    except (RuntimeError, ValueError, cudnn.cudnnGraphNotSupportedError):
        return False
    return True


def _timed(graph: Any, values: Any, workspace: torch.Tensor, number: int, handle: Any) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.execute_plan_at_index(values, workspace, number, handle)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
