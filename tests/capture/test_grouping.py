"""Which chains of calls are joined, that they compute what they did, and that plain PyTorch's peak stays as it was."""

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
from explorer.graph import Operator, Optimization
from explorer.operators.groups import Group, group_of_calls
from explorer.schedule import Run, keep_all
from explorer.simulation import simulate
from tests.fuzz.checking import chains_joined
from tests.schedules import exact_or_fused, random_schedule

Middle = Callable[[torch.Tensor], torch.Tensor]
WIDTH = 64


class Model(nn.Module):
    """Rows through linear layers, with something between them; the last is so wide that PyTorch's peak is there."""

    def __init__(self, middle: Middle) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 16 * WIDTH)
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.middle = middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A loss."""
        x = self.first(x)
        x = x + self.second(self.middle(x) * self.weight)
        return self.head(x).square().mean()


def root_mean_square(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotated(x: torch.Tensor) -> torch.Tensor:
    """As positions are put into queries and keys."""
    x = x.view(2, -1, 4, WIDTH // 4).transpose(1, 2)
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * torch.linspace(0, 1, WIDTH // 4, dtype=x.dtype)
    first, second = x.chunk(2, -1)
    x = x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()
    return x.transpose(1, 2).flatten(2)


JOINED: dict[str, Middle] = {
    "root mean square": root_mean_square,
    "in single precision": lambda x: root_mean_square(x.float()).to(x.dtype),
    "rotary": rotated,
    "swish": lambda x: x * torch.sigmoid(x) * 2.0,
    "gated": lambda x: F.silu(x) * x.roll(1, -1),
    "capped": lambda x: torch.tanh(x / 30.0) * 30.0,
    "biased softmax": lambda x: (x.mul(0.25) + torch.linspace(-1, 1, WIDTH, dtype=x.dtype)).softmax(-1),
    "masked": lambda x: torch.where(x > 0, x.exp(), x * 0.1).log1p(),
    "with a view": lambda x: x.exp().view(-1, 2, WIDTH // 2).sin().view_as(x),
    "in place": lambda x: x.mul(2.0).sin_().add_(1.0),
    "dropout between": lambda x: F.dropout(x.sin().cos(), 0.3).sin().cos(),
    "two ends": lambda x: (x.sin() * 2).cos() + (x.sin() + x.mean(-1, keepdim=True)),
}
names = pytest.mark.parametrize("name", JOINED)
alike = pytest.mark.thorough("swish", "capped", "masked", "biased softmax", "in single precision")


def sample(name: str, *, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return Model(JOINED[name]).to(dtype).train(), torch.randn(2, 64, 8, dtype=dtype)


def groups(captured: Capture) -> list[Operator]:
    calls = captured.built.calls
    return [x for x in captured.graph.operators if calls.get((x.id, "fused")) is not None]


@names
def test_chains_are_joined(name: str) -> None:
    model, batch = sample(name)
    apart, joined = capture(model, batch), capture(model, batch, fuse=True)
    assert joined.graph.fused
    assert not apart.graph.fused
    assert groups(joined)
    assert len(joined.graph.operators) < len(apart.graph.operators)


@alike
@names
def test_plain_peak_and_bits_stay(name: str) -> None:
    """Run one by one, a chain takes no more memory than PyTorch does at its worst, and computes the same."""
    model, batch = sample(name)
    with chains_joined():
        profile = explorer.profile(model, batch, fuse=True)
        plain = simulate(profile, keep_all(profile.graph)).peak_bytes
        assert profile.eager_peak_bytes is not None
        assert plain <= 1.001 * profile.eager_peak_bytes
        expected = gradients(model, batch)
        scheduled = explorer.apply(model, keep_all(profile.graph), batch, check=False)
        assert all(torch.equal(x, y) for x, y in zip(expected, gradients(scheduled, batch), strict=True))


@alike
@names
def test_whatever_of_a_chain_is_made_again(name: str) -> None:
    """By calls that its kernels stand for: alone, from source, or all of it."""
    model, batch = sample(name)
    with chains_joined():
        graph = capture(model, batch, fuse=True).graph
        expected = gradients(model, batch)
        for seed in range(6):
            schedule = random_schedule(graph, seed, keep=(0.0, 0.5)[seed % 2], allowed=exact_or_fused)
            scheduled = explorer.apply(model, schedule, batch, check=False)
            assert all(torch.equal(x, y) for x, y in zip(expected, gradients(scheduled, batch), strict=True)), seed


def test_the_compiler_keeps_gradients() -> None:
    """Within 1e-5 of those in double precision, and in the memory that was predicted."""
    model, batch = sample("root mean square")
    exact = gradients(copy.deepcopy(model).double(), batch.double())
    profile = explorer.profile(model, batch, fuse=True)
    for seed in range(4):
        schedule = random_schedule(profile.graph, seed, keep=0.5, allowed=lambda _: True)
        scheduled = explorer.apply(model, schedule, batch, check=False)
        for found, expected in zip(gradients(scheduled, batch), exact, strict=True):
            assert float((found.double() - expected).norm() / expected.norm()) < 1e-5
        predicted = simulate(profile, schedule).peak_bytes
        assert predicted == explorer.measure(scheduled, batch, steps=1).peak_bytes


def test_halves_are_no_further_off_than_pytorchs_own() -> None:
    """Kernels keep single precision between the calls."""
    model, batch = sample("in single precision", dtype=torch.bfloat16)
    exact = gradients(copy.deepcopy(model).double(), batch.double())
    own = error(gradients(model, batch), exact)
    graph = capture(model, batch, fuse=True).graph
    schedule = random_schedule(graph, 0, keep=1.0, allowed=lambda x: x.optimization is Optimization.FUSED)
    assert any(x.implementation.startswith("fused") for x in schedule.steps if isinstance(x, Run))
    scheduled = explorer.apply(model, schedule, batch, check=False)
    assert error(gradients(scheduled, batch), exact) <= 1.01 * own


def test_from_source_reads_what_is_there_anyway() -> None:
    """Of a normalisation the backward pass reads its source, not what the forward pass made for it alone."""
    captured = capture(*sample("root mean square"), fuse=True)
    forward = next(x for x in groups(captured) if any(y.name == "fused, alone" for y in x.implementations))
    alone = forward.implementation("fused, alone")
    saved = set(forward.default().writes) - set(alone.writes)
    assert saved
    readers = [x for x in captured.graph.backward if saved & set(x.default().reads)]
    again = [x.implementation("fused, from source") for x in readers if x in groups(captured)]
    assert again
    assert not any(saved & set(x.reads) for x in again)


@pytest.mark.parametrize("name", ["swish", "gated", "masked"])
def test_nothing_is_made_again_twice(name: str) -> None:
    captured = capture(*sample(name), fuse=True)
    calls = [y for (_, way), y in captured.built.calls.items() if way == "fused, from source"]
    for group in (x.args[0] for x in calls):
        steps = [repr(x) for x in group.steps if not x.in_place]
        assert len(steps) == len(set(steps))
    assert calls


def test_steps_name_what_eager_mode_calls() -> None:
    captured = capture(*sample("capped"), fuse=True)
    (first, *_) = groups(captured)
    assert first.name == "div_tanh_mul"
    call = captured.built.calls[first.id, "aten"]
    assert call.target is group_of_calls
    assert isinstance(call.args[0], Group)


def test_schedules_for_one_capture_do_not_fit_the_other() -> None:
    model, batch = sample("capped")
    apart, joined = capture(model, batch).graph.identity, capture(model, batch, fuse=True).graph.identity
    assert "profile with the same fuse=" in str(apart.difference(joined))
    assert joined.difference(capture(model, batch, fuse=True).graph.identity) is None


def test_short_chains_stay_apart() -> None:
    """A kernel takes seconds to compile."""
    model, _ = sample("capped")
    assert not groups(capture(model, torch.randn(1, 2, 8), fuse=True))


def gradients(model: Any, batch: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.grad = None
    model(batch).backward()
    return [x.grad.clone() for x in model.parameters()]


def error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """Of all gradients together: single ones round by chance."""
    return sum(float((x.double() - y).norm() / y.norm()) for x, y in zip(found, exact, strict=True))
