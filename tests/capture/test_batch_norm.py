"""Batch normalisation in kernels with the calls around it: same results and running statistics, in less memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import Capture, capture
from explorer.graph import Implementation
from explorer.operators.fusing import fused
from explorer.schedule import Run, keep_all
from explorer.simulation import simulate
from tests.fuzz.checking import chains_joined
from tests.schedules import exact_or_fused, random_schedule

Activation = Callable[[torch.Tensor], torch.Tensor]


class Model(nn.Module):
    """Convolutions, normalised and activated, with a connection around some; the last is where PyTorch's peak is."""

    def __init__(self, activation: Activation, dimensions: int = 2, **options: Any) -> None:
        super().__init__()
        convolution = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
        norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dimensions - 1]
        self.first = convolution(2, 8, 3, padding=1, bias=False)
        self.second = convolution(8, 8, 3, padding=1, bias=False)
        self.last = convolution(8, 64, 1)
        self.norms = nn.ModuleList(norm(8, **options) for _ in range(3))
        self.shortcut = convolution(8, 8, 1, bias=False)
        self.activation = activation
        for x in self.parameters():
            nn.init.normal_(x, 0.3, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loss."""
        x = self.activation(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(x)) + self.norms[2](self.shortcut(x))
        y = self.activation(y)
        return self.last(y).exp().log1p().square().mean()


ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x, inplace=True),
    "relu6": F.relu6,
    "leaky relu": lambda x: F.leaky_relu(x, 0.1),
    "silu": F.silu,
    "silu by hand": lambda x: x * torch.sigmoid(x),
    "hard swish": F.hardswish,
    "hard sigmoid": F.hardsigmoid,
    "gelu": F.gelu,
    "elu": F.elu,
    "softplus": F.softplus,
    "mish": F.mish,
    "tanh": torch.tanh,
    "twice read": lambda x: F.relu(x) + x.sin(),
    "scaled": lambda x: (x * 2.0).clamp(-1.0, 3.0),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no running statistics": {"track_running_stats": False},
    "no weight": {"affine": False},
    "in one dimension": {"dimensions": 1},
    "in three dimensions": {"dimensions": 3},
    "other figures": {"momentum": 0.3, "eps": 1e-2},
}
CASES = [(x, "plain") for x in ACTIVATIONS] + [("relu", x) for x in OPTIONS if x != "plain"]
cases = pytest.mark.parametrize(("activation", "options"), CASES)
SIZES = {1: (2, 2, 512), 2: (2, 2, 24, 24), 3: (2, 2, 8, 8, 8)}


def sample(activation: str, options: str = "plain", dtype: torch.dtype = torch.float64) -> tuple[Model, torch.Tensor]:
    torch.manual_seed(0)
    chosen = OPTIONS[options]
    model = Model(ACTIVATIONS[activation], **chosen).to(dtype).train()
    return model, torch.randn(*SIZES[chosen.get("dimensions", 2)], dtype=dtype)


def ways(captured: Capture) -> dict[tuple[str, str], Implementation]:
    return {
        (x.name, y.name): y
        for x in captured.graph.operators
        for y in x.implementations
        if captured.built.calls[x.id, y.name].target is fused
    }


@pytest.mark.thorough("leaky relu", "hard swish", "hard sigmoid", "elu", "softplus", "mish", "tanh", "scaled")
@pytest.mark.sampled(6)
@cases
def test_whatever_is_fused_nothing_changes(activation: str, options: str) -> None:
    """By the calls that kernels stand for; gradients, and statistics that a step leaves behind."""
    model, batch = sample(activation, options)
    eager = copy.deepcopy(model)
    expected = after_a_step(eager, eager, batch)
    with chains_joined():
        graph = capture(model, batch, fuse=True).graph
        seen = set()
        for seed in range(3):
            schedule = random_schedule(graph, seed, keep=(0.0, 0.5, 1.0)[seed % 3], allowed=exact_or_fused)
            seen |= {x.implementation for x in schedule.steps if isinstance(x, Run)}
            own = copy.deepcopy(model)
            found = after_a_step(explorer.apply(own, schedule, batch, check=False), own, batch)
            for x, y in zip(found, expected, strict=True):
                torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)
        assert {"fused, statistics", "fused, from statistics"} <= seen


@pytest.mark.sampled(5)
@cases
def test_plain_peak_and_bits_stay(activation: str, options: str) -> None:
    model, batch = sample(activation, options)
    with chains_joined():
        profile = explorer.profile(model, batch, fuse=True)
        plain = simulate(profile, keep_all(profile.graph)).peak_bytes
        assert profile.eager_peak_bytes is not None
        assert plain <= 1.001 * profile.eager_peak_bytes
        eager, own = copy.deepcopy(model), copy.deepcopy(model)
        expected = after_a_step(eager, eager, batch)
        scheduled = explorer.apply(own, keep_all(profile.graph), batch, check=False)
        assert all(map(torch.equal, expected, after_a_step(scheduled, own, batch)))


@pytest.mark.thorough("silu by hand")
@pytest.mark.parametrize("activation", ["relu6", "silu by hand"])
def test_kernels_keep_gradients_and_memory(activation: str) -> None:
    """Within 1e-5 of those in double precision, and in the memory that was predicted."""
    model, batch = sample(activation, dtype=torch.float32)
    double = copy.deepcopy(model).double()
    exact = after_a_step(double, double, batch.double())
    profile = explorer.profile(model, batch, fuse=True)
    for seed in range(2):
        schedule = random_schedule(profile.graph, seed, keep=(1.0, 0.5)[seed % 2], allowed=lambda _: True)
        own = copy.deepcopy(model)
        scheduled = explorer.apply(own, schedule, batch, check=False)
        for found, expected in zip(after_a_step(scheduled, own, batch), exact, strict=True):
            if expected.is_floating_point():
                assert float((found.double() - expected).norm() / expected.norm()) < 1e-5
        assert simulate(profile, schedule).peak_bytes == explorer.measure(scheduled, batch, steps=1).peak_bytes
    for operator in (x for x in profile.graph.backward if x.name.endswith("batch_norm_backward")):
        for way in (x for x in operator.implementations if x.name.endswith("in place") and "fused" in x.name):
            assert way.overwrites is not None
            assert profile.workspace_bytes(way) < profile.allocated_bytes(profile.graph.storages[way.overwrites]) / 8


def test_one_call_backward_reads_the_source_alone() -> None:
    """Neither the normalised tensor nor the activation; and it may write over the gradient that arrives."""
    captured = capture(*sample("relu6"), fuse=True)
    graph = captured.graph
    (name,) = {x for x, way in ways(captured) if way == "fused, from statistics, in place"}
    assert name == "hardtanh_backward_batch_norm_backward"
    operator = next(x for x in graph.operators if x.name == name)
    way = operator.implementation("fused, from statistics, in place")
    made = {graph.storages[x].name for x in way.reads}
    assert "convolution" in made
    assert not made & {"batch_norm", "hardtanh"}
    assert way.overwrites in way.reads


def test_small_normalisations_stay_as_they_are() -> None:
    """A kernel takes seconds to compile."""
    model, _ = sample("relu")
    assert not [x for x in ways(capture(model, torch.randn(1, 2, 4, 4).double(), fuse=True)) if "batch_norm" in x[0]]


class Shifted(Model):
    """What is added behind a normalisation changes in the forward pass."""

    def __init__(self) -> None:
        super().__init__(F.silu)
        self.register_buffer("shift", torch.ones(1, 8, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loss."""
        x = self.norms[0](self.first(x))
        y = F.silu(x + self.shift) + F.silu(self.norms[1](self.second(x)).sin() + self.shift)
        self.shift.add_(1.0)
        return self.last(y).exp().log1p().square().mean()


class Unread(Model):
    """A normalisation that is there for its statistics alone."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loss."""
        self.norms[2](self.first(x))
        return super().forward(x)


class Largest(Model):
    """The backward pass looks where the largest number was."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loss."""
        y = F.silu(self.norms[0](self.first(x)))
        return y.amax((2, 3)).square().sum() + self.last(y).exp().log1p().square().mean()


class Returned(Model):
    """The normalised tensor is a result, too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loss."""
        y = self.norms[0](self.first(x))
        return self.last(F.relu(y)).exp().log1p().square().mean() + 0 * y.detach().sum()


class Deep(Model):
    """Blocks that add to what they get: each reads the result before it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loss."""
        x = self.norms[0](self.first(x))
        for norm in (self.norms[1], self.norms[2], self.norms[0]):
            x = x + norm(self.second(x))
        return self.last(x).exp().log1p().square().mean()


class Frozen(Model):
    """Weights of a normalisation need no gradient."""

    def __init__(self) -> None:
        super().__init__(F.relu)
        self.norms[0].requires_grad_(requires_grad=False)
        self.norms[1].weight.requires_grad_(requires_grad=False)


UNUSUAL: dict[str, Callable[[], Model]] = {
    "a buffer that changes": Shifted,
    "nobody reads it": lambda: Unread(F.relu),
    "the largest": lambda: Largest(F.silu),
    "returned": lambda: Returned(F.relu),
    "one after another": lambda: Deep(F.relu),
    "frozen": Frozen,
    "channels last": lambda: Model(F.relu).to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_models(kind: str) -> None:
    torch.manual_seed(0)
    model = UNUSUAL[kind]().double().train()
    batch = torch.randn(*SIZES[2], dtype=torch.float64)
    eager = copy.deepcopy(model)
    expected = after_a_step(eager, eager, batch)
    with chains_joined():
        graph = capture(model, batch, fuse=True).graph
        for seed in range(3):
            schedule = random_schedule(graph, seed, keep=(0.0, 0.5, 1.0)[seed % 3], allowed=exact_or_fused)
            own = copy.deepcopy(model)
            found = after_a_step(explorer.apply(own, schedule, batch, check=False), own, batch)
            for x, y in zip(found, expected, strict=True):
                torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)


def test_what_is_made_again_reads_one_source() -> None:
    """However many blocks are before it."""
    captured = capture(Deep(F.relu).train(), torch.randn(*SIZES[2]), fuse=True)
    again = [x for (_, way), x in ways(captured).items() if way == "fused, from statistics"]
    assert again
    assert max(len(x.reads) for x in again) <= 7


def test_halves_keep_their_statistics() -> None:
    """Kernels in half precision would round them on the CPU."""
    model, batch = sample("relu", dtype=torch.float32)
    captured = capture(model, batch, fuse=True, autocast="bfloat16")
    assert not [way for (name, way) in ways(captured) if name.startswith("batch_norm") and way.startswith("fused")]
    assert [way for (_, way) in ways(captured) if way == "fused, from statistics"]


def after_a_step(module: nn.Module, model: nn.Module, batch: torch.Tensor) -> list[torch.Tensor]:
    """The model's gradients and buffers after a step of a module that trains it."""
    for parameter in model.parameters():
        parameter.grad = None
    module(batch).backward()
    return [x.clone() for x in (*(x.grad for x in model.parameters()), *model.buffers()) if x is not None]
