"""What the functions of a step read besides their arguments: variables around a loss or a forward method."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import groupby
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from explorer.capture.mentions import (
    globals_read,
    is_installed,
    is_of_a_library,
    mentioned,
    mentioned_by,
    methods_run,
    of_users,
)
from explorer.execution.guards import is_settings
from explorer.execution.watched import Watched, attributes

_PLAIN = (bool, int, float, complex, str, type(None), torch.Tensor, torch.dtype, torch.device, np.generic)
_DEPTH = 4  # of objects in objects
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
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, FunctionType | partial | MethodType) and not _is_part(value, module):
                following.callable(name, value)
    return following.found


def _is_part(function: Any, module: nn.Module) -> bool:
    """A method of the module itself is followed with its class."""
    return isinstance(function, MethodType) and function.__self__ is module


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
            below = mentioned(function.func) if isinstance(function.func, FunctionType) else frozenset[str]()
            self._values(name, given, frozenset(given) | below)
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
            if used & {"environ", "getenv"}:
                self._values(f"{name}, the environment", os.environ, used)
            read = globals_read(function)
            for values, only in ((function.__globals__, read), (_Cells(function), used)):
                self._values(name, values, used, only=only)
                self._functions(values, used, only=only, depth=depth + 1)
        elif callable(function) and not isinstance(function, type | nn.Module):
            own = getattr(function, "__dict__", {})
            self._values(name, own, frozenset(own))

    def _functions(
        self, values: Mapping[Any, Any], used: frozenset[Any], *, depth: int, only: frozenset[Any] | None = None
    ) -> None:
        """Of these, what is mentioned and is a function, of modules that are no library's too."""
        for key in (used if only is None else only) & values.keys():
            value = values[key]
            if isinstance(value, FunctionType | partial | MethodType):
                self.callable(key, value, depth=depth)
            elif _is_users(value) and depth <= _MOST_CALLS and isinstance(value, ModuleType):
                self._functions(vars(value), used, depth=depth + 1)

    def _values(
        self,
        name: str,
        values: Mapping[Any, Any],
        used: frozenset[Any],
        *,
        depth: int = _DEPTH,
        only: frozenset[Any] | None = None,
    ) -> None:
        """Of these, what is mentioned (of globals, ``only`` those): values, and what is mentioned of objects."""
        names = [x for x in values if x in (used if only is None else only)]
        plain = [x for x in names if isinstance(values[x], _PLAIN) or _is_small(values[x])]
        if plain:
            self.found.append(Watched.of(f"in {name}, the variable", values, plain))
        for x in names if depth else ():
            self._within(f"{name}, {x}", values[x], used, depth=depth - 1)

    def _within(self, name: str, value: Any, used: frozenset[Any], *, depth: int) -> None:
        """What is mentioned of what is in a value."""
        if isinstance(value, nn.Module):
            for path, module in value.named_modules(prefix=name):
                self._module(path, module)
        elif isinstance(value, dict):
            self._values(name, value, used, depth=depth)
        elif isinstance(value, list | tuple | deque) and len(value) <= _MOST_VALUES:
            for number, x in enumerate(value if depth else ()):
                self._within(f"{name}[{number}]", x, used, depth=depth - 1)
        elif _is_users(value) or (is_settings(value) and not is_of_a_library(type(value))):
            self._values(name, attributes(value) or vars(value), used, depth=depth)

    def _module(self, name: str, module: nn.Module) -> None:
        """A criterion, say, that a loss has around it."""
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        for values in (vars(module), module._buffers):  # noqa: SLF001 - tensors are compared by which they are
            own = {x for x, y in values.items() if isinstance(y, _PLAIN) and not x.startswith("_")}
            self._values(name, values, frozenset(own), depth=0)


def _is_users(value: Any) -> bool:
    """Is it a class or a module (a file of Python) that is no library's?"""
    if isinstance(value, ModuleType):
        return not is_of_a_library(value) and not is_installed(value.__name__, getattr(value, "__file__", None))
    return isinstance(value, type) and not is_of_a_library(value) and not issubclass(value, torch.Tensor)


def _is_small(value: Any, *, depth: int = _DEPTH) -> bool:
    """Is it an array, or a container of a few numbers and texts, which can be compared at each call?"""
    if isinstance(value, np.ndarray):
        return True
    if not depth or not isinstance(value, list | tuple | set | deque) or len(value) > _MOST_VALUES:
        return False
    return all(
        (isinstance(x, _PLAIN) and not isinstance(x, torch.Tensor)) or _is_small(x, depth=depth - 1) for x in value
    )


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
