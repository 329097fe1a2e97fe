"""What one forward pass does to memory: what is made in it, and when it changes what was there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from explorer.capture.places import plain_tensors
from explorer.torch_private import storage_key, written_by

_FRESH = (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift.default)
"""How a tensor that no operator made comes into a step: from numbers, or from NumPy."""


@dataclass(slots=True)
class _Attribute:
    """A buffer, or a tensor that a module keeps as a plain attribute.

    Attributes:
        path: from the model.
        owner: the dict that it is in.
        name: its key there.
        value: what it was when last looked at.
        block: the block that set it anew, if any did.
        time: when that was.
    """

    path: str
    owner: dict[str, Any]
    name: str
    value: Any
    block: str | None = None
    time: int = 0


class Memory(TorchDispatchMode):
    """While open, notes what every operator makes and writes.

    Memory goes by numbers, since an address is used again when what was there is gone.

    Attributes:
        now: how many operators were called, and attributes looked at.
        made: when memory was made, by its number; what was there before the step is not in it.
        writers: the operator that wrote to memory last, by its number.
    """

    def __init__(self, step: nn.Module) -> None:
        """``step`` is the model with its loss."""
        super().__init__()
        self.now = 0
        self.made: dict[int, int] = {}
        self.writers: dict[int, str] = {}
        self._written: dict[int, int] = {}  # when, last
        self._replaced: dict[int, int] = {}  # when an attribute was set to other memory
        self._numbers: dict[int, int] = {}  # by the address of what describes a storage
        self._next = count()
        self._attributes = list(_attributes_of(step))
        self._values: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for tensor in (x.value for x in self._attributes):
            self._values.setdefault(storage_key(tensor), []).append((tensor, tensor.detach().clone()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call, and note it."""
        given = {storage_key(x) for x in tensors_in((args, kwargs))}
        result = func(*args, **(kwargs or {}))
        self.now += 1
        for key in {storage_key(x) for x in tensors_in(result)}:
            if key not in given or func in _FRESH:
                self._numbers[key] = next(self._next)
                self.made[self._numbers[key]] = self.now
        declared = {storage_key(x) for x in written_by(func, args, kwargs or {})}
        for key in declared | {x for x in given if self._has_changed(x)}:
            number = self._number(key)
            self._written[number] = self.now
            self.writers[number] = str(func)
        return result

    def number(self, tensor: torch.Tensor) -> int:
        """Of the memory that a tensor is in."""
        return self._number(storage_key(tensor))

    def _number(self, key: int) -> int:
        if key not in self._numbers:
            self._numbers[key] = next(self._next)
        return self._numbers[key]

    def is_written_after(self, number: int, time: int) -> bool:
        """Does an operator write to it?"""
        return self._written.get(number, -1) > time

    def changes_after(self, number: int, time: int) -> bool:
        """Does what was read there read otherwise after the step?"""
        return self.is_written_after(number, time) or self._replaced.get(number, -1) > time

    def look(self, block: str | None = None) -> None:
        """Note which attributes were set to other tensors since this was last called.

        Args:
            block: what ran since then; None: nothing that runs again.

        Raises:
            ValueError: a block set one of them before.
        """
        self.now += 1
        for attribute in self._attributes:
            value = attribute.owner.get(attribute.name)
            if value is attribute.value:
                continue
            if attribute.block is not None:
                raise _set_twice(attribute)
            if isinstance(attribute.value, torch.Tensor):
                self._replaced[self.number(attribute.value)] = self.now
            attribute.value, attribute.block, attribute.time = value, block, self.now

    def check_attributes(self) -> None:
        """After the step.

        Raises:
            ValueError: what a block set anew was written to later, which would be lost when the block runs again.
        """
        for x in self._attributes:
            changed = isinstance(x.value, torch.Tensor) and self.is_written_after(self.number(x.value), x.time)
            if x.block is not None and changed:
                raise _set_twice(x)

    def _has_changed(self, key: int) -> bool:
        """By its values: some operators do not declare what they write."""
        changed = False
        for at, (tensor, before) in enumerate(self._values.get(key, ())):
            if not torch.equal(tensor, before):
                self._values[key][at] = tensor, tensor.detach().clone()
                changed = True
        return changed


def tensors_in(values: Any) -> list[torch.Tensor]:
    """All tensors of nested containers."""
    return [x for x in pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]


def _attributes_of(step: nn.Module) -> Iterator[_Attribute]:
    for path, module in step.named_modules():
        below = path.removeprefix("model").removeprefix(".")
        for owner, tensors in ((module._buffers, module._buffers), (vars(module), plain_tensors(module))):  # noqa: SLF001
            for name, value in tensors.items():
                if isinstance(value, torch.Tensor):
                    yield _Attribute(f"{below}.{name}".removeprefix("."), owner, name, value)


def _set_twice(attribute: _Attribute) -> ValueError:
    return ValueError(
        f"block {attribute.block!r} sets {attribute.path} to another tensor, which the step changes afterwards, so "
        "that the block cannot run again: form='python' can say this schedule"
    )
