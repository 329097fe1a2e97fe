"""Which feed-forward layers' backward passes are joined, and that plain PyTorch's peak stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.schedule import keep_all
from explorer.simulation import simulate

Middle = Callable[[torch.Tensor], torch.Tensor]


class Model(nn.Module):
    """Rows that become wide, and narrow again."""

    def __init__(self, middle: Middle, *, width: int = 16, wide: int = 64, gated: bool = False) -> None:
        super().__init__()
        self.begin = nn.Linear(8, width)
        self.first, self.second = nn.Linear(width, wide), nn.Linear(wide, width)
        self.gate = nn.Linear(width, wide) if gated else None
        self.middle = middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(self.begin(x))
        wide = self.middle(self.first(x))
        wide = wide if self.gate is None else wide * self.gate(x)
        return (x + self.second(wide)).square().mean()


JOINED: dict[str, Middle] = {
    "gelu": F.gelu,
    "tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "squared": lambda x: torch.relu(x).square(),
    "swish": lambda x: x * torch.sigmoid(x),
    "mish": F.mish,
    "softplus": F.softplus,
    "dropout": lambda x: F.dropout(F.gelu(x), 0.2),
    "halved": lambda x: F.silu(x.view(-1, 64)).view_as(x) * 0.5,
}
APART: dict[str, Middle] = {
    "nothing": lambda x: x,
    "rows": lambda x: x.softmax(-1),
    "columns": lambda x: F.gelu(x) * x.new_ones(64),
    "transposed": lambda x: F.gelu(x.transpose(0, 1)).transpose(0, 1),
}


def names(model: nn.Module, *, rows: int = 130) -> list[str]:
    return [x.name for x in capture(model.train(), torch.randn(2, rows, 8)).graph.operators]


@pytest.mark.parametrize("name", JOINED)
@pytest.mark.parametrize("gated", [False, True])
def test_a_middle_that_works_number_by_number_is_joined(name: str, *, gated: bool) -> None:
    found = names(Model(JOINED[name], gated=gated))
    assert "feed_forward_backward" in found
    assert "weight_gradient" in found


@pytest.mark.parametrize("name", APART)
def test_other_middles_stay_as_they_are(name: str) -> None:
    assert "feed_forward_backward" not in names(Model(APART[name]))


def test_few_rows_stay_as_they_are() -> None:
    """There are no parts, and gradients of weights are larger than what is in the middle."""
    assert "feed_forward_backward" not in names(Model(F.gelu), rows=60)
    assert "feed_forward_backward" not in names(Model(F.gelu, width=300, wide=310))


def test_layers_behind_each_other() -> None:
    """The gradient of one's middle is what arrives at the other."""
    layers: list[nn.Module] = [nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8)]
    assert names(nn.Sequential(*layers)).count("feed_forward_backward") == 1


class Residual(nn.Module):
    """A block whose result is added to its source, before another linear layer: in between are sums alone."""

    def __init__(self, block: Middle) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, 64), nn.Linear(64, 64), nn.Linear(64, 1024)
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.head(x + self.second(self.block(x))).square().mean()


@pytest.mark.parametrize("block", [lambda x: x * x.square().mean(-1, keepdim=True), torch.tanh, lambda x: x])
def test_gradients_that_add_up_are_no_middle(block: Middle) -> None:
    """One of them is made from what the joined call would return."""
    torch.manual_seed(0)
    model, batch = Residual(block).train(), torch.randn(2, 130, 8)
    expected = _gradients(model, batch)
    scheduled = explorer.apply(model, keep_all(capture(model, batch).graph), batch, check=False)
    assert all(torch.equal(x, y) for x, y in zip(expected, _gradients(scheduled, batch), strict=True))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("name", ["gelu", "relu", "swish", "dropout"])
def test_plain_peaks_and_gradients(name: str, *, gated: bool) -> None:
    torch.manual_seed(0)
    model, batch = Model(JOINED[name], gated=gated).train(), torch.randn(4, 256, 8)
    profile = explorer.profile(model, batch)
    plain = simulate(profile, keep_all(profile.graph)).peak_bytes
    assert profile.eager_peak_bytes is not None
    assert plain <= 1.001 * profile.eager_peak_bytes
    expected = _gradients(model, batch)
    scheduled = explorer.apply(model, keep_all(profile.graph), batch, check=False)
    assert all(torch.equal(x, y) for x, y in zip(expected, _gradients(scheduled, batch), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_added_up_precisely(dtype: torch.dtype) -> None:
    """In parts, gradients are no further from those in double precision than PyTorch's own."""
    torch.manual_seed(0)
    model, batch = Model(F.silu, gated=True).to(dtype).train(), torch.randn(4, 256, 8, dtype=dtype)
    profile = explorer.profile(model, batch)
    exact = _gradients(Model(F.silu, gated=True).double().train(), batch.double(), like=model)
    own = _error(_gradients(model, batch), exact)
    operators = {x.name: x for x in profile.graph.operators}
    for name in ("weight_gradient", "feed_forward_backward"):
        for way in [x.name for x in operators[name].implementations if "parts" in x.name]:
            solution = explorer.solve(profile, budget="100 %", steps=1, pins={name: way})
            assert solution.schedule is not None
            scheduled = explorer.apply(model, solution.schedule, batch, check=False)
            assert _error(_gradients(scheduled, batch), exact) <= 1.01 * own, (name, way)


def _gradients(model: Any, batch: torch.Tensor, *, like: nn.Module | None = None) -> list[torch.Tensor]:
    if like is not None:
        model.load_state_dict(like.state_dict())
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.grad = None
    model(batch).backward()
    return [x.grad.clone() for x in model.parameters()]


def _error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    return max(float((x.double() - y).norm() / y.norm()) for x, y in zip(found, exact, strict=True))
