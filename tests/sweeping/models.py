"""Models for the workers of a sweep."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


def small(batch_size: int = 2048) -> tuple:
    """Chain of layers."""
    model = nn.Sequential(
        *(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Sigmoid()) for _ in range(6)), nn.Linear(64, 10)
    )
    return model, (torch.randn(batch_size, 64), torch.randint(10, (batch_size,))), F.cross_entropy


def deadly(batch_size: int = 2048) -> tuple:
    """As small; the first worker that makes it is killed, like one that ran out of memory."""
    try:
        Path(os.environ["DEADLY"]).touch(exist_ok=False)
    except FileExistsError:
        return small(batch_size)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def heedless(batch_size: int = 2048) -> tuple:
    """As small, in one batch, whatever is asked."""
    return small(2048 if batch_size else 0)


def fixed() -> tuple:
    """As small, in one batch."""
    return small()


def even(batch_size: int = 2048) -> tuple:
    """As small, for even batches only."""
    if batch_size % 2:
        raise RuntimeError("an odd batch")
    return small(batch_size)
