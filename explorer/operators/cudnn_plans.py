"""cuDNN's execution plans for convolutions, through ``nvidia-cudnn-frontend``, with a workspace that is allocated here.

The workspace comes from PyTorch's allocator, so its statistics and the profile count it. A family of algorithms is a
filter on cuDNN's own list: which numerical notes a plan must and must not have, and how much workspace at most. Of
what is left the first that can be built is taken, in the order of cuDNN's heuristics: no timing, so every run is alike.

Without the package, and where a family has no plan, convolutions run as PyTorch runs them; the first is said once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

_MIB = 2**20
_ALIGNMENT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Filter:
    """Which of cuDNN's plans belong to a family.

    Attributes:
        wanted: numerical notes that a plan must have.
        unwanted: notes that it must not have.
        workspace_bytes: the most that it may take; None: any.
    """

    wanted: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    workspace_bytes: int | None = None


OWN = ""
"""Instead of a family: what PyTorch runs by itself."""
_TRANSFORMS = ("FFT", "WINOGRAD")
FILTERS = {
    "implicit GEMM": Filter(unwanted=_TRANSFORMS, workspace_bytes=0),
    "precomputed GEMM": Filter(unwanted=_TRANSFORMS, workspace_bytes=16 * _MIB),
    "explicit GEMM": Filter(unwanted=_TRANSFORMS),
    "FFT": Filter(wanted=("FFT",)),
    "FFT tiling": Filter(wanted=("FFT",), workspace_bytes=512 * _MIB),
    "Winograd": Filter(wanted=("WINOGRAD",), workspace_bytes=64 * _MIB),
    "Winograd, not fused": Filter(wanted=("WINOGRAD",)),
}


@dataclass(frozen=True, slots=True)
class ConvolutionProblem:
    """A convolution as cuDNN is asked for it; equal ones share a plan.

    Attributes:
        part: ``"forward"``, ``"weight gradient"`` or ``"input gradient"``.
        family: a key of ``FILTERS``, or ``OWN``.
        first: shape and strides of the first tensor that is read.
        second: of the second.
        result: shape of the result, which is contiguous.
        stride: of the convolution.
        padding: likewise.
        dilation: likewise.
        dtype: of all tensors.
        exact: no TF32.
        deterministic: no sums in changing order.
        device: number of the CUDA device.
    """

    part: str
    family: str
    first: tuple[tuple[int, ...], tuple[int, ...]]
    second: tuple[tuple[int, ...], tuple[int, ...]]
    result: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: torch.dtype
    exact: bool
    deterministic: bool
    device: int


Plan = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_NOTICING: list[list[str]] = []


def available() -> bool:
    """Is the package there?"""
    return find_spec("cudnn") is not None


def plan(
    part: str, family: str, first: torch.Tensor, second: torch.Tensor, shape: Sequence[int], geometry: Sequence[Any]
) -> Plan | None:
    """What computes a part of a convolution by a family of algorithms; None where PyTorch's own call has to.

    Args:
        part: of ``ConvolutionProblem``.
        family: of ``ConvolutionProblem``.
        first: the input of the forward pass, else the incoming gradient.
        second: the weight, or for the weight's gradient the input.
        shape: of the result; for the forward pass of the input.
        geometry: stride, padding, dilation, transposed, output padding, groups.
    """
    found = _found(part, family, first, second, shape, geometry)
    if found is None:
        for noticed in _NOTICING:
            noticed.append(family)
    return found


@contextmanager
def stand_ins_noticed() -> Iterator[list[str]]:
    """While open, the families that have no plan for what is asked of them are listed: PyTorch's own call runs."""
    noticed: list[str] = []
    _NOTICING.append(noticed)
    try:
        yield noticed
    finally:
        _NOTICING.remove(noticed)


def _found(
    part: str, family: str, first: torch.Tensor, second: torch.Tensor, shape: Sequence[int], geometry: Sequence[Any]
) -> Plan | None:
    if first.device.type != "cuda":
        return None
    if not available():
        _say_once()
        return None
    if any(x.data_ptr() % _ALIGNMENT_BYTES or 0 in x.stride() for x in (first, second)):
        # Plans are chosen for tensors that begin where the allocator begins them, not for a view in the middle, and not
        # for a number that stands for many, which PyTorch's own call writes out.
        return None
    stride, padding, dilation, *_ = (tuple(x) if isinstance(x, list | tuple) else x for x in geometry)
    result = _output_shape(first, second, stride, padding, dilation) if part == "forward" else tuple(shape)
    return _built(
        ConvolutionProblem(
            part=part,
            family=family,
            first=(tuple(first.shape), first.stride()),
            second=(tuple(second.shape), second.stride()),
            result=result,
            stride=stride,
            padding=padding,
            dilation=dilation,
            dtype=first.dtype,
            exact=first.dtype == torch.float32 and not _allows_tf32(),
            deterministic=torch.are_deterministic_algorithms_enabled(),
            device=first.get_device(),
        )
    )


@cache
def _say_once() -> None:
    warnings.warn(
        "nvidia-cudnn-frontend is not installed: convolutions run by PyTorch's own choice of algorithm, whatever the "
        "schedule says (pip install 'nvidia-cudnn-frontend>=1.18,<1.29')",
        stacklevel=5,
    )


