"""The operators of a captured step are those that eager mode runs, not what a compiler would make of them."""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.capture import capture
from explorer.capture.batch import TrainingStep
from explorer.execution.scheduled import StepPlan, run_step
from explorer.operators.cross_entropy import cross_entropy_backward
from tests.capture.functionals import EXPRESSIONS
from tests.capture.test_wide import same_bits, trained
from tests.schedules import random_schedule

_TAKEN_APART = ("dropout", "attention", "istft")
"""Their masks are named, which takes another operator."""


class Expression(nn.Module):
    """An expression of the input times a parameter, and of another parameter."""

    def __init__(self, text: str, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.x, self.y = (nn.Parameter(0.1 + 0.8 * torch.rand(shape)) for _ in range(2))
        scope = {"torch": torch, "F": F, "spd": lambda x: x @ x.mT + 4 * torch.eye(8)}
        self.function: Callable[..., torch.Tensor] = eval(f"lambda x, y: {text}", scope)  # noqa: S307 - the table's

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x * self.x, self.y)


def loss_of(y: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return 0.1 * y.square().mean()


class Recorded(TorchDispatchMode):
    """Counts the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names[_name(func)] += 1
        return func(*args, **(kwargs or {}))


def _name(target: Any) -> str:
    """``bernoulli`` for every form of it, in place or not."""
    return re.sub(r"(_functional|_legit(_functional)?|_)$", "", str(target).split(".")[1].removeprefix("_"))


def sample(text: str, shape: tuple[int, ...]) -> tuple[Expression, Any]:
    torch.manual_seed(0)
    return Expression(text, shape).train(), (torch.rand(shape), torch.zeros(1))


def scheduled(plan: StepPlan, model: nn.Module, *args: Any) -> Any:
    return run_step(plan, model, args, {})


def failures(family: str) -> Iterator[str]:
    shape, expressions = EXPRESSIONS[family]
    for text in (x.strip() for x in expressions.strip().splitlines()):
        model, batch = sample(text, shape)
        expected = trained(TrainingStep(model, loss_of), model, batch, loss_of)
        model, batch = sample(text, shape)
        with Recorded() as eager:
            loss_of(model(batch[0]), batch[1]).backward()
        model, batch = sample(text, shape)
        captured = capture(model, batch, loss=loss_of)
        names = {_name(x.target) for x in captured.traced.graph.nodes if "aten." in str(x.target)}
        if any(x.target is cross_entropy_backward for x in captured.traced.graph.nodes):
            names |= {"nll_loss_backward", "nll_loss2d_backward"}  # which it calls
        kernels = {x for x in eager.names if x.endswith("_backward") or x.startswith(("upsample", "linalg"))}
        if not any(x in text for x in _TAKEN_APART) and kernels - names - {"linalg_check_errors"}:
            yield f"{text}: {kernels - names} are taken apart"
        model, batch = sample(text, shape)
        plan = StepPlan.of(captured, random_schedule(captured.graph, 1, keep=0.5))
        plan.bind(model)
        if not same_bits(trained(partial(scheduled, plan, model), model, batch, loss_of), expected):
            yield f"{text}: other bits"


@pytest.mark.parametrize("family", EXPRESSIONS)
def test_captured_as_eager_runs_it(family: str) -> None:
    assert list(failures(family)) == []
