"""What a model's forward pass leaves behind in Python objects: noticed, and undone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import nn

_WHOLE = (type, FunctionType, MethodType, BuiltinFunctionType, ModuleType, torch.Tensor, torch.Generator)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_LONG = 10_000
_DEEP = 6


@dataclass(frozen=True)
class Change:
    """An attribute or element that is another object after a forward pass.

    Attributes:
        owner: what it belongs to: the path of the module, with what lies below it.
        name: of the attribute, or the key.
        before: None where there was nothing; of an attribute that was the class's, what that said.
        after: likewise.
    """

    owner: str
    name: str
    before: Any
    after: Any

    @property
    def place(self) -> str:
        """As a person would write it, below the model."""
        return f"{self.owner}{self.name}" if self.name.startswith("[") else f"{self.owner}.{self.name}"


class ObjectState:
    """The attributes of a module and of everything below it, containers included, as they are now."""

    def __init__(self, module: nn.Module, name: str) -> None:
        """Take note of everything; tensors and their values are left alone."""
        self._contents: list[tuple[Any, Any, str, type]] = []
        seen: set[int] = set()
        pending = [(module, name, 0)]
        while pending:
            value, path, depth = pending.pop()
            if id(value) in seen or isinstance(value, _WHOLE):
                continue
            seen.add(id(value))
            for container in _containers(value):
                kind = object if container is value else type(value)
                self._contents.append((container, _copied(container), path.removeprefix("step."), kind))
                below = 0 if isinstance(value, nn.Module) else depth + 1
                if below < _DEEP:
                    pending += [(x, _path(path, key, value), below) for key, x in _items(container)]

    def changes(self) -> list[Change]:
        """What is another object now; equal plain values do not count."""
        return [
            x for container, before, path, kind in self._contents for x in _differences(container, before, path, kind)
        ]

    def restore(self) -> None:
        """Put everything back."""
        for container, before, _, _ in self._contents:
            if not _same(container, before):
                _fill(container, before)


def _containers(value: Any) -> Iterator[Any]:
    """The value itself if it is a container, and the dict of its attributes."""
    if isinstance(value, dict | list | set | deque) and len(value) <= _LONG:
        yield value
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield attributes


def _said_by(kind: type, key: Any) -> Any:
    """A number or the like that a class has for the objects that have none of their own yet; None for anything else."""
    found = next((vars(x)[key] for x in kind.__mro__ if key in vars(x)), None)
    return found if isinstance(found, _PLAIN) else None


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(container, dict):
        yield from container.items()
    elif isinstance(container, list | deque):
        yield from enumerate(container)


def _path(path: str, key: Any, owner: Any) -> str:
    if isinstance(owner, nn.Module) and key in ("_modules", "_parameters", "_buffers"):
        return path
    return f"{path}.{key}" if isinstance(key, str) and key.isidentifier() else f"{path}[{key!r}]"


def _copied(container: Any) -> Any:
    return dict(container) if isinstance(container, dict) else container.copy()


def _same(container: Any, before: Any) -> bool:
    if len(container) != len(before):
        return False
    if isinstance(container, dict):
        return all(key in container and container[key] is value for key, value in before.items())
    if isinstance(container, set):
        return container == before
    return all(a is b for a, b in zip(container, before, strict=True))


def _fill(container: Any, before: Any) -> None:
    container.clear()
    if isinstance(container, dict | set):
        container.update(before)
    else:
        container.extend(before)


def _differences(container: Any, before: Any, path: str, kind: type) -> Iterator[Change]:
    if _same(container, before):
        return
    if isinstance(container, set):
        yield Change(path, f"[{len(before)} elements]", len(before), len(container))
        return
    then, now = dict(_items(before)), dict(_items(container))
    for key in {**then, **now}:
        old, new = then[key] if key in then else _said_by(kind, key), now.get(key)
        if old is not new and not _equal(old, new):
            yield Change(path, key if isinstance(key, str) else f"[{key!r}]", old, new)


def _equal(old: Any, new: Any) -> bool:
    return isinstance(old, (*_PLAIN, tuple)) and type(old) is type(new) and _holds_no_tensor(old) and old == new


def _holds_no_tensor(value: Any) -> bool:
    return not isinstance(value, tuple) or not any(isinstance(x, torch.Tensor | tuple) for x in value)
