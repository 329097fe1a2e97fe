"""One training step of any module, with everything that it changes put back afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from explorer.capture import Batch, Loss
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.device_profile import round_up
from explorer.execution.device import CUDA_ROUNDING_BYTES
from explorer.execution.scheduled import ScheduledModule
from explorer.torch_private import storage_key


def step_of(module: nn.Module, batch: Batch, *, loss: Loss | None = None) -> Callable[[], None]:
    """A callable that runs forward and backward of one step and drops the gradients.

    Args:
        module: a model, or one that ``apply`` made (which knows its loss).
        batch: as for ``capture``.
        loss: as for ``capture``.
    """
    if isinstance(module, ScheduledModule):
        loss = type(module).plan.capture.loss
        step: nn.Module = module
    else:
        step = TrainingStep(module, loss)
    args, kwargs = call_arguments(batch, loss=loss)

    def run() -> None:
        # Like a training loop, hold all that the step returns until it has gone back.
        results = pytree.tree_leaves(step(*args, **kwargs))
        losses = [x for x in results if _differentiable(x)]
        torch.autograd.backward(losses, [torch.ones_like(x) for x in losses])
        del results, losses
        for parameter in module.parameters():
            parameter.grad = None

    return run


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


@contextlib.contextmanager
def unchanged(module: nn.Module) -> Iterator[None]:
    """Put back buffers, gradients and random state when left."""
    buffers = [(x, x.detach().clone()) for x in module.buffers()]
    gradients = [(x, x.grad) for x in module.parameters()]
    devices = {x.device for x in module.parameters() if x.device.type == "cuda"}
    for parameter, _ in gradients:
        parameter.grad = None
    with torch.random.fork_rng(devices=[x.index for x in devices], enabled=True):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in buffers:
                    buffer.copy_(value)
            for parameter, gradient in gradients:
                parameter.grad = gradient


def persistent_bytes(module: nn.Module, batch: Batch) -> int:
    """Parameters, buffers and batch, each storage once, as the device's allocator rounds it."""
    tensors = [*module.parameters(), *module.buffers(), *pytree.tree_leaves(batch)]
    storages = {storage_key(x): x.untyped_storage() for x in tensors if isinstance(x, torch.Tensor)}
    return sum(
        round_up(x.nbytes(), CUDA_ROUNDING_BYTES) if x.device.type == "cuda" else x.nbytes() for x in storages.values()
    )
