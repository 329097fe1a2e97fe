"""A copy of a user's model, so that what runs in the background and what their next cell does never meet."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn, optim
from torch.utils import _pytree as pytree

from explorer.capture.mentions import is_of_a_library
from explorer.execution.device import device_of, free_bytes
from explorer.execution.optimizers import Updater, with_loss
from explorer.torch_private import storage_key
from explorer.units import format_bytes

_MOST_OF_FREE = 0.125
"""What a copy may take of the memory that is free: a step has to fit beside it, and the user's training."""


@dataclass(frozen=True)
class Example:
    """What a training step is made of.

    Attributes:
        model: to train.
        batch: for it.
        loss: as in ``explorer.profile``.
        optimizer: likewise.
        why_shared: why it is the user's own, not a copy; empty for a copy.
    """

    model: Any
    batch: Any
    loss: Any
    optimizer: Any = None
    why_shared: str = ""


def apart(model: nn.Module, batch: Any, loss: Any, optimizer: Any) -> Example:
    """A copy of all of it; the user's own, with the reason, where none can be made."""
    try:
        _check_room(model, batch)
        _check_reached(model, loss, optimizer)
        with torch.no_grad():
            copied, its_batch, its_loss = copy.deepcopy((model, batch, loss))
        if isinstance(optimizer, optim.Optimizer):  # without its state, which another one like it is given
            trained = [x for x in with_loss(copied, its_loss).parameters() if x.requires_grad]
            optimizer = Updater.of(optimizer, with_loss(model, loss)).over(trained)
    except Exception as error:  # noqa: BLE001 - of whatever a user's classes do when they are copied
        why = str(error).partition("\n")[0] or type(error).__name__
        return Example(model, batch, loss, optimizer, why_shared=f"no copy of {type(model).__name__} was made: {why}")
    if device_of(model).type == "cuda":
        torch.cuda.synchronize()  # another thread may use another stream
    return Example(copied, its_batch, its_loss, optimizer)


def _check_room(model: nn.Module, batch: Any) -> None:
    tensors = [*model.parameters(), *model.buffers(), *pytree.tree_leaves(batch)]
    held = {storage_key(x): x.untyped_storage().nbytes() for x in tensors if isinstance(x, torch.Tensor)}
    free = free_bytes(device_of(model))
    if sum(held.values()) > _MOST_OF_FREE * free:
        raise ValueError(f"it has {format_bytes(sum(held.values()))}, and {format_bytes(free)} are free")


def _check_reached(model: nn.Module, loss: Any, optimizer: Any) -> None:
    """Raise ValueError where a function has the model in its text: it would have it still where a copy is run."""
    parts = [*with_loss(model, loss).modules()]
    own = {id(x) for x in (*parts, *model.parameters(), *model.buffers())}
    pending = [*_functions([loss, optimizer, *(type(x).forward for x in parts), *map(vars, parts)])]
    seen: set[FunctionType] = set()
    while pending:
        function = pending.pop()
        if function in seen or is_of_a_library(function):
            continue
        seen.add(function)
        named = [*_named(function)]
        held = [x for thing in named if not isinstance(thing, type | ModuleType) for x in _attributes(thing)]
        if any(id(x) in own for x in (*named, *held)):
            raise ValueError(f"{function.__qualname__} has the model itself in its text")
        pending += _functions(named)


def _functions(things: Iterable[Any]) -> Iterator[FunctionType]:
    """Those among some things, and in dicts of them: attributes of a module, its hooks."""
    for thing in things:
        if isinstance(thing, dict):
            yield from _functions([x for x in thing.values() if isinstance(x, dict | FunctionType)])
        elif isinstance(thing, FunctionType):
            yield thing


def _attributes(thing: object) -> list[object]:
    """What an object holds, such as the model that a trainer has."""
    return [*getattr(thing, "__dict__", {}).values()]


def _named(function: FunctionType) -> Iterator[object]:
    """What a function's text names: values around it, and globals."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # of a name that has no value yet
            continue
    for name in _names(function.__code__):
        yield function.__globals__.get(name)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inside in code.co_consts:
        if isinstance(inside, CodeType):
            yield from _names(inside)
