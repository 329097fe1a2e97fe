"""What the functions of a step read besides their arguments: variables around a loss or a forward method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from explorer.capture.mentions import is_of_a_library, mentioned, mentioned_by, methods_run, of_users
from explorer.execution.guards import Watched, is_settings

_PLAIN = (bool, int, float, complex, str, type(None), torch.Tensor, torch.dtype, torch.device)
_MOST_VALUES = 64
_MOST_CALLS = 4  # from a forward method or a loss, of functions that are followed


def watched_surroundings(model: nn.Module, loss: Any) -> list[Watched]:
    """Numbers, texts and tensors that a trace took as they were, and that a later call may find changed."""
    following = _Following()
    if loss is not None and not isinstance(loss, nn.Module):
        following.callable("the loss", loss)
    modules = [*model.modules(), *(loss.modules() if isinstance(loss, nn.Module) else ())]
    for kind in dict.fromkeys(getattr(type(x), "model_class", type(x)) for x in modules):
        following.kind(kind)
    return following.found


class _Following:
    """Goes from function to function, each once."""

    def __init__(self) -> None:
        self.found: list[Watched] = []
        self._seen: set[int] = set()

    def kind(self, kind: type) -> None:
        """A module's class: what its forward method runs, and attributes that this mentions."""
        used = mentioned_by(kind)
        for base in of_users(kind):
            if id(base) not in self._seen:
                self._seen.add(id(base))
                self._values(base.__name__, vars(base), used)
        for owner, methods in groupby(methods_run(kind), lambda x: x.owner):
            names = [x.name for x in methods]
            self.found.append(Watched.of(f"in {owner.__name__}, the method", vars(owner), names))
        for method in methods_run(kind):
            self.callable(f"{method.owner.__name__}.{method.name}", method.function)

    def callable(self, name: str, function: Any, *, depth: int = 0) -> None:
        """A function, or what is called like one."""
        if depth > _MOST_CALLS or id(function) in self._seen:
            return
        self._seen.add(id(function))
        if isinstance(function, partial):
            given = dict(enumerate(function.args)) | function.keywords
            self._values(name, given, frozenset(given))
            self.callable(name, function.func, depth=depth)
        elif isinstance(function, MethodType):
            own = getattr(function.__self__, "__dict__", {})
            below = function.__func__
            self._values(name, own, mentioned(below) if isinstance(below, FunctionType) else frozenset(own))
            self.callable(name, function.__func__, depth=depth)
        elif isinstance(function, FunctionType):
            if is_of_a_library(function):
                return
            used = mentioned(function)
            for values in (function.__globals__, _Cells(function)):
                self._values(name, values, used)
                for key in used & values.keys():
                    if isinstance(values[key], FunctionType | partial | MethodType):
                        self.callable(key, values[key], depth=depth + 1)
        elif callable(function) and not isinstance(function, type | nn.Module):
            own = getattr(function, "__dict__", {})
            self._values(name, own, frozenset(own))

    def _values(self, name: str, values: Mapping[Any, Any], used: frozenset[Any], *, deep: bool = True) -> None:
        """Of these, what is mentioned: values, and what is mentioned of objects."""
        names = [x for x in values if x in used]
        plain = [x for x in names if isinstance(values[x], _PLAIN) or _is_small(values[x])]
        if plain:
            self.found.append(Watched.of(f"in {name}, the variable", values, plain))
        for x in names if deep else ():
            value = values[x]
            if isinstance(value, nn.Module):
                for path, module in value.named_modules(prefix=str(x)):
                    self._module(f"{name}, {path}", module)
            elif isinstance(value, dict):
                self._values(f"{name}, {x}", value, used, deep=False)
            elif is_settings(value) and not is_of_a_library(type(value)):
                self._values(f"{name}, {x}", vars(value), used, deep=False)

    def _module(self, name: str, module: nn.Module) -> None:
        """A criterion, say, that a loss has around it."""
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        for values in (vars(module), module._buffers):  # noqa: SLF001 - tensors are compared by which they are
            own = {x for x, y in values.items() if isinstance(y, _PLAIN) and not x.startswith("_")}
            self._values(name, values, frozenset(own), deep=False)


def _is_small(value: Any) -> bool:
    """Is it a list or a set of a few numbers and texts, which can be compared at each call?"""
    if not isinstance(value, list | set) or len(value) > _MOST_VALUES:
        return False
    return all(isinstance(x, _PLAIN) and not isinstance(x, torch.Tensor) for x in value)


class _Cells(Mapping[str, Any]):
    """The variables of an enclosing function that a function reads, as they are."""

    def __init__(self, function: FunctionType) -> None:
        cells: tuple[CellType, ...] = function.__closure__ or ()
        self._cells = dict(zip(function.__code__.co_freevars, cells, strict=True))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError as error:  # not assigned yet
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._cells if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        try:
            self._cells[name].cell_contents  # type: ignore[index]  # noqa: B018 - raises where there is none
        except (KeyError, ValueError):
            return False
        return True
