"""What people write is captured as it is: twice alike, nothing left behind, the bits of eager mode."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.capture.results import tensors_of_result
from explorer.schedule import keep_all
from tests.capture import layouts  # noqa: F401 - enters its cases
from tests.capture.wide import CASES
from tests.schedules import random_schedule


def trained(step: Any, module: nn.Module, batch: Any, loss: Any) -> list[Any]:
    """Results, gradients, buffers and random state of two steps."""
    args, kwargs = call_arguments(batch, loss=loss)
    owners = [module, *([loss] if isinstance(loss, nn.Module) else [])]
    parameters = [x for owner in owners for x in owner.parameters()]
    seen: list[Any] = []
    for number in range(2):
        torch.manual_seed(number)
        for x in parameters:
            x.grad = None
        results = tensors_of_result(step(*args, **kwargs))
        carrying = [x for x in results if x.requires_grad]
        torch.autograd.backward([x.sum() for x in [x for x in carrying if x.ndim == 0] or carrying])
        seen += [x.detach().clone() for x in results]
        seen += [None if x.grad is None else x.grad.clone() for x in parameters]
        seen += [x.clone() for owner in owners for x in owner.buffers()]
        seen.append(torch.get_rng_state())
        with torch.no_grad():
            for x in parameters:
                if x.grad is not None:
                    x.sub_(x.grad, alpha=0.05)
    return seen


def attributes(module: nn.Module) -> list[Any]:
    """Every attribute of every module, containers copied."""
    return [
        {key: copy.copy(value) if isinstance(value, dict | list) else value for key, value in vars(x).items()}
        for x in module.modules()
    ]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[x], right[x]) for x in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(same(x, y) for x, y in zip(left, right, strict=True))
    return left is right or (not isinstance(left, torch.Tensor) and left == right)


def same_bits(left: list[Any], right: list[Any]) -> bool:
    return all(_same_tensor(a, b) for a, b in zip(left, right, strict=True))


def _same_tensor(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is b
    return torch.equal(a, b) or (
        a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    )


@pytest.mark.thorough("transformer_masked", "lstm_projected")
@pytest.mark.filterwarnings(
    "ignore:LSTM with projections", "ignore:.*weight_norm. is deprecated", "ignore:The .grad attribute of a Tensor"
)
@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", CASES)
def test_captured_as_it_is(name: str) -> None:
    torch.manual_seed(0)
    model, batch, loss = CASES[name]()
    before, values = attributes(model), copy.deepcopy(model.state_dict())
    graph = capture(model, batch, loss=loss).graph
    assert graph.identity == capture(model, batch, loss=loss).graph.identity
    assert same(before, attributes(model))
    assert all(torch.equal(x, values[key]) for key, x in model.state_dict().items())
    samples = []
    for _ in range(3):
        torch.manual_seed(0)
        samples.append(CASES[name]())
    (plain, its_batch, its_loss), *others = samples
    expected = trained(TrainingStep(plain, its_loss), plain, its_batch, its_loss)
    for schedule, (other, other_batch, other_loss) in zip(
        (keep_all(graph), random_schedule(graph, 1, keep=0.6)), others, strict=True
    ):
        scheduled = explorer.apply(other, schedule, other_batch, loss=other_loss)
        assert same_bits(trained(scheduled, scheduled, other_batch, other_loss), expected)
