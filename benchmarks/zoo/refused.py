"""What cannot become a schedule, each in its smallest form: the table shows the sentence that a user reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.specimen import Specimen, noise


class _Step(nn.Module):
    """A linear layer, and something done with what it gives."""

    def __init__(self, after: Callable[[_Step, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.after = after
        self.steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self, self.linear(x))


def _branch(_: _Step, y: torch.Tensor) -> torch.Tensor:
    if y.mean() > 0:
        y = -y
    return y.square().mean()


def _item(_: _Step, y: torch.Tensor) -> torch.Tensor:
    return (y / y.detach().norm().item()).square().mean()


def _selection(_: _Step, y: torch.Tensor) -> torch.Tensor:
    return y[y > 0].mean()


def _numpy(_: _Step, y: torch.Tensor) -> torch.Tensor:
    return (y * torch.from_numpy(np.tanh(y.detach().numpy()))).mean()


def _counter(module: _Step, y: torch.Tensor) -> torch.Tensor:
    module.steps += 1
    return y.square().mean() / module.steps


def _sparse() -> nn.Module:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(16, 8, sparse=True)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.embedding(tokens).square().mean()

    return Sparse()


def _frozen() -> nn.Module:
    return _Step(lambda _, y: F.relu(y).mean()).requires_grad_(requires_grad=False)


def _of(name: str, what: str, after: Callable[[_Step, torch.Tensor], torch.Tensor]) -> Specimen:
    return Specimen(name, _family, lambda: _Step(after), noise(4, 8), None, (what,), refused=True)


def _tokens() -> Any:
    return torch.randint(16, (4, 6))


_family = "Not supported"
SPECIMENS = (
    _of("branch_on_values", "`if y.mean() > 0`", _branch),
    _of("item", "`.item()` in the forward pass", _item),
    _of("boolean_selection", "`y[y > 0]`: a shape that depends on values", _selection),
    _of("numpy_inside", "NumPy in the forward pass", _numpy),
    _of("python_counter", "a Python number that the forward pass changes", _counter),
    Specimen("sparse_gradients", _family, _sparse, _tokens, None, ("`nn.Embedding(sparse=True)`",), refused=True),
    Specimen("all_frozen", _family, _frozen, noise(4, 8), None, ("every parameter frozen",), refused=True),
)
