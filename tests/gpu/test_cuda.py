"""What needs a CUDA device. With torch and this checkout alone: see docs/devices.md."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import explorer
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.execution.out_of_memory import OutOfMemory
from explorer.models import MODELS
from explorer.operators import cudnn_plans
from explorer.operators.convolution_algorithms import algorithm_called
from explorer.operators.cudnn_algorithms import Algorithms
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from tests.schedules import random_schedule

pytestmark = pytest.mark.gpu
SIZES: dict[str, dict[str, Any]] = {
    "resnet50": {"batch_size": 16},
    "unet": {"batch_size": 1},
    "gpt2": {"batch_size": 2, "sequence_length": 256},
}
GEOMETRY = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


@pytest.fixture(autouse=True)
def exact_products():
    """Float32 as such, so that differences are those of schedules."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def on_gpu(name: str) -> tuple[nn.Module, Any, Any]:
    spec = MODELS[name]
    torch.manual_seed(0)
    batch = pytree.tree_map_only(torch.Tensor, lambda x: x.cuda(), spec.batch(**SIZES[name]))
    return spec.build().cuda(), batch, spec.loss


def gradients(module: nn.Module, batch: Any, loss: Any) -> list[torch.Tensor]:
    step = module if isinstance(module, explorer.ScheduledModule) else TrainingStep(module, loss)
    args, kwargs = call_arguments(batch, loss=loss)
    torch.manual_seed(0)
    results = [x for x in pytree.tree_leaves(step(*args, **kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.autograd.backward([x.sum() for x in results])
    return [x.grad for x in module.parameters() if x.grad is not None]


@pytest.mark.parametrize("name", SIZES)
def test_scheduled_gradients_are_those_of_eager(name: str) -> None:
    """Not bit for bit: eager's batch normalisation is cuDNN's, the captured one PyTorch's own."""
    model, batch, loss = on_gpu(name)
    graph = explorer.profile(model, batch, loss=loss).graph
    expected = gradients(copy.deepcopy(model), batch, loss)
    for schedule in (keep_all(graph), random_schedule(graph, 0, keep=0.5)):
        found = gradients(explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss), batch, loss)
        for mine, theirs in zip(found, expected, strict=True):
            assert (mine - theirs).norm() <= 1e-3 * theirs.norm() + 1e-7


@pytest.mark.parametrize("name", SIZES)
def test_the_predicted_peak_is_the_measured_one(name: str) -> None:
    model, batch, loss = on_gpu(name)
    profile = explorer.profile(model, batch, loss=loss)
    assert "cuDNN" in profile.device.note
    for seed in range(2):
        schedule: Schedule = random_schedule(profile.graph, seed, keep=0.7)
        scheduled = explorer.apply(model, schedule, batch, loss=loss)
        measured = explorer.measure(scheduled, batch)
        assert measured.peak_bytes == pytest.approx(simulate(profile, schedule).peak_bytes, rel=0.01)
        parts = explorer.residual(profile, schedule, measured)
        assert parts.cache_bytes is not None and parts.cache_bytes >= 0
        by_run = explorer.residual_by_run(profile, schedule, explorer.measure_runs(scheduled, batch))
        assert max(x.measured_bytes for x in by_run) == pytest.approx(measured.peak_bytes, rel=0.01)


def test_an_estimates_schedule_is_for_the_same_graph() -> None:
    """What was planned without the GPU runs on it."""
    model, batch, loss = on_gpu("resnet50")
    estimated = explorer.estimate(model, batch, loss=loss, device="H200")
    schedule = random_schedule(estimated.graph, 0, keep=0.7)
    measured = explorer.measure(explorer.apply(model, schedule, batch, loss=loss), batch)
    assert measured.peak_bytes == pytest.approx(simulate(estimated, schedule).peak_bytes, rel=0.05)


@pytest.mark.skipif(not cudnn_plans.available(), reason="needs nvidia-cudnn-frontend")
@pytest.mark.parametrize("family", list(Algorithms))
@pytest.mark.parametrize("part", ["forward", "weight_gradient", "input_gradient"])
def test_plans_compute_what_pytorch_computes(family: Algorithms, part: str) -> None:
    """The layer of MONeT's figure 7, with a smaller batch."""
    source, weight, gradient = (
        torch.randn(shape, device="cuda") for shape in ((32, 64, 56, 56), (64, 64, 3, 3), (32, 64, 56, 56))
    )
    run = getattr(algorithm_called(family.value), part)
    if run is None:
        pytest.skip(f"{family.value} has no {part}")
    if part == "forward":
        found, expected = run(source, weight, None, *GEOMETRY), F.conv2d(source.double(), weight.double(), padding=1)
    else:
        mask = [part == "input_gradient", part == "weight_gradient", False]
        both = torch.ops.aten.convolution_backward.default(
            gradient.double(), source.double(), weight.double(), None, *GEOMETRY, mask
        )
        args = (gradient, weight, source.shape) if mask[0] else (gradient, source, weight.shape)
        found, expected = run(*args, *GEOMETRY), both[0] if mask[0] else both[1]
    assert (found - expected).norm() <= 1e-4 * expected.norm()


class TooWide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.first(x).unsqueeze(-1) * torch.ones(2**38, device=x.device)).relu().sum()


def test_the_gpu_is_usable_after_running_out_of_memory() -> None:
    model, batch = TooWide().cuda(), torch.ones(4, 8, device="cuda")
    before = torch.cuda.memory_allocated()
    with pytest.raises(OutOfMemory, match="operator 'ones'"):
        explorer.profile(model, batch)
    assert torch.cuda.memory_allocated() <= before + 2**20
    assert torch.ones(2**20, device="cuda").sum() == 2**20
