"""A real model, small enough to profile, solve and run in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.device_profile import Profile


class ConvNet(nn.Module):
    """Four blocks under a common parent, and a head."""

    def __init__(self) -> None:
        """Random weights."""
        super().__init__()
        self.stem = _block(3, 8)
        self.blocks = nn.Sequential(*[_block(8, 8) for _ in range(3)])
        self.head = nn.Linear(8 * 16 * 16, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, 16, 16) to scores (N, 10)."""
        return self.head(self.blocks(self.stem(images)).flatten(1))


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


@dataclass(frozen=True)
class Trained:
    """A model, what it is trained on, and its profile."""

    model: nn.Module
    batch: tuple[torch.Tensor, torch.Tensor]
    loss: Any
    profile: Profile


def train() -> Trained:
    """Made and profiled now."""
    torch.manual_seed(0)
    model, batch = ConvNet(), (torch.randn(16, 3, 16, 16), torch.randint(10, (16,)))
    return Trained(model, batch, F.cross_entropy, explorer.profile(model, batch, loss=F.cross_entropy))
