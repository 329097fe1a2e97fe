"""Small networks with everything that makes scheduling hard."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional

import explorer
from explorer.capture import Capture, capture
from explorer.graph import TrainingGraph
from explorer.schedule import Schedule

Sample = tuple[nn.Module, Any, Callable[[Any, Any], torch.Tensor] | None]


class Branches(nn.Module):
    """Convolutions with a skip, a concatenation, max-pooling, in-place activations and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.left = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.right = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.3))
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.norm(self.stem(x)), inplace=True)
        x = self.pool(torch.cat([self.left(x) + x, self.right(x)], 1))
        return self.head(functional.hardswish(x).mean((2, 3)))


class TiedAttention(nn.Module):
    """Tied embeddings, attention, layer normalisation; returns a dict with its loss, like Hugging Face models."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(31, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 31, bias=False)
        self.out.weight = self.embedding.weight
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        x = self.embedding(tokens)
        batch, length, width = x.shape
        q, k, v = (y.view(batch, length, 2, 8).transpose(1, 2) for y in self.qkv(self.norm(x)).split(width, dim=2))
        attended = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
        x = x + functional.dropout(attended.transpose(1, 2).reshape(batch, length, width), 0.2)
        logits = self.out(functional.gelu(x))
        loss = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


class Shared(nn.Module):
    """One layer used three times, two outputs, no loss of its own, a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(12, 12)
        self.frozen = nn.Linear(12, 12)
        self.frozen.requires_grad_(requires_grad=False)

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
        for _ in range(3):
            x = torch.tanh(self.layer(x)) + self.frozen(x)
        return x * scale, x.sigmoid()


class Families(nn.Module):
    """One of nearly everything that has implementations, with skips, one layer used twice, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.group = nn.GroupNorm(2, 8)
        self.grouped = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.batch = nn.BatchNorm2d(8)
        self.wide = nn.Conv2d(8, 8, 3, padding=2, dilation=2, bias=False)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.pixel = nn.Conv2d(8, 12, 1)
        self.rows = nn.LayerNorm(12)
        self.mean_square = nn.RMSNorm(12)
        self.linear = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = functional.relu6(self.group(self.stem(x)))
        x = functional.relu(self.batch(self.grouped(x)), inplace=True) + x
        y = self.up(self.pool(functional.leaky_relu(self.wide(x), 0.1)))
        x = self.pixel(functional.hardswish(x + y, inplace=True))
        rows = functional.dropout(self.rows(x.flatten(2).transpose(1, 2)), 0.25)
        rows = self.linear(torch.tanh(self.linear(rows)) + rows)
        return self.mean_square(rows).softmax(-1).square().mean(), torch.sigmoid(rows).mean()


class Language(nn.Module):
    """Tokens to tokens: a tied embedding, one block, logits that are capped or not, and a loss alone."""

    def __init__(self, *, cap: float | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(90, 8)
        self.block = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 90, bias=cap is None)
        self.head.weight = self.embedding.weight
        self.cap = cap

    def forward(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        logits = self.head(x + self.block(x))
        if self.cap is not None:
            logits = self.cap * torch.tanh(logits / self.cap)
        return nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=3)


def families() -> Sample:
    torch.manual_seed(0)
    return Families().train(), torch.randn(4, 3, 8, 8), None


def branches() -> Sample:
    torch.manual_seed(0)
    return Branches().train(), (torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))), functional.cross_entropy


def tied_attention() -> Sample:
    torch.manual_seed(0)
    tokens = torch.randint(0, 31, (3, 9))
    return TiedAttention().train(), {"tokens": tokens, "labels": tokens}, None


def shared() -> Sample:
    torch.manual_seed(0)
    return Shared().train(), torch.randn(6, 12), None


def language() -> Sample:
    torch.manual_seed(0)
    return Language(), _tokens(), None


def capped_language() -> Sample:
    torch.manual_seed(0)
    return Language(cap=2.0), _tokens(), None


def _tokens() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(0, 90, (4, 40)), torch.randint(0, 90, (4, 40))


@cache
def capture_of(make: Callable[[], Sample]) -> Capture:
    """The capture of a sample."""
    model, batch, loss = make()
    return capture(model, batch, loss=loss)


def graph_of(make: Callable[[], Sample]) -> TrainingGraph:
    """The graph of a sample, to draw schedules from."""
    return capture_of(make).graph


_applied: set[Callable[[], Sample]] = set()


def applied(make: Callable[[], Sample], schedule: Schedule, model: nn.Module | None = None) -> explorer.ScheduledModule:
    """``apply`` to a sample; only the first of a sample captures it again, which takes most of the time.

    Args:
        make: the sample.
        schedule: for it.
        model: of that sample; None: a fresh one.
    """
    fresh, batch, loss = make()
    known = mock.patch("explorer.execution.applying.capture", return_value=capture_of(make))
    with known if make in _applied else nullcontext():
        module = explorer.apply(fresh if model is None else model, schedule, batch, loss=loss)
    _applied.add(make)
    return module


SAMPLES = {
    "branches": branches,
    "tied_attention": tied_attention,
    "shared": shared,
    "language": language,
    "capped_language": capped_language,
}
