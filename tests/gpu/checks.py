"""What has to hold on a device, as plain functions: pytest runs them, and so does ``python -m tests.gpu`` without it.

Each takes the kind of device, ``"cuda"`` or ``"cpu"``, and raises AssertionError with figures, or ``Skipped``. On a
CPU, with small batches, it is the checks themselves that are checked.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import explorer
from benchmarks.cases import MODEL_CASES, Size
from explorer.capture import capture
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.execution.checking import CheckFailedError, check_step
from explorer.execution.code import generate
from explorer.execution.out_of_memory import OutOfMemory
from explorer.execution.scheduled import following
from explorer.graph import Implementation, TrainingGraph
from explorer.models import MODELS
from explorer.operators import cudnn_plans
from explorer.operators.convolution_algorithms import algorithm_called
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.operators.dropout import dropout_from_mask, dropout_scale
from explorer.profiling.devices import DeviceSpec
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.torch_private import forget_cublas_workspaces
from tests.schedules import random_schedule

SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "resnet50": {"cuda": {"batch_size": 8}, "cpu": {"batch_size": 2, "image_size": 64}},
    "unet": {"cuda": {"batch_size": 1, "image_size": (208, 304)}, "cpu": {"batch_size": 1, "image_size": 64}},
    "gpt2": {
        "cuda": {"batch_size": 2, "sequence_length": 256},
        "cpu": {"batch_size": 1, "sequence_length": 16},
    },
}
GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
PRECISE = ("resnet50", "unet")
"""Compared in float64: in float32 two kinds of batch normalisation already drive gradients 1e-2 apart."""
CLOSE = {torch.float64: 1e-6, torch.float32: 1e-3}
PEAK = 0.01


class Skipped(Exception):  # noqa: N818 - it is no error
    """The check does not apply here; says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold.

    Attributes:
        name: unique, for choosing and for the report.
        run: with the kind of device.
    """

    name: str
    run: Callable[[str], None]


@contextmanager
def exact_products() -> Iterator[None]:
    """Float32 as such, so that differences are those of schedules."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def on_device(name: str, kind: str, *, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Any, Any]:
    """A bundled model with a batch, and its loss."""
    spec = MODELS[name]
    torch.manual_seed(0)

    def placed(x: torch.Tensor) -> torch.Tensor:
        return x.to(kind, dtype if x.is_floating_point() else x.dtype)

    batch = pytree.tree_map_only(torch.Tensor, placed, spec.batch(**SIZES[name][kind]))
    return spec.build().to(kind, dtype), batch, spec.loss