def _allows_tf32() -> bool:
    return torch.backends.cudnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]  # no stub has it yet


def _output_shape(
    source: torch.Tensor,
    weight: torch.Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[int, ...]:
    sides = zip(source.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    planes = ((side + 2 * pad - apart * (k - 1) - 1) // step + 1 for side, k, step, pad, apart in sides)
    return (source.shape[0], weight.shape[0], *planes)


@cache
def _built(problem: ConvolutionProblem) -> Plan | None:
    """The plan for a problem, built once; None where cuDNN has none in the family."""
    cudnn = import_module("cudnn")
    graph, inputs, output = _graph(cudnn, problem, handle=_handle(cudnn, problem.device))
    chosen = _first_plan(cudnn, graph, problem)
    if chosen is None:
        return None
    workspace_bytes = graph.get_workspace_size_plan_at_index(chosen)

    def run(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        result = torch.empty(problem.result, dtype=problem.dtype, device=first.device)
        workspace = torch.empty(max(1, workspace_bytes), dtype=torch.uint8, device=first.device)
        values = {inputs[0]: first, inputs[1]: second, output: result}
        with torch.cuda.device(problem.device):
            graph.execute_plan_at_index(values, workspace, chosen, _handle(cudnn, problem.device))
        return result

    return run


def _first_plan(cudnn: Any, graph: Any, problem: ConvolutionProblem) -> int | None:
    """The first plan of the family, in the order of the heuristics, that cuDNN can build."""
    own = problem.family == OWN
    family = Filter() if own else FILTERS[problem.family]
    modes = cudnn.heur_mode
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([modes.A, modes.FALLBACK] if own else [modes.A, modes.B, modes.FALLBACK])
        notes = cudnn.numerical_note
        unwanted = [*family.unwanted]
        unwanted += ["TENSOR_CORE"] if problem.exact else []
        unwanted += ["DOWN_CONVERT_INPUTS"] if problem.exact or (own and problem.dtype == torch.float32) else []
        unwanted += ["NONDETERMINISTIC"] if problem.deterministic else []
        graph.deselect_numeric_notes([getattr(notes, x) for x in unwanted])
        if family.wanted:
            graph.select_numeric_notes([getattr(notes, x) for x in family.wanted])
        if family.workspace_bytes is not None:
            graph.deselect_workspace_greater_than(family.workspace_bytes)
    except (RuntimeError, cudnn.cudnnGraphNotSupportedError):
        return None
    # Support is not asked for as a whole: that builds plans until one works, and each is built below anyway.
    return next((x for x in range(graph.get_execution_plan_count()) if _builds(cudnn, graph, x, family)), None)


def _builds(cudnn: Any, graph: Any, number: int, family: Filter) -> bool:
    try:
        graph.build_plan_at_index(number)
    except (RuntimeError, ValueError, cudnn.cudnnGraphNotSupportedError):
        return False  # filtered out (an error of another type in each version), or not for this device
    most = family.workspace_bytes
    return most is None or graph.get_workspace_size_plan_at_index(number) <= most


def _graph(cudnn: Any, problem: ConvolutionProblem, **device: Any) -> tuple[Any, tuple[Any, Any], Any]:
    """The library's description of the problem: graph, what is read, what is written.

    ``device`` is ``handle``, or ``device_property`` with what describes a device that is not here.
    """
    kind = {
        torch.float32: cudnn.data_type.FLOAT,
        torch.float16: cudnn.data_type.HALF,
        torch.bfloat16: cudnn.data_type.BFLOAT16,
    }[problem.dtype]
    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        **device,
        io_data_type=kind,
        intermediate_data_type=single,
        compute_data_type=single,
    )
    first, second = (
        graph.tensor(name=name, dim=list(shape), stride=list(strides), data_type=kind)
        for name, (shape, strides) in (("first", problem.first), ("second", problem.second))
    )
    settings = {
        "padding": list(problem.padding),
        "stride": list(problem.stride),
        "dilation": list(problem.dilation),
    }
    if problem.part == "forward":
        output = graph.conv_fprop(image=first, weight=second, **settings)
    elif problem.part == "input gradient":
        output = graph.conv_dgrad(loss=first, filter=second, **settings)
    else:
        output = graph.conv_wgrad(image=second, loss=first, **settings)
    output.set_output(True).set_data_type(kind)
    output.set_dim(list(problem.result)).set_stride(_contiguous(problem.result))
    return graph, (first, second), output


def _contiguous(shape: Iterable[int]) -> list[int]:
    strides: list[int] = []
    step = 1
    for size in reversed(tuple(shape)):
        strides.insert(0, step)
        step *= size
    return strides


_HANDLES: dict[int, Any] = {}


def _handle(cudnn: Any, device: int) -> Any:
    """The library's handle of a device, on the stream that PyTorch uses now."""
    if device not in _HANDLES:
        with torch.cuda.device(device):
            _HANDLES[device] = cudnn.create_handle()
    cudnn.set_stream(handle=_HANDLES[device], stream=torch.cuda.current_stream(device).cuda_stream)
    return _HANDLES[device]
