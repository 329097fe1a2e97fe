"""Guards compare numbers while nothing was written, and what there is after any write: neither misses a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer import torch_private
from explorer.capture import capture
from explorer.execution.guards import ModelChangedError


class Net(nn.Module):
    """Attributes of every kind that a forward pass may read."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.first.weight
        self.powers = [1, 2]
        self.scale = 2.0
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.first(x)) + self.shift
        return (self.tied(self.last(x)) * self.scale).square().sum() * len(self.powers)


def put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


CHANGES: dict[str, Callable[[Net], object]] = {
    "an attribute": lambda net: put(net, "scale", 3.0),
    "a list in place": lambda net: net.powers.append(3),
    "dropout's p": lambda net: put(net.drop, "p", 0.1),
    "a mode": lambda net: net.drop.eval(),
    "a hook": lambda net: net.last.register_forward_hook(lambda *_: None),
    "a hook without its method": lambda net: (net.last._forward_hooks.update({-1: print}), put(net, "new", 1)),
    "a module": lambda net: put(net, "last", nn.Linear(4, 4)),
    "one module more": lambda net: net.drop.add_module("more", nn.ReLU()),
    "a tie": lambda net: put(net.tied, "weight", nn.Parameter(torch.ones(4, 4))),
    "a dtype, in place": lambda net: net.last.double(),
    "a buffer's dtype": lambda net: put(net, "shift", torch.ones(4, dtype=torch.float64)),
    "a buffer that is gone": lambda net: put(net, "shift", None),
    "a buffer that requires a gradient": lambda net: net.shift.requires_grad_(),
}


@pytest.mark.parametrize("numbers", [True, False], ids=["numbers", "no numbers"])
@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_noticed_whenever_it_comes(
    name: str, *, numbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not numbers:
        monkeypatch.setattr(torch_private, "_dict_version", None)
    net, batch = Net(), torch.randn(2, 4)
    scheduled = explorer.apply(net, explorer.keep_all(capture(net, batch).graph), batch)
    for _ in range(2):
        scheduled(batch).backward()
        scheduled.zero_grad()
    # Writes that change nothing.
    scheduled.eval()
    scheduled.train()
    put(scheduled, "scale", 2.0)
    put(scheduled, "shift", torch.ones(4))
    for _ in range(2):
        scheduled(batch).backward()
        scheduled.zero_grad()
    CHANGES[name](scheduled)  # type: ignore[arg-type]  # it has all that the model has
    for _ in range(2):
        with pytest.raises(ModelChangedError):
            scheduled(batch)


def test_a_new_tensor_in_a_place_is_the_one_that_is_trained() -> None:
    net, batch = Net(), torch.randn(2, 4)
    scheduled = explorer.apply(net, explorer.keep_all(capture(net, batch).graph), batch)
    scheduled(batch)
    put(scheduled.last, "weight", nn.Parameter(torch.zeros(4, 4)))
    put(scheduled.last, "bias", nn.Parameter(torch.zeros(4)))
    scheduled.tied.bias.data.zero_()  # type: ignore[union-attr]
    assert scheduled(batch).item() == 0
    assert torch_private.dict_versions([{}]) is not None, "PyTorch tells"
