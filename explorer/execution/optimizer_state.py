"""What optimizers hold for the parameters that they train: how much, and the real thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn, optim

from explorer.device_profile import round_up
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.units import shown


@dataclass(frozen=True)
class State:
    """Of one kind of optimizer, as torch's own implementation holds it.

    Attributes:
        make: makes the optimizer, given parameters.
        moments: tensors of a parameter's size.
        counts: holds each parameter's number of steps besides, in a tensor on the CPU.
    """

    make: Callable[[list[torch.Tensor]], optim.Optimizer]
    moments: int
    counts: bool = True


STATES = {
    "sgd": State(optim.SGD, 0, counts=False),
    "momentum": State(lambda x: optim.SGD(x, momentum=0.9), 1, counts=False),
    "rmsprop": State(optim.RMSprop, 1),
    "adagrad": State(optim.Adagrad, 1),
    "adam": State(optim.Adam, 2),
    "adamw": State(optim.AdamW, 2),
}
"""By the name that ``profile`` and ``measure`` take."""


def optimizer_named(optimizer: Any) -> State:
    """The optimizer of that name, in whatever case.

    Raises:
        ValueError: it is unknown.
    """
    if not isinstance(optimizer, str) or optimizer.lower() not in STATES:
        allowed = ", ".join(map(repr, STATES))
        raise ValueError(f"optimizer is {shown(optimizer)}; give the name of one: {allowed}, or None")
    return STATES[optimizer.lower()]


def optimizer_state_bytes(
    optimizer: str | None, model: nn.Module, *, kind: str, element_bytes: int | None = None
) -> int:
    """What an optimizer holds on a device for the parameters that are trained.

    Args:
        optimizer: its name; None: none.
        model: with its parameters, which may be on ``meta``.
        kind: of the device: ``"cpu"`` or ``"cuda"``.
        element_bytes: of a number; the parameters' own if not given.

    Raises:
        ValueError: ``optimizer`` is unknown.
    """
    if optimizer is None:
        return 0
    state = optimizer_named(optimizer)
    trained = [x for x in model.parameters() if x.requires_grad]
    sizes = [x.numel() * (element_bytes or x.element_size()) for x in trained]
    if kind == "cuda":
        return state.moments * sum(round_up(x, CUDA_ROUNDING_BYTES) for x in sizes)
    counters = len(sizes) * torch.get_default_dtype().itemsize if state.counts else 0
    return state.moments * sum(sizes) + counters


def optimizer_state(optimizer: str | None, module: nn.Module) -> list[torch.Tensor]:
    """The tensors that an optimizer holds after its first step, made by torch's own; the module stays as it is.

    Args:
        optimizer: its name; None: none.
        module: with its parameters.

    Raises:
        ValueError: ``optimizer`` is unknown.
    """
    if optimizer is None:
        return []
    state = optimizer_named(optimizer)
    found: list[torch.Tensor] = []
    for parameter in (x for x in module.parameters() if x.requires_grad):
        stand_in = torch.zeros_like(parameter)
        stand_in.grad = torch.zeros_like(parameter)
        made = state.make([stand_in])
        made.step()
        found += [x for held in made.state.values() for x in held.values() if isinstance(x, torch.Tensor)]
    return found
