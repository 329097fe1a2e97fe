"""Whatever the schedule: the same bits as eager mode, and the predicted peak to the byte."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import explorer
from explorer.capture.batch import TrainingStep, call_arguments, with_scalar_gradients
from explorer.capture.results import tensors_of_result
from explorer.schedule import Schedule, keep_all
from tests.execution.models import SAMPLES, Sample, applied, graph_of
from tests.schedules import random_schedule


def train(module: nn.Module, batch: Any, loss: Any, *, steps: int) -> list[Any]:
    """Results, gradients and buffers of a few steps of SGD with momentum."""
    step = module if isinstance(module, explorer.ScheduledModule) else TrainingStep(module, loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    args, kwargs = call_arguments(batch, loss=loss)
    seen: list[Any] = []
    for number in range(steps):
        torch.manual_seed(number)
        results = tensors_of_result(step(*args, **kwargs))
        torch.autograd.backward([x.sum() for x in with_scalar_gradients(results) if x.requires_grad])
        seen += [x.detach().clone() for x in results]
        seen += [None if x.grad is None else x.grad.clone() for x in module.parameters()]
        seen += [x.clone() for x in module.buffers()]
        optimizer.step()
        optimizer.zero_grad()
    return seen


def same_bits(left: list[Any], right: list[Any]) -> bool:
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(left, right, strict=True)
    )


def assert_trains_like_eager(sample: Sample, schedule: Schedule, *, steps: int = 3) -> None:
    model, batch, loss = sample
    scheduled = explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss)
    assert_trained_alike(scheduled, sample, steps=steps)


def assert_trained_alike(scheduled: explorer.ScheduledModule, sample: Sample, *, steps: int = 3) -> None:
    """Both are trained, and must not be the same model."""
    model, batch, loss = sample
    assert same_bits(train(scheduled, batch, loss, steps=steps), train(model, batch, loss, steps=steps))


@pytest.mark.parametrize("name", SAMPLES)
def test_keeping_all_is_eager(name: str) -> None:
    assert_trains_like_eager(SAMPLES[name](), keep_all(graph_of(SAMPLES[name])))


@pytest.mark.parametrize("name", SAMPLES)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), keep=st.sampled_from([0.0, 0.3, 0.7, 0.95]))
def test_any_schedule_trains_like_eager(name: str, seed: int, keep: float) -> None:
    schedule = random_schedule(graph_of(SAMPLES[name]), seed, keep=keep)
    assert_trained_alike(applied(SAMPLES[name], schedule), SAMPLES[name]())


@pytest.mark.parametrize("name", SAMPLES)
def test_predicted_peak_is_measured(name: str) -> None:
    model, batch, loss = SAMPLES[name]()
    profile = explorer.profile(model, batch, loss=loss)
    for seed, keep in enumerate((1.0, 0.7, 0.3, 0.0)):
        schedule = random_schedule(profile.graph, seed, keep=keep)
        predicted = explorer.simulate(profile, schedule).peak_bytes
        scheduled = applied(SAMPLES[name], schedule, model)
        measured = explorer.measure(scheduled, batch, steps=1).peak_bytes
        assert abs(predicted - measured) <= 0.01 * measured, (keep, predicted, measured)
