"""Compiled steps whose convolutions run in the compiler's layout, or in the model's own where that is quicker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.compiling.choosing import choice_of, tagged
from explorer.compiling.partitioning import Partitioner, compiled
from explorer.compiling.profiling import Traced, profile_of, traced_of
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.device_profile import Cost, Device, Profile
from explorer.saved_results import OWN_LAYOUT, CompiledStep, own_layout_in, saved_by
from explorer.schedule import Run, Schedule
from explorer.solution import Status

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


def profile_with(traced: Traced, *, own_ms: float, own_workspace_bytes: int = 0) -> Profile:
    """Convolutions take 1 ms in the compiler's layout."""
    costs = {
        key: Cost(own_ms, own_workspace_bytes) if work.own_layout else Cost(1.0, 0)
        for key, work in traced.built.work.items()
    }
    return Profile(traced.built.graph, costs, Device("test", "cpu", "none"))


def test_convolutions_of_pictures_have_two_layouts_and_nothing_else_has(traced: Traced) -> None:
    having = [x for x in traced.built.graph.operators if any(y.name == OWN_LAYOUT for y in x.implementations)]
    assert len(having) == 6
    assert all("convolution" in x.target for x in having)
    rows = nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 4, 3))
    graph = traced_of(rows, torch.randn(2, 3, 16)).built.graph
    assert not any(y.name == OWN_LAYOUT for x in graph.operators for y in x.implementations)


@pytest.mark.parametrize(("own_ms", "chosen"), [(0.5, True), (0.99, False), (1.0, False), (2.0, False)])
def test_the_quicker_layout_is_chosen_and_said(traced: Traced, own_ms: float, *, chosen: bool) -> None:
    profile = profile_with(traced, own_ms=own_ms)
    solution = explorer.solve(profile, budget="100 %", method="monet-compiled", time_limit=0.5)
    assert solution.schedule is not None
    assert own_layout_in(profile.graph, solution.schedule) is chosen
    assert choice_of(traced, solution.schedule).own_layout is chosen
    assert solution.time_ms == pytest.approx(
        CompiledStep(profile, own_layout=chosen).judge(saved_by(profile.graph, solution.schedule)).time_ms
    )


def test_a_budget_that_the_quicker_layout_does_not_keep_is_kept_by_the_other(traced: Traced) -> None:
    profile = profile_with(traced, own_ms=0.5, own_workspace_bytes=2**30)
    solution = explorer.solve(profile, budget="100 %", method="monet-compiled", time_limit=0.5)
    assert solution.schedule is not None
    assert not own_layout_in(profile.graph, solution.schedule)
    less = explorer.solve(profile, budget=1000, method="monet-compiled", time_limit=0.5)
    assert less.status is not Status.FEASIBLE


def test_some_convolutions_in_their_own_layout_are_not_said_to_the_compiler(traced: Traced) -> None:
    profile = profile_with(traced, own_ms=0.5)
    own = CompiledStep(profile, own_layout=True)
    schedule = own.schedule(frozenset(own.choices), method="test")
    steps = list(schedule.steps)
    at = next(x for x, step in enumerate(steps) if isinstance(step, Run) and step.implementation == OWN_LAYOUT)
    steps[at] = replace(steps[at], implementation=profile.graph.operators[steps[at].operator].default().name)
    mixed = Schedule(schedule.identity, tuple(steps), schedule.method)
    made = explorer.compiled(pictures(), mixed, BATCH, loss=F.mse_loss, profile=profile)
    assert not made.choice.own_layout
    assert not own_layout_in(profile.graph, made.schedule)
    assert any("a layout for some convolutions alone" in x for x in made.unsaid)


def test_either_layout_has_the_gradients_of_eager_mode_and_what_is_predicted(traced: Traced, tmp_path: Path) -> None:
    model = pictures()
    profile = profile_with(traced, own_ms=0.5)
    own = CompiledStep(profile, own_layout=True)
    schedule = own.schedule(frozenset(own.choices) & own.read, method="test")
    made = explorer.compiled(model, schedule, BATCH, loss=F.mse_loss)
    assert made.choice.own_layout
    assert made.unsaid == ()
    assert Partitioner(made.choice).uuid() != Partitioner(replace(made.choice, own_layout=False)).uuid()
    wanted = torch.autograd.grad(F.mse_loss(model(BATCH[0]), BATCH[1]), list(model.parameters()))
    got = torch.autograd.grad(made.module(*BATCH), list(model.parameters()))
    for a, b in zip(wanted, got, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    text = explorer.export(model, made, BATCH, loss=F.mse_loss, form="compile", path=tmp_path / "step.py").read_text()
    assert "    own_layout=True,\n" in text


@pytest.mark.parametrize("width", [8, 64])
def test_peaks_in_the_model_s_own_layout_are_predicted(width: int) -> None:
    layers = [(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(4)]
    model, batch = nn.Sequential(*(x for layer in layers for x in layer)), torch.randn(4, width, 32, 32)
    traced = traced_of(model, batch)
    step = CompiledStep(profile_of(traced, torch.device("cpu")), own_layout=True)
    for saved in (frozenset(step.choices) & step.read, frozenset()):
        names = {traced.built.graph.storages[x].name for x in saved}
        module = compiled(model, tagged(traced, names, own_layout=True))
        assert step.judge(saved).peak_bytes == pytest.approx(rehearsed_peak_bytes(module, batch), rel=0.001)


def test_a_model_with_channels_last_is_left_to_the_compiler() -> None:
    model = pictures(64).to(memory_format=torch.channels_last)
    batch = BATCH[0].contiguous(memory_format=torch.channels_last)
    profile = explorer.profile_compiled(model, batch)
    alike = CompiledStep(profile).usual, CompiledStep(profile, own_layout=True).usual
    for theirs, own in zip(*alike, strict=True):
        assert profile.cost(theirs).workspace_bytes == pytest.approx(profile.cost(own).workspace_bytes, abs=2**20)
