"""Compiled steps whose convolutions run with channels last, or in the model's own layout where that is quicker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor
from torch.nn import functional as F

import explorer
from explorer.compiling import profiling
from explorer.compiling.building import CHANNELS_LAST
from explorer.compiling.choosing import choice_of, tagged
from explorer.compiling.fitting import Planner
from explorer.compiling.partitioning import Partitioner, compiled
from explorer.compiling.profiling import Traced, profile_of, profiles_of, traced_of
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.device_profile import Cost, Device, Profile
from explorer.saved_results import CompiledStep
from explorer.schedule import keep_all

BATCH = torch.randn(2, 3, 16, 16), torch.randn(2, 4)


def pictures(width: int = 8) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, groups=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(width, width, 2, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 4),
    )


@pytest.fixture(scope="module")
def traced() -> Traced:
    return traced_of(pictures(), BATCH, loss=F.mse_loss)


def test_convolutions_of_pictures_have_two_layouts_and_others_have_one(traced: Traced) -> None:
    assert traced.own is not None
    copies = [x.name for x in traced.built.graph.storages if x.name.endswith(CHANNELS_LAST)]
    assert len(copies) == 4  # three weights and the batch
    assert not any(x.name.endswith(CHANNELS_LAST) for x in traced.own.graph.storages)
    assert traced.is_own_layout(traced.own.graph.identity)
    assert not traced.is_own_layout(traced.built.graph.identity)
    rows = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 4, 3))
    assert traced_of(rows, torch.randn(2, 3, 16)).own is None


@pytest.mark.parametrize(("own_ms", "chosen"), [(0.5, True), (0.99, False), (1.0, False), (2.0, False)])
def test_the_quicker_layout_is_chosen_and_said(
    traced: Traced, monkeypatch: pytest.MonkeyPatch, own_ms: float, *, chosen: bool
) -> None:
    costs = {x: Cost(1.0 if y.kernel.outside else 0.0, 0) for x, y in traced.built.work.items()}
    assert traced.own is not None
    costs |= {x: Cost(own_ms, 0) for x, y in traced.own.work.items() if y.own_layout}
    monkeypatch.setattr(profiling, "costs_of", lambda work, **_: {x: costs[x] for x in work})
    profile = profile_of(traced, torch.device("cpu"))
    assert traced.is_own_layout(profile.graph.identity) is chosen
    solution = explorer.solve(profile, budget="100 %", method="monet-compiled", time_limit=0.5)
    assert solution.schedule is not None
    assert choice_of(traced, solution.schedule).channels_last is not chosen
    assert not any(CHANNELS_LAST in x for x in choice_of(traced, solution.schedule).saved)
    made = explorer.compiled(pictures(), solution.schedule, BATCH, loss=F.mse_loss)
    assert made.choice.channels_last is not chosen
    assert ("in the model's own layout" in str(made)) is chosen
    assert ("channels last" in str(made)) is not chosen


@pytest.mark.parametrize("own", [True, False])
def test_either_layout_has_the_gradients_of_eager_mode_and_is_written(
    traced: Traced, tmp_path: Path, *, own: bool
) -> None:
    model = pictures()
    made = explorer.compiled(model, keep_all(traced.in_layout(own=own).graph), BATCH, loss=F.mse_loss)
    assert made.choice.channels_last is not own
    assert made.unsaid == ()
    assert Partitioner(made.choice).uuid() != Partitioner(replace(made.choice, channels_last=own)).uuid()
    wanted = torch.autograd.grad(F.mse_loss(model(BATCH[0]), BATCH[1]), list(model.parameters()))
    got = torch.autograd.grad(made.module(*BATCH), list(model.parameters()))
    for a, b in zip(wanted, got, strict=True):
        torch.testing.assert_close(a, b)
    text = explorer.export(model, made, BATCH, loss=F.mse_loss, form="compile", path=tmp_path / "step.py").read_text()
    assert f"    channels_last={not own},\n" in text


def test_a_profile_that_came_to_another_layout_than_a_schedule_has_is_no_obstacle(traced: Traced) -> None:
    assert traced.own is not None
    profile = profile_of(traced, torch.device("cpu"))
    for built in (traced.built, traced.own):
        made = explorer.compiled(pictures(), keep_all(built.graph), BATCH, loss=F.mse_loss, profile=profile)
        assert made.choice.channels_last is (built is traced.built)


class Rectified(nn.Module):
    """Convolutions, each with its normalisation; some of their weights computed or frozen, as is asked."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4))
        self.scale = nn.Parameter(torch.ones(()))
        if kind == "frozen":
            self.layers[1].requires_grad_(requires_grad=False)
        elif kind == "frozen trunk":
            self.layers[:3].requires_grad_(requires_grad=False)
            self.norms[:3].requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            assert isinstance(layer, nn.Conv2d)
            weight = layer.weight * self.scale if self.kind == "computed" else layer.weight
            x = torch.relu(norm(F.conv2d(x, weight, padding=1)))
        return F.mse_loss(x.mean((2, 3)), y)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("width", "kind", "off"),
    [
        (8, "plain", 0.001),
        (64, "plain", 0.001),
        (64, "frozen", 0.01),
        (64, "frozen trunk", 0.01),
        (64, "computed", 0.06),
    ],
)
def test_peaks_are_predicted_in_either_layout(width: int, kind: str, off: float, *, own: bool) -> None:
    torch.manual_seed(0)
    model, batch = Rectified(width, kind), (torch.randn(4, width, 32, 32), torch.randn(4, width))
    traced = traced_of(model, batch)
    profiles = {traced.is_own_layout(x.graph.identity): x for x in profiles_of(traced, torch.device("cpu"))}
    step = CompiledStep(profiles[own])
    for saved in (frozenset(step.choices) & step.read, frozenset()):
        names = {step.graph.storages[x].name for x in saved}
        module = compiled(model, tagged(traced, names, own_layout=own))
        assert step.judge(saved).peak_bytes == pytest.approx(rehearsed_peak_bytes(module, batch), rel=off)


