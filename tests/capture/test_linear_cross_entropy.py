"""Which layers are joined with their losses, and that plain PyTorch's peak stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.graph import Role
from explorer.schedule import keep_all
from explorer.simulation import simulate

Logits = Callable[[torch.Tensor, torch.Tensor], Any]


class Model(nn.Module):
    """Tokens through a layer to logits, of which something is made."""

    def __init__(self, make: Logits, *, classes: int = 3000, bias: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(classes, 16)
        self.head = nn.Linear(16, classes, bias=bias)
        self.make = make

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> Any:
        return self.make(self.head(torch.tanh(self.embedding(tokens))), target)


def loss(logits: torch.Tensor, target: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), **options)


def shifted(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    logits, target = logits[:, :-1].contiguous(), target[:, 1:].contiguous()
    return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


JOINED: dict[str, Logits] = {
    "plain": loss,
    "float": lambda x, y: loss(x.float(), y),
    "sum": lambda x, y: loss(x, y, reduction="sum") / y.numel(),
    "smoothed": lambda x, y: loss(x, y, label_smoothing=0.1),
    "ignored": lambda x, y: loss(x, y, ignore_index=0),
    "capped": lambda x, y: loss(torch.tanh(x / 30) * 30, y),
    "scaled": lambda x, y: loss(x * 0.25, y),
    "shifted": shifted,
    "log_softmax": lambda x, y: F.nll_loss(F.log_softmax(x.flatten(0, 1), dim=-1), y.flatten()),
    "scaled_loss": lambda x, y: 0.5 * loss(x, y),
}
APART: dict[str, Logits] = {
    "returned": lambda x, y: (loss(x, y), x),
    "read_twice": lambda x, y: loss(x, y) + 1e-4 * torch.logsumexp(x, -1).square().mean(),
    "two_losses": lambda x, y: loss(x, y) + loss(x, y, reduction="sum"),
    "mixed": lambda x, y: loss(x.softmax(1), y),
    "dropped": lambda x, y: loss(F.dropout(x, 0.1), y),
    "normalised": lambda x, y: loss(F.layer_norm(x, x.shape[-1:]), y),
    "sorted": lambda x, y: loss(x.sort(-1).values, y),
    "masked": lambda x, y: loss(x.masked_fill(torch.arange(x.shape[-1]) % 7 == 3, -1e4), y),
    "joined": lambda x, y: loss(torch.cat([x, -x], 1), torch.cat([y, y], 1)),
    "indexed": lambda x, y: loss(x[:, torch.arange(0, 100, 2)], y[:, ::2].contiguous()),
    "learned": lambda x, y: loss(x * x.detach().mean(), y),
}


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(1, 500, (2, 100)), torch.randint(1, 500, (2, 100))


def names(model: nn.Module, **options: Any) -> set[str]:
    return {x.name for x in capture(model, tokens(), **options).graph.operators}


BOTH = {"linear_cross_entropy", "linear_cross_entropy_backward"}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", JOINED)
def test_joined(name: str, *, bias: bool) -> None:
    assert names(Model(JOINED[name], bias=bias)) >= BOTH


@pytest.mark.parametrize("name", APART)
def test_apart(name: str) -> None:
    assert not names(Model(APART[name])) & BOTH


def test_half_precision_and_autocast() -> None:
    assert names(Model(JOINED["float"]).bfloat16()) >= BOTH
    assert names(Model(loss), autocast=torch.bfloat16) >= BOTH


def test_few_rows_or_classes_are_not_joined() -> None:
    narrow = capture(Model(loss, classes=20), (torch.zeros(2, 4, dtype=torch.long),) * 2)
    assert not {x.name for x in narrow.graph.operators} & BOTH


def test_rows_of_few_classes_with_nothing_in_between_are_not_joined() -> None:
    batch = torch.randn(64, 64), torch.randint(10, (64,))
    found = capture(nn.Linear(64, 10), batch, loss=F.cross_entropy)
    assert not {x.name for x in found.graph.operators} & BOTH


@pytest.mark.parametrize("name", JOINED)
def test_plain_peak_as_measured(name: str) -> None:
    """Of what autograd frees between its calls at most one half per cent is kept to the end of the joined one."""
    torch.manual_seed(0)
    model, batch = Model(JOINED[name]), tokens()
    profile = explorer.profile(model, batch)
    plain = simulate(profile, keep_all(profile.graph)).peak_bytes
    assert plain == pytest.approx(explorer.measure(model, batch, steps=1).peak_bytes, rel=0.005)


def test_gradients_that_are_made_early_are_gradients() -> None:
    graph = capture(Model(loss, bias=True), tokens()).graph
    layer = next(x for x in graph.operators if x.name == "linear_cross_entropy")
    own = set(layer.default().writes)
    more = {x: graph.storages[x].role for way in layer.implementations for x in way.writes if x not in own}
    assert sorted(more.values()) == [Role.GRADIENT, Role.PARAMETER_GRADIENT, Role.PARAMETER_GRADIENT]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ways", [("loss alone", "logits again"), ("with gradients", "made before"), ("aten", "in")])
def test_trains_like_eager_mode(ways: tuple[str, str], dtype: torch.dtype) -> None:
    """In parts, with a gradient other than 1; halves no further from double precision than eager mode's.

    Those that are made before it is known are rounded once more by it, unless it is a power of two.
    """
    torch.manual_seed(0)
    model, batch = Model(JOINED["capped"], bias=True).to(dtype), tokens()
    profile = explorer.profile(model, batch)
    named = {x.name: x for x in profile.graph.operators}
    pins = {}
    for name, way in zip(sorted(BOTH), ways, strict=True):
        suffix = "" if way in ("aten", "made before") else " 8 parts" if way == "in" else ", in 8 parts"
        pins[name] = way + suffix
        named[name].implementation(pins[name])
    solution = explorer.solve(profile, budget="100%", pins=pins, remember=False)
    assert solution.schedule is not None
    scheduled = explorer.apply(model, solution.schedule, batch)
    assert explorer.measure(scheduled, batch, steps=1).peak_bytes == solution.peak_bytes
    scale = 3.0 if dtype is torch.float32 else 4.0
    found, eager = (gradients(x, batch, model, scale=scale) for x in (scheduled, model))
    exact = gradients(model.double(), batch, model, scale=scale)
    for one, other, precise in zip(found, eager, exact, strict=True):
        error, own = ((x.double() - precise).norm() / precise.norm() for x in (one, other))
        assert error <= (1e-5 if dtype is torch.float32 else 1.01 * own)


def gradients(
    step: nn.Module, batch: tuple[torch.Tensor, ...], model: nn.Module, *, scale: float
) -> list[torch.Tensor]:
    model.zero_grad()
    (scale * step(*batch)).backward()
    return [x.grad.clone() for x in model.parameters() if x.grad is not None]
