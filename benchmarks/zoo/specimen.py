"""What the zoo is made of: an architecture, how to feed it, and which habits of training loops it brings."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from explorer.capture import Loss


@dataclass(frozen=True)
class Specimen:
    """One architecture, shrunk until a step takes a fraction of a second on one CPU core.

    Attributes:
        name: its key.
        family: under which heading the table lists it.
        build: makes the model in training mode, randomly initialised.
        batch: makes a random batch, another at every call.
        loss: of (outputs, target); None where the model returns its loss.
        habits: what besides the architecture is unusual about it, in a few words each.
        autocast: whether it trains under bfloat16 autocast.
        refused: whether it is here for the sentence by which it is refused.
    """

    name: str
    family: str
    build: Callable[[], nn.Module]
    batch: Callable[[], Any]
    loss: Loss | None = None
    habits: tuple[str, ...] = ()
    autocast: bool = False
    refused: bool = False

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """The context that capture and training run in."""
        return torch.autocast("cpu", dtype=torch.bfloat16) if self.autocast else contextlib.nullcontext()

    def model(self, seed: int = 0) -> nn.Module:
        """The model; the same for the same seed."""
        torch.manual_seed(seed)
        return self.build().train()

    def sample(self, seed: int) -> Any:
        """A batch; the same for the same seed."""
        torch.manual_seed(1000 + seed)
        return self.batch()


def images(count: int, size: int, *, channels: int = 3, classes: int = 10) -> Callable[[], Any]:
    """Makes images (N, C, size, size) and a class (N,) for each."""
    return lambda: (torch.randn(count, channels, size, size), torch.randint(classes, (count,)))


def masks(count: int, size: int, *, classes: int = 4) -> Callable[[], Any]:
    """Makes images (N, 3, size, size) and a class (N, size, size) for each pixel."""
    return lambda: (torch.randn(count, 3, size, size), torch.randint(classes, (count, size, size)))


def noise(*shape: int) -> Callable[[], Any]:
    """Makes one tensor of normal random numbers."""
    return lambda: torch.randn(*shape)


def convolution(inputs: int, outputs: int, kernel: int = 3, **options: Any) -> nn.Conv2d:
    """A convolution without bias that keeps the size of its input at stride 1."""
    dilation = options.get("dilation", 1)
    return nn.Conv2d(inputs, outputs, kernel, padding=dilation * (kernel // 2), bias=False, **options)


def normalised(
    inputs: int, outputs: int, kernel: int = 3, *, activation: nn.Module | None = None, **options: Any
) -> nn.Sequential:
    """Convolution, BatchNorm, and an activation (ReLU in place unless another is given)."""
    return nn.Sequential(
        convolution(inputs, outputs, kernel, **options),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True) if activation is None else activation,
    )


def classifier(width: int, classes: int = 10) -> nn.Sequential:
    """The mean over all places, then a linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