def test_large_weights_do_not_make_results_small() -> None:
    model = nn.Sequential(*(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3)))
    traced = traced_of(model, torch.randn(2, 256, 4, 4))
    assert traced.own is not None
    for built in (traced.built, traced.own):
        step = CompiledStep(Profile(built.graph, dict.fromkeys(built.work, Cost(0.0, 0)), Device("t", "cpu", "t")))
        assert len(step.choices) == 2


class Folded(nn.Module):
    """A convolution of a parameter with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 3, 3, 3)), nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv2d(self.weight, self.weight, self.bias).square().mean() * x.sum()


def test_a_tensor_may_be_convolved_with_itself() -> None:
    assert traced_of(Folded(), BATCH[0]).own is not None


def test_a_batch_that_need_not_be_copied_makes_another_step() -> None:
    traced = traced_of(pictures(), BATCH[0])
    other = BATCH[0].contiguous(memory_format=torch.channels_last)
    with pytest.raises(ValueError, match=r"another layout of convolutions or of the batch"):
        explorer.compiled(pictures(), keep_all(traced.built.graph), other)


def test_where_the_compiler_leaves_convolutions_alone_there_is_one_layout() -> None:
    settings: Any = inductor
    with settings.patch(layout_optimization=False):
        traced = traced_of(pictures(), BATCH, loss=F.mse_loss)
    assert traced.own is None
    assert not any(x.name.endswith(CHANNELS_LAST) for x in traced.built.graph.storages)


def test_a_budget_that_the_quicker_layout_does_not_keep_is_kept_by_the_other() -> None:
    model, batch = Rectified(64, "plain"), (torch.randn(4, 64, 32, 32), torch.randn(4, 64))
    planner = Planner.of(model, batch, loss=None, time_limit=0.5)
    first, second = (planner.profile, *planner.others)
    assert planner.traced.is_own_layout(first.graph.identity) != planner.traced.is_own_layout(second.graph.identity)
    large = replace(first, costs={x: replace(y, workspace_bytes=2**30) for x, y in first.costs.items()})
    found = replace(planner, profile=large).within(2**25, rehearse=True)
    assert found.choice.channels_last is not planner.traced.is_own_layout(second.graph.identity)


class Blurred(nn.Module):
    """A filter that is made of nothing, and gradients that come expanded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(F.conv2d(x, torch.ones(3, 1, 3, 3), groups=3)).sum((2, 3))


def _channels_last() -> nn.Module:
    return pictures(64).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("made", "batch"),
    [
        (Blurred, BATCH[0]),
        (_channels_last, BATCH[0].contiguous(memory_format=torch.channels_last)),
    ],
    ids=["blurred", "channels last"],
)
def test_convolutions_of_all_kinds_are_measured(made: Callable[[], nn.Module], batch: torch.Tensor) -> None:
    traced = traced_of(made(), batch)
    assert traced.own is not None
    for profile in profiles_of(traced, torch.device("cpu")):
        found = [x for x in profile.graph.operators if "convolution" in x.target]
        assert len(found) >= 3
        assert all(profile.cost(x.default()).time_ms > 0 for x in found)
    if made is _channels_last:
        copied = [x.name for x in traced.built.graph.storages if x.name.endswith(CHANNELS_LAST)]
        assert copied == []
