"""Hooks that are registered for all modules at once: refused before a capture, told afterwards; PyTorch's own stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as every_module
from torch.utils.flop_counter import FlopCounterMode

import explorer
from explorer.execution.guards import ModelChangedError

REGISTERED = {
    every_module.register_module_forward_hook: lambda *_: None,
    every_module.register_module_forward_pre_hook: lambda *_: None,
    every_module.register_module_full_backward_hook: lambda *_: None,
    every_module.register_module_full_backward_pre_hook: lambda *_: None,
}


def _sample() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), (torch.randn(4, 8), torch.tensor([0, 1, 2, 0]))


@pytest.mark.parametrize("register", REGISTERED, ids=lambda x: x.__name__)
def test_they_are_seen_before_a_capture_and_at_a_call(register: Callable[..., Any]) -> None:
    model, batch = _sample()
    profile = explorer.profile(model, batch, loss=F.cross_entropy)
    scheduled = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=F.cross_entropy)
    hook = register(REGISTERED[register])
    try:
        with pytest.raises(ModelChangedError, match="hooks of all modules changed"):
            scheduled(*batch)
        with pytest.raises(ValueError, match="hooks of all modules"):
            explorer.profile(model, batch, loss=F.cross_entropy)
    finally:
        hook.remove()
    scheduled(*batch).backward()


def test_what_pytorch_itself_registers_is_no_hindrance() -> None:
    model, batch = _sample()
    profile = explorer.profile(model, batch, loss=F.cross_entropy)
    scheduled = explorer.apply(model, explorer.keep_all(profile.graph), batch, loss=F.cross_entropy)
    with FlopCounterMode(display=False) as counter:
        scheduled(*batch).backward()
    assert counter.get_total_flops() > 0
