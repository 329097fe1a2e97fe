"""Models, batches and what else torch knows, as users give them: taken, or refused in one sentence with the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.units import shown

SHARDED = (
    "parameters of the model are sharded, by FSDP2 or tensor parallelism: each process has a part of them, which are "
    "gathered around layers, at times and in memory that no schedule of operators knows. Give the model before it is "
    "sharded, and put the scheduled module into DistributedDataParallel instead"
)


def is_part(tensor: torch.Tensor) -> bool:
    """Is it a part of one that several processes have together? By name: its module takes long to import."""
    return type(tensor).__name__ == "DTensor"


def gathers(pre_hooks: Mapping[int, Any]) -> bool:
    """Do a module's forward pre-hooks gather its parameters from several processes, as FSDP2's do?"""
    return any("fsdp" in getattr(x, "__module__", "") for x in pre_hooks.values())


class Scheduled:
    """Marks the modules that ``apply`` makes, so that what is below it can tell them.

    Attributes:
        model_class: of the model that was given its schedule.
    """

    model_class: type[nn.Module]


def a_model(value: Any) -> nn.Module:
    """A model to train, not one that is scheduled already.

    Raises:
        ValueError: it is something else; says what to give instead.
    """
    module = a_module(value, "model")
    if isinstance(module, Scheduled):
        kind = type(module).model_class.__name__
        raise ValueError(
            f"model is {shown(value)}, which apply made; give the {kind} that it was made of: they share parameters"
        )
    if gathers(module._forward_pre_hooks) or any(map(is_part, module.parameters())):  # noqa: SLF001
        raise ValueError(SHARDED)
    return module


def a_module(value: Any, name: str = "module") -> nn.Module:
    """A module with parameters, in training mode.

    Raises:
        ValueError: it is something else; says what to give instead.
    """
    if isinstance(value, type) and issubclass(value, nn.Module):
        raise ValueError(f"{name} is {shown(value)}, not one of its instances; make one first: {value.__name__}(…)")
    if not isinstance(value, nn.Module):
        swapped = isinstance(value, torch.Tensor | tuple | list | Mapping | Profile | Schedule | Solution)
        remedy = f", and the {name} comes first" if swapped else ""
        raise ValueError(f"{name} is {shown(value)}; it must be a torch.nn.Module{remedy}")
    if next(value.parameters(), None) is None:
        raise ValueError(f"{type(value).__name__} has no parameters, so that there is nothing to train")
    if not value.training:
        raise ValueError(f"{type(value).__name__} is in evaluation mode; call {name}.train() before")
    if torch.is_inference_mode_enabled():
        raise ValueError("a training step needs gradients, which torch.inference_mode() rules out; leave it before")
    return value


def a_batch(batch: Any, model: nn.Module) -> None:
    """Check a batch for a model: tensors, in whatever structure, where the model is.

    Raises:
        ValueError: there is no tensor in it, or nothing in its tensors, an array of NumPy instead of one, or one is on
            another device.
    """
    leaves = list(_leaves(batch))
    for name, leaf in leaves:
        if isinstance(leaf, np.ndarray):
            raise ValueError(f"{name} is an array of NumPy; make it a tensor: torch.as_tensor({name})")
    tensors = [(name, leaf) for name, leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors:
        remedy = "give a tensor, a tuple or a dict of tensors"
        if not isinstance(batch, Mapping | Sequence) and hasattr(batch, "__iter__"):
            remedy = "give one batch of it, such as next(iter(loader))"
        raise ValueError(f"batch is {shown(batch)}, which holds no tensor; {remedy}")
    if not any(x.numel() for _, x in tensors):
        name, tensor = tensors[0]
        raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, with nothing in it: give one sample at least")
    here = next(model.parameters()).device
    # Lengths and the like stay on the CPU, whatever the model's device.
    allowed = {here.type} if here.type in ("cpu", "meta") else {here.type, "cpu"}
    for name, tensor in tensors:
        if tensor.device.type not in allowed:
            raise ValueError(f"{name} is on {tensor.device}, the model on {here}; move it with .to({str(here)!r})")


def _leaves(batch: Any) -> Iterator[tuple[str, Any]]:
    """What a batch holds, by the names that messages have for it."""
    plain = dict(batch) if isinstance(batch, Mapping) else batch
    for path, leaf in pytree.tree_flatten_with_path(plain)[0]:
        yield "batch" + pytree.keystr(path), leaf


def a_device(device: Any, model: nn.Module) -> None:
    """Check a device that was named for a model: None, or where that is.

    Raises:
        ValueError: it is no device, or the model is elsewhere.
    """
    if device is None:
        return
    if not isinstance(device, str | torch.device):
        raise ValueError(f"device is {shown(device)}; allowed: 'cpu' and 'cuda'")
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device {shown(device)} is unknown; allowed: 'cpu' and 'cuda'") from error
    here = next(model.parameters()).device
    if wanted.type != here.type:
        raise ValueError(f"the model is on {here}, not on {device}; move it and the batch with .to({str(device)!r})")
