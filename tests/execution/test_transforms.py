"""Transforms of torch.func and forward-mode differentiation: of a scheduled step, and within one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.schedule import keep_all


def scheduled() -> tuple[explorer.ScheduledModule, nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh()), torch.randn(3, 4)
    return explorer.apply(model, keep_all(capture(model, x).graph), x), model, x


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # of make_dual itself
def test_of_a_step_are_refused() -> None:
    module, model, x = scheduled()
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="differentiated in forward mode"):
        module(forward_ad.make_dual(x, torch.ones_like(x)))
    parameters = dict(module.named_parameters())
    for transform in (
        lambda: grad(lambda given: functional_call(module, given, (x,)).sum())(parameters),
        lambda: vmap(lambda row: module(row[None]))(x),
    ):
        with pytest.raises(RuntimeError, match=r"transformed by torch\.func"):
            transform()
    assert torch.equal(functional_call(module, parameters, (x,)), model(x))


class Inner(nn.Module):
    def __init__(self, of: Any) -> None:
        super().__init__()
        self.layer, self.of = nn.Linear(4, 4), of

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = dict(self.layer.named_parameters())
        return self.of(lambda p: F.linear(x, p["weight"], p["bias"]).square().sum(), given)


def test_within_one_are_refused_by_what_they_are() -> None:
    def adapted(loss: Any, given: dict[str, torch.Tensor]) -> torch.Tensor:
        return loss({name: given[name] - x for name, x in grad(loss)(given).items()})

    with pytest.raises(ValueError, match=r"within a transform of torch\.func.*torch\.autograd\.grad"):
        capture(Inner(adapted), torch.randn(3, 4))
