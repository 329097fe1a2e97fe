"""What hand-made normalisation leads to in the backward pass: fewer calls, and eager mode's bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture
from explorer.schedule import keep_all
from explorer.simulation import simulate

Function = Callable[[torch.Tensor], torch.Tensor]


def root_mean_square(x: torch.Tensor) -> torch.Tensor:
    rows = x.float()
    return (rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def centred(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(-1, keepdim=True)


FUNCTIONS: dict[str, Function] = {
    "root mean square": root_mean_square,
    "centred": centred,
    "mean of columns": lambda x: x - x.mean(0, keepdim=True),
    "mean of rows": lambda x: x.tanh().mean(-1),
    "first power": lambda x: x.pow(1) * x.tanh().pow(1.0),
}


class Model(nn.Module):
    """Rows with a weight, and what is made of them."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.weight = nn.Parameter(torch.rand(16))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.function(self.weight * self.layer(x))).square().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bits_of_eager_mode(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, batch = Model(FUNCTIONS[name]).to(dtype).train(), torch.randn(32, 16, dtype=dtype)
    profile = explorer.profile(model, batch)
    schedule = keep_all(profile.graph)
    assert profile.eager_peak_bytes is not None
    assert simulate(profile, schedule).peak_bytes <= profile.eager_peak_bytes
    scheduled = explorer.apply(model, schedule, batch)
    assert explorer.measure(scheduled, batch, steps=1).peak_bytes == simulate(profile, schedule).peak_bytes
    model(batch).backward()
    eager: list[Any] = [x.grad for x in model.parameters()]
    model.zero_grad()
    scheduled(batch).backward()
    assert all(torch.equal(x.grad, y) for x, y in zip(model.parameters(), eager, strict=True) if x.grad is not None)


def test_no_first_power_and_no_division_of_whole_rows() -> None:
    graph = capture(Model(root_mean_square).train(), torch.randn(32, 16)).graph
    sizes = {
        x.target: graph.storages[x.implementations[0].writes[0]].bytes for x in graph.backward if "div" in x.target
    }
    assert sizes == {"aten.div.Scalar": 32 * 4}
    assert sum("pow" in x.name for x in graph.operators) == 3


def test_a_first_power_that_is_returned_is_a_copy() -> None:
    model = nn.Linear(4, 4).train()

    class Returned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = model

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made = self.layer(x)
            return made, made.pow(1)

    batch = torch.randn(3, 4)
    step = Returned().train()
    profile = explorer.profile(step, batch)
    one, other = explorer.apply(step, keep_all(profile.graph), batch)(batch)
    assert torch.equal(one, other)
    assert one.data_ptr() != other.data_ptr()


def test_the_gradient_of_a_mean_that_a_linear_layer_sees_as_rows() -> None:
    """A tensor of four dimensions: expanded, it could not be seen as a matrix without a copy."""

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x).mean(3, keepdim=True)

    model, batch = Mean().train(), torch.randn(2, 8, 4, 4)
    scheduled = explorer.apply(model, keep_all(capture(model, batch).graph), batch)
    scheduled(batch).square().sum().backward()
    found: list[Any] = [x.grad for x in model.parameters()]
    model.zero_grad()
    Mean.forward(model, batch).square().sum().backward()
    assert all(torch.equal(x.grad, y) for x, y in zip(model.parameters(), found, strict=True) if x.grad is not None)
