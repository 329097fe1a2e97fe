"""The calls that PyTorch makes within blocks, seen as a policy of selective checkpointing sees them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import SAC_IGNORED_OPS

from explorer.autocast import Autocast
from explorer.capture import Batch, Loss
from explorer.capture.ambient import autocast_region
from explorer.capture.batch import TrainingStep, call_arguments
from explorer.execution.device import device_of
from explorer.execution.steps import unchanged
from explorer.torch_private import storage_key, written_by


@dataclass(frozen=True, slots=True)
class Call:
    """An operator that PyTorch called.

    Attributes:
        name: of the operator, as ``aten.addmm.default``.
        changes_buffers: it changed a buffer of the model, and would do so again.
        overwritten: what it made was changed in place later.
    """

    name: str
    changes_buffers: bool
    overwritten: bool = False


def calls_of_blocks(
    model: nn.Module, blocks: Collection[str], batch: Batch, *, loss: Loss | None, autocast: Autocast | None
) -> dict[str, list[Call]]:
    """Run the forward pass once and watch every block; the model is as before afterwards.

    Args:
        model: in training mode.
        blocks: paths of modules.
        batch: as for ``apply``.
        loss: likewise.
        autocast: of the forward pass; None: as it is here.

    Raises:
        ValueError: a block is called more than once in a step.
    """
    watched: dict[str, list[_Watch]] = {name: [] for name in blocks}
    kind = device_of(model).type
    region = autocast_region(*([] if autocast is None else [(kind, autocast)]))
    args, kwargs = call_arguments(batch, loss=loss)
    with unchanged(model, batch, loss=loss), _forwards(model, watched), region, torch.enable_grad():
        TrainingStep(model, loss)(*args, **kwargs)
    for name, times in watched.items():
        if len(times) != 1:
            raise ValueError(
                f"block {name!r} is called {len(times)} times in a step, and a policy is for one call: form='python' "
                "can say this schedule"
            )
    return {name: watch.calls for name, (watch,) in watched.items()}


@contextmanager
def _forwards(model: nn.Module, watched: dict[str, list[_Watch]]) -> Iterator[None]:
    """While open, the blocks' forward passes are watched."""
    modules = {name: model.get_submodule(name) for name in watched}
    own = {name: module.__dict__.get("forward") for name, module in modules.items()}
    for name, module in modules.items():
        module.forward = partial(_watching, module.forward, module, watched[name])
    try:
        yield
    finally:
        for name, module in modules.items():
            del module.forward
            if own[name] is not None:
                module.__dict__["forward"] = own[name]


def _watching(forward: Callable[..., Any], block: nn.Module, watches: list[_Watch], *args: Any, **kwargs: Any) -> Any:
    watches.append(_Watch(block))
    with watches[-1]:
        return forward(*args, **kwargs)


class _Watch(TorchDispatchMode):
    """What one call of a block calls, but for what no policy is asked about.

    Attributes:
        calls: in order.
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._buffers = {storage_key(x): (x, x.detach().clone()) for x in block.buffers()}
        self._makers: dict[int, int] = {}  # of memory to the call that made what is there

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call, and note it."""
        result = func(*args, **(kwargs or {}))
        if func not in SAC_IGNORED_OPS:
            self._note(func, args, kwargs or {}, result)
        return result

    def _note(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        given, made = _tensors((args, kwargs)), _tensors(result)
        changed = any(self._has_changed(storage_key(x)) for x in given)
        for tensor in written_by(operator, args, kwargs):
            maker = self._makers.get(storage_key(tensor))
            if maker is not None:
                self.calls[maker] = replace(self.calls[maker], overwritten=True)
        passed_on = {storage_key(x) for x in given} - {storage_key(x) for x in written_by(operator, args, kwargs)}
        for tensor in made:
            if storage_key(tensor) not in passed_on:
                self._makers[storage_key(tensor)] = len(self.calls)
        self.calls.append(Call(str(operator), changed))

    def _has_changed(self, key: int) -> bool:
        if key not in self._buffers:
            return False
        buffer, before = self._buffers[key]
        if torch.equal(buffer, before):
            return False
        self._buffers[key] = buffer, buffer.detach().clone()
        return True


def _tensors(values: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]