def gradients(module: nn.Module, batch: Any, loss: Any) -> list[torch.Tensor]:
    """Of all parameters, after one step."""
    step = module if isinstance(module, explorer.ScheduledModule) else TrainingStep(module, loss)
    args, kwargs = call_arguments(batch, loss=loss)
    torch.manual_seed(0)
    results = [x for x in pytree.tree_leaves(step(*args, **kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.autograd.backward([x.sum() for x in results])
    return [x.grad for x in module.parameters() if x.grad is not None]


def near(measured: float, predicted: float, share: float, what: str) -> None:
    """Fail, with both, where they are further apart than a share of the prediction."""
    difference = measured / predicted - 1
    assert abs(difference) <= share, f"{what}: {measured:.6g} measured, {predicted:.6g} predicted ({difference:+.2%})"


def scheduled_gradients_are_those_of_eager(name: str, kind: str) -> None:
    """Not bit for bit: eager's batch normalisation is cuDNN's, the captured one PyTorch's own."""
    dtype = torch.float64 if name in PRECISE else torch.float32
    model, batch, loss = on_device(name, kind, dtype=dtype)
    graph = capture(model, batch, loss=loss).graph
    expected = gradients(copy.deepcopy(model), batch, loss)
    for schedule in (keep_all(graph), random_schedule(graph, 0, keep=0.5)):
        found = gradients(explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss), batch, loss)
        for mine, theirs in zip(found, expected, strict=True):
            error = float((mine - theirs).norm() / (theirs.norm() + 1e-7))
            assert error <= CLOSE[dtype], f"gradients differ with {schedule.method}: {error:.2g}"


def implementations_compute_the_same(name: str, kind: str) -> None:
    """Each kind of implementation, wherever it can be: whole gradients, or else every single run, are PyTorch's."""
    model, batch, loss = on_device(name, kind)
    graph = capture(model, batch, loss=loss).graph
    module = explorer.apply(model, keep_all(graph), batch, loss=loss, check=False)
    captured = type(module).plans[0].capture
    wrong = []
    with exact_products(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "steps differ from eager mode in the last bits")
        for called in sorted({y.name for x in graph.operators for y in x.implementations}):
            schedule = random_schedule(graph, 0, keep=0.7, allowed=partial(_is_called, name=called), in_place=1.0)
            try:
                with following(module, generate(captured, schedule)):
                    check_step(module, model, batch, capture=captured, schedule=schedule)
            except CheckFailedError as error:
                wrong.append(f"{called}: {error}")
    assert not wrong, "; ".join(wrong)


def _is_called(implementation: Implementation, *, name: str) -> bool:
    return implementation.name == name


def predicted_peaks_are_measured(name: str, kind: str) -> None:
    """With every kind of implementation chosen at random; the whole step, and the worst run of an operator."""
    model, batch, loss = on_device(name, kind)
    profile = explorer.profile(model, batch, loss=loss)
    if kind == "cuda":
        assert "cuDNN" in profile.device.note, profile.device.note
    for seed in range(2):
        schedule = random_schedule(profile.graph, seed, keep=0.7, allowed=lambda _: True)
        scheduled = explorer.apply(model, schedule, batch, loss=loss)
        measured = explorer.measure(scheduled, batch)
        near(measured.peak_bytes, simulate(profile, schedule).peak_bytes, PEAK, f"{name}, peak")
        near(int(measured.allocated_bytes.max()), measured.peak_bytes, PEAK, f"{name}, highest of the history")
        parts = explorer.residual(profile, schedule, measured)
        if kind == "cuda":
            assert parts.cache_bytes is not None, "no reserved memory was measured"
            assert parts.cache_bytes >= 0, f"{parts.cache_bytes} bytes in the allocator's cache"
        runs = explorer.measure_runs(scheduled, batch)
        by_run = explorer.residual_by_run(profile, schedule, runs)
        near(max(x.measured_bytes for x in by_run), measured.peak_bytes, PEAK, f"{name}, worst run")


def an_estimate_is_of_the_same_graph(kind: str) -> None:
    """What was planned without the GPU runs on it."""
    if kind != "cuda":
        raise Skipped("estimates are for CUDA devices")
    model, batch, loss = on_device("resnet50", kind)
    estimated = explorer.estimate(model, batch, loss=loss, device=like_this_one())
    difference = estimated.graph.identity.difference(capture(model, batch, loss=loss).graph.identity)
    assert difference is None, difference
    schedule = random_schedule(estimated.graph, 0, keep=0.7)
    measured = explorer.measure(explorer.apply(model, schedule, batch, loss=loss), batch)
    near(measured.peak_bytes, simulate(estimated, schedule).peak_bytes, 0.05, "peak, by an estimate")


def like_this_one() -> DeviceSpec:
    """Figures of any device, with the compute capability of the one that is here: it decides about kernels."""
    major, minor = torch.cuda.get_device_capability()
    return DeviceSpec(
        memory_gib=80,
        bandwidth_gb_s=2000,
        vector_tflops=20,
        source="any",
        name="any",
        compute_capability=major + minor / 10,
    )


def estimates_are_of_the_same_graphs(dtype: torch.dtype, kind: str) -> None:
    """Every bundled convolutional network and GPT-2, small: what a schedule that was solved without the GPU needs."""
    if kind != "cuda":
        raise Skipped("estimates are for CUDA devices")
    others, device = [], like_this_one()
    for case in MODEL_CASES[Size.SMALL]:
        spec = MODELS[case.name]
        half = dtype is not torch.float32

        def placed(x: torch.Tensor) -> torch.Tensor:
            return x.to("cuda", dtype if x.is_floating_point() else x.dtype)

        model, batch = spec.build(), spec.batch(**case.batch)
        precision = str(dtype).removeprefix("torch.") if half else None
        estimated = explorer.estimate(model, batch, loss=spec.loss, device=device, precision=precision)
        real = capture(model.to("cuda", dtype), pytree.tree_map_only(torch.Tensor, placed, batch), loss=spec.loss)
        if estimated.graph.identity.difference(real.graph.identity):
            others.append(f"{case.name}: {first_difference(estimated.graph, real.graph)}")
    assert not others, f"{len(others)} differ: {'; '.join(others)}"


def first_difference(mine: TrainingGraph, theirs: TrainingGraph) -> str:
    """In words, the first storage or operator that is another."""
    for one, other in (
        *zip(mine.storages, theirs.storages, strict=False),
        *zip(mine.operators, theirs.operators, strict=False),
    ):
        if one != other:
            return f"{one} here, {other} there"
    return f"{len(mine.operators)} operators here, {len(theirs.operators)} there"


def an_estimate_under_autocast_is_of_the_same_graph(kind: str) -> None:
    """CUDA's rules of autocast are followed where there is no GPU."""
    if kind != "cuda":
        raise Skipped("estimates are for CUDA devices")
    model, batch, loss = on_device("resnet50", kind)
    for dtype in ("bfloat16", "float16"):
        estimated = explorer.estimate(model, batch, loss=loss, device=like_this_one(), autocast=dtype)
        real = capture(model, batch, loss=loss, autocast=dtype).graph
        difference = estimated.graph.identity.difference(real.identity)
        assert difference is None, f"{dtype}: {first_difference(estimated.graph, real)}"


def plans_compute_what_pytorch_computes(family: Algorithms, part: str, kind: str) -> None:
    """The layer of MONeT's figure 7, with a smaller batch."""
    if kind == "cuda" and not cudnn_plans.available():
        raise Skipped("needs nvidia-cudnn-frontend")
    run = getattr(algorithm_called(family.value), part)
    if run is None:
        raise Skipped(f"{family.value} has no {part}")
    samples = 32 if kind == "cuda" else 2
    source, weight, gradient = (
        torch.randn(shape, device=kind) for shape in ((samples, 64, 56, 56), (64, 64, 3, 3), (samples, 64, 56, 56))
    )
    with exact_products():
        if part == "forward":
            found, expected = (
                run(source, weight, None, *GEOMETRY),
                F.conv2d(source.double(), weight.double(), padding=1),
            )
        else:
            mask = [part == "input_gradient", part == "weight_gradient", False]
            both = torch.ops.aten.convolution_backward.default(
                gradient.double(), source.double(), weight.double(), None, *GEOMETRY, mask
            )
            args = (gradient, weight, source.shape) if mask[0] else (gradient, source, weight.shape)
            found, expected = run(*args, *GEOMETRY), both[0] if mask[0] else both[1]
    error = float((found - expected).norm() / expected.norm())
    assert error <= 1e-4, f"relative error {error:.2g}"


def dropout_from_its_mask_has_the_bits_of_the_kernel(kind: str) -> None:
    """For every probability in hundredths: a recomputation repeats what was drawn."""
    off = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        source = torch.randn(10_000, device=kind, dtype=dtype)
        node = fx.Graph().placeholder("source")
        node.meta["val"] = source
        for hundredths in range(1, 100):
            probability = hundredths / 100
            made, mask = torch.ops.aten.native_dropout.default(source, probability, True)
            scale = dropout_scale(probability, node)
            if kind == "cuda" and not torch.equal(made, dropout_from_mask(source, mask, scale)):
                off.append(f"{probability} in {dtype}")
            gradient = torch.ops.aten.native_dropout_backward.default(source, mask, 1 / (1 - probability))
            if not torch.equal(gradient, dropout_from_mask(source, mask, 1 / (1 - probability))):
                off.append(f"{probability} in {dtype}, backward")
    assert not off, f"{len(off)} are off: {'; '.join(off[:5])}"


class TooWide(nn.Module):
    """Its middle tensor fits no device."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.first(x).unsqueeze(-1) * torch.ones(2**42, device=x.device)).relu().sum()


def the_device_is_usable_after_running_out_of_memory(kind: str) -> None:
    """The operator is named, and what was held is given back."""
    model, batch = TooWide().to(kind), torch.ones(4, 8, device=kind)
    if kind == "cuda":
        forget_cublas_workspaces()
    before = torch.cuda.memory_allocated() if kind == "cuda" else 0
    try:
        explorer.profile(model, batch)
    except OutOfMemory as error:
        said = str(error)
    else:
        raise AssertionError("a tensor of 16 TiB was allocated")
    assert "operator 'ones'" in said, said
    if kind == "cuda":
        forget_cublas_workspaces()
        held = torch.cuda.memory_allocated() - before
        assert held <= 2**20, f"{held} bytes are still held"
    assert torch.ones(2**20, device=kind).sum() == 2**20


def a_side_stream_makes_no_difference(kind: str) -> None:
    """Forward and backward pass on another stream than the default one, and memory that is free again afterwards."""
    if kind != "cuda":
        raise Skipped("needs a CUDA device")
    model, batch, loss = on_device("gpt2", kind)
    schedule = random_schedule(capture(model, batch, loss=loss).graph, 0, keep=0.5)
    scheduled = explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss)
    expected = gradients(scheduled, batch, loss)
    for parameter in scheduled.parameters():
        parameter.grad = None
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = gradients(scheduled, batch, loss)
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    worst = max(float((x - y).norm() / y.norm().clamp_min(1e-30)) for x, y in zip(found, expected, strict=True))
    assert worst <= CLOSE[torch.float32], f"gradients on another stream are {worst:.1e} apart"


def steps_run_in_one_buffer(kind: str) -> None:
    """Nothing beside the plan, no fragmentation, and gradients as without."""
    model, batch, loss = on_device("resnet50", kind, dtype=torch.float64)
    schedule = random_schedule(capture(model, batch, loss=loss).graph, 0, keep=0.5)
    plain = explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss)
    expected = gradients(plain, batch, loss)
    try:
        buffered = explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss, buffer=True)
    except ValueError as error:
        raise Skipped(str(error)) from error
    for _ in range(4):
        buffered.zero_grad(set_to_none=True)
        found = gradients(buffered, batch, loss)
    worst = max(float((x - y).norm() / y.norm().clamp_min(1e-7)) for x, y in zip(found, expected, strict=True))
    assert worst <= CLOSE[torch.float64], f"gradients of steps in one buffer are {worst:.1e} apart"
    use = explorer.measure(buffered, batch, steps=1).buffer
    assert use is not None, "there was no memory for the buffer"
    assert use.misses == 0, f"{use.misses} allocations are not as planned, {use.served} are"
    assert use.buffer_bytes == use.load_bytes, f"the buffer is {use.fragmentation:.1%} above its load"


def a_cuda_graph_is_refused(kind: str) -> None:
    """Before anything runs, so that the capture can be left."""
    if kind != "cuda":
        raise Skipped("needs a CUDA device")
    model, batch, loss = on_device("gpt2", kind)
    schedule = keep_all(capture(model, batch, loss=loss).graph)
    scheduled = explorer.apply(model, schedule, batch, loss=loss)
    gradients(scheduled, batch, loss)
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            gradients(scheduled, batch, loss)
    except ValueError as error:
        said = str(error)
    else:
        raise AssertionError("a step by a schedule was captured in a CUDA graph")
    assert "a CUDA graph is being captured" in said, said
    gradients(scheduled, batch, loss)


CHECKS = (
    *(Check(f"gradients, {x}", partial(scheduled_gradients_are_those_of_eager, x)) for x in SIZES),
    *(Check(f"implementations, {x}", partial(implementations_compute_the_same, x)) for x in SIZES),
    *(Check(f"peaks, {x}", partial(predicted_peaks_are_measured, x)) for x in SIZES),
    Check("estimate, resnet50", an_estimate_is_of_the_same_graph),
    *(
        Check(f"estimates, {x}".replace("torch.", ""), partial(estimates_are_of_the_same_graphs, x))
        for x in (torch.float32, torch.bfloat16)
    ),
    Check("estimate under autocast, resnet50", an_estimate_under_autocast_is_of_the_same_graph),
    *(
        Check(f"cuDNN, {family.value}, {part}", partial(plans_compute_what_pytorch_computes, family, part))
        for family in Algorithms
        for part in ("forward", "weight_gradient", "input_gradient")
    ),
    Check("dropout", dropout_from_its_mask_has_the_bits_of_the_kernel),
    Check("one buffer", steps_run_in_one_buffer),
    Check("another stream", a_side_stream_makes_no_difference),
    Check("CUDA graph", a_cuda_graph_is_refused),
    Check("out of memory", the_device_is_usable_after_running_out_of_memory),
)
