"""Any mixture of implementations and checkpoints trains like eager mode, in the predicted memory."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import explorer
from explorer.capture import capture
from explorer.graph import Implementation, Optimization
from tests.execution.models import SAMPLES, Sample, applied, families, graph_of
from tests.execution.test_exactness import assert_trained_alike, train
from tests.schedules import random_schedule

ALL = {**SAMPLES, "families": families}
seeds = st.integers(0, 10**6)
keeps = st.sampled_from([0.0, 0.3, 0.7, 1.0])


def doubled(make: Callable[[], Sample]) -> Sample:
    """In double precision, so that only a mistake makes a difference."""
    model, batch, loss = make()
    return model.double(), pytree.tree_map(lambda x: x.double() if x.is_floating_point() else x, batch), loss


DOUBLED = {name: partial(doubled, make) for name, make in ALL.items()}


def assert_close(left: list[Any], right: list[Any]) -> None:
    for a, b in zip(left, right, strict=True):
        if a is None or b is None:
            assert a is b
        else:
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=12, deadline=None)
@given(seed=seeds, keep=keeps)
def test_exact_implementations_give_the_same_bits(name: str, seed: int, keep: float) -> None:
    schedule = random_schedule(graph_of(ALL[name]), seed, keep=keep, allowed=lambda x: x.exact)
    assert_trained_alike(applied(ALL[name], schedule), ALL[name](), steps=2)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=12, deadline=None)
@given(seed=seeds, keep=keeps)
def test_all_implementations_give_the_same_gradients(name: str, seed: int, keep: float) -> None:
    model, batch, loss = DOUBLED[name]()
    schedule = random_schedule(graph_of(DOUBLED[name]), seed, keep=keep, allowed=lambda _: True)
    scheduled = applied(DOUBLED[name], schedule)
    assert_close(train(scheduled, batch, loss, steps=2), train(model, batch, loss, steps=2))


@pytest.mark.thorough("shared", "branches")
@pytest.mark.parametrize("name", ALL)
def test_predicted_peak_is_measured(name: str) -> None:
    model, batch, loss = ALL[name]()
    profile = explorer.profile(model, batch, loss=loss)
    for seed in range(6):
        for keep in (1.0, 0.5, 0.0):
            schedule = random_schedule(profile.graph, seed, keep=keep, allowed=lambda _: True)
            predicted = explorer.simulate(profile, schedule).peak_bytes
            scheduled = applied(ALL[name], schedule, model)
            measured = explorer.measure(scheduled, batch, steps=1).peak_bytes
            assert abs(predicted - measured) <= 0.01 * measured, (seed, keep, predicted, measured)


class Normalised(nn.Module):
    """Three normalisations; their weights are the test's business."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.LayerNorm([6, 6])])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for norm in self.norms:
            x = functional.relu(norm(x))
        return x.square().mean()


def from_outputs(implementation: Implementation) -> bool:
    return implementation.optimization in (Optimization.OUTPUT, Optimization.INPLACE)


@pytest.mark.parametrize("value", [0.0, 1e-30, float("nan")])
@pytest.mark.thorough("1")
@pytest.mark.parametrize("norm", [0, 1, 2])
def test_weights_that_cannot_be_computed_back_through(norm: int, value: float) -> None:
    """The step runs the layer as PyTorch does, and says so once."""
    torch.manual_seed(0)
    model, batch = Normalised().train(), torch.randn(4, 3, 8, 8)
    graph = capture(model, batch).graph
    seed = next(x for x in range(200) if _uses_all_outputs(random_schedule(graph, x, keep=0.5, allowed=from_outputs)))
    schedule = random_schedule(graph, seed, keep=0.5, allowed=from_outputs)
    scheduled = explorer.apply(model, schedule, batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = train(copy.deepcopy(scheduled), batch, None, steps=1)
    torch.testing.assert_close(before, train(copy.deepcopy(model), batch, None, steps=1), rtol=1e-4, atol=1e-6)
    model.norms[norm].weight.data.view(-1)[1] = value
    with pytest.warns(UserWarning, match="1 operators, .*_norm_backward.* run as in PyTorch"):
        found = train(copy.deepcopy(scheduled), batch, None, steps=1)
    expected = train(copy.deepcopy(model), batch, None, steps=1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, equal_nan=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(copy.deepcopy(scheduled), batch, None, steps=1)
        model.norms[norm].weight.data.fill_(1.0)
        after = train(copy.deepcopy(scheduled), batch, None, steps=1)
    torch.testing.assert_close(after, train(copy.deepcopy(model), batch, None, steps=1), rtol=1e-4, atol=1e-6)


def test_layers_that_failed_once_stay_out_of_such_steps() -> None:
    torch.manual_seed(0)
    model, batch = Normalised().train(), torch.randn(4, 3, 8, 8)
    graph = capture(model, batch).graph
    seed = next(x for x in range(200) if _uses_all_outputs(random_schedule(graph, x, keep=0.5, allowed=from_outputs)))
    scheduled = explorer.apply(model, random_schedule(graph, seed, keep=0.5, allowed=from_outputs), batch)
    weights = [norm.weight.data for norm in model.norms]
    weights[0][0] = 0.0
    with pytest.warns(UserWarning, match="1 operators"):
        scheduled(batch).backward()
    scheduled.zero_grad()
    weights[0][0], weights[1][0] = 1.0, 0.0
    with pytest.warns(UserWarning, match="2 operators"):
        scheduled(batch).backward()
    scheduled.zero_grad()
    weights[0][0], weights[1][0] = 0.0, 1.0
    scheduled(batch).backward()
    assert len(scheduled.plans[0].fallbacks) == 2


def _uses_all_outputs(schedule: explorer.Schedule) -> bool:
    return sum(getattr(x, "implementation", "") == "from output" for x in schedule.steps) == 3
