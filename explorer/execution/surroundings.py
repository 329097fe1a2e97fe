"""What the functions of a step read besides their arguments: variables around a loss or a forward method."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from enum import Enum
from functools import partial
from itertools import groupby
from numbers import Number
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np
import torch
from torch import nn, optim

from explorer.capture.mentions import (
    UNPACKED,
    Method,
    comes_installed,
    globals_read,
    is_installed,
    is_of_a_library,
    mentioned,
    mentioned_by,
    methods_run,
    of_users,
    underlying,
)
from explorer.execution.asked import Asked, environment, of_thread, switches
from explorer.execution.guards import is_settings
from explorer.execution.watched import Same, Watched, attributes, snapshot

_PLAIN = (bool, str, bytes, type(None), Number, Enum, range, np.generic, torch.Tensor, torch.dtype, torch.device)
_DEPTH = 4  # of objects in objects
_MOST_VALUES = 64  # of a container in which objects are looked for
_MOST_KEPT = 4096  # of one whose numbers and texts are compared
_MOST_CALLS = 4  # from a forward method or a loss, of functions that are followed
_WHOLE = frozenset({"items", "values", "keys", "get", "copy", "update", UNPACKED})
"""Mentioned where any key of a dict may be read."""
_ALL_ATTRIBUTES = frozenset({"vars", "__dict__", "asdict", "astuple", "_asdict"})
_CALLED = frozenset({"__call__", "__init__", "__post_init__", "__getitem__", "__iter__", "__len__"})
_ASKED = (ref, ContextVar, threading.local)
_OF_AUTOGRAD = frozenset({"forward", "backward", "setup_context", "jvp", "vjp", "vmap"})


def watched_surroundings(model: nn.Module, loss: Any) -> list[Watched]:
    """Numbers, texts, objects and tensors that a trace took as they were, and that a later call may find changed."""
    modules = [*model.modules(), *(loss.modules() if isinstance(loss, nn.Module) else ())]
    following = _Following(modules)
    if loss is not None and not isinstance(loss, nn.Module):
        following.within("the loss", loss, frozenset())
    for kind in dict.fromkeys(getattr(type(x), "model_class", type(x)) for x in modules):
        following.kind(kind)
    for module in modules:
        used = mentioned_by(getattr(type(module), "model_class", type(module)))
        for name, value in vars(module).items():
            is_mentioned = name in used and not name.startswith("_") and (_is_own(value) or isinstance(value, _ASKED))
            if is_mentioned or (_is_function(value) and not _is_part(value, module)):
                following.within(name, value, used)
    return following.found


def _is_function(value: Any) -> bool:
    return isinstance(value, FunctionType | partial | MethodType)


def _is_part(function: Any, module: nn.Module) -> bool:
    """A method of the module itself is followed with its class."""
    return isinstance(function, MethodType) and function.__self__ is module


class _Following:
    """Goes from function to function, and to what these mention of objects."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.found: list[Watched] = []
        self._own = {id(x) for x in modules}
        self._parameters = {id(p) for x in modules for p in x.parameters(recurse=False)}
        self._seen: set[Any] = set(self._own)
        self._held: list[Any] = []  # so that no other object gets the id of one that was seen

    def kind(self, kind: type) -> None:
        """A module's class: what its forward method runs, and attributes that this mentions."""
        used = mentioned_by(kind)
        for base in of_users(kind):
            if self._first(base):
                self._values(base.__name__, vars(base), used)
        self._methods(methods_run(kind))

    def within(  # noqa: C901, PLR0912 - a branch for each kind of value
        self, name: str, value: Any, used: frozenset[Any], *, depth: int = _DEPTH, calls: int = 0
    ) -> None:
        """What is mentioned of what is in a value, or read where it is called.

        Args:
            name: in words.
            value: anything.
            used: what is mentioned around.
            depth: of objects in objects that is left.
            calls: how many functions were followed to come here.
        """
        if isinstance(value, FunctionType):
            self._function(name, value, calls=calls)
        elif isinstance(value, partial):
            self._values(name, value.keywords, frozenset(value.keywords), depth=depth, calls=calls)
            below = mentioned(value.func) if isinstance(value.func, FunctionType) else frozenset[str]()
            for number, x in enumerate(value.args):
                self.within(f"{name}, {number}", x, used | below, depth=depth, calls=calls)
            self.within(name, value.func, used, depth=depth, calls=calls)
        elif isinstance(value, MethodType):
            below = value.__func__
            begin = frozenset({below.__name__}) if isinstance(below, FunctionType) else frozenset[str]()
            self._object(name, value.__self__, begin, begin, depth=depth, calls=calls)
            self.within(name, below, used, depth=depth, calls=calls)
        elif isinstance(value, nn.Module):
            for path, module in value.named_modules(prefix=name):
                self._module(path, module)
        elif isinstance(value, dict) and type(value).__getattribute__ is dict.__getattribute__:
            keys = frozenset(value) if _is_read_whole(value, used) else used
            self._values(name, value, used, depth=depth, calls=calls, only=keys)
        elif isinstance(value, ref):
            target = value()
            if isinstance(target, nn.Module):  # it may be the model's own, of which this is a part
                self._values(name, vars(target), used, depth=depth, calls=calls)
            else:
                self.within(name, target, used, depth=depth, calls=calls)
        elif (asked := of_thread(value, used)) is not None:
            self._asked(f"in {name}, its", asked)
            for x in asked if depth else ():
                self.within(f"{name}, {x}", asked[x], used, depth=depth - 1, calls=calls)
        elif isinstance(value, list | tuple | deque):
            for number, x in enumerate(value if depth and len(value) <= _MOST_VALUES else ()):
                self.within(f"{name}[{number}]", x, used, depth=depth - 1, calls=calls)
        elif isinstance(value, type):
            self._class(name, value, used, depth=depth, calls=calls)
        elif isinstance(value, ModuleType):
            if _is_users(value) and self._first(value, used):
                self._values(name, vars(value), used, depth=depth, calls=calls + 1)
        elif _is_own(value) or isinstance(value, optim.Optimizer) or underlying(value) is not None:
            self._object(name, value, used, _CALLED, depth=depth, calls=calls)

    def _is_models(self, value: Any) -> bool:
        """Is it the model, or a part? ``model = apply(model, …)`` gives the name to another that shares all."""
        if not isinstance(value, nn.Module):
            return False
        parameters = {id(x) for x in value.parameters()}
        return id(value) in self._own or (bool(parameters) and parameters <= self._parameters)

    def _first(self, *what: Any) -> bool:
        """Was this not looked at yet, with the same mentioned?"""
        key = tuple(x if isinstance(x, frozenset) else id(x) for x in what)
        key = key[0] if len(key) == 1 else key
        if key in self._seen:
            return False
        self._seen.add(key)
        self._held.append(what)
        return True

    def _function(self, name: str, function: FunctionType, *, calls: int) -> None:
        """Variables around it, its default arguments and attributes."""
        if calls > _MOST_CALLS or is_of_a_library(function) or not self._first(function):
            return
        cells, read = _Cells(function), globals_read(function)
        if comes_installed(function):  # of its own it may keep what it likes: caches, loggers
            around = function.__globals__
            if plain := [x for x in read & around.keys() if isinstance(around[x], _PLAIN)]:
                self.found.append(Watched.of(f"in {name}, the variable", around, plain))
            return
        # What is passed on is read by what is called.
        below = [mentioned(x) for x in _called(function.__globals__, read) + _called(cells, frozenset(cells))]
        used = mentioned(function).union(*below)
        if used & {"environ", "getenv"}:
            around = (function.__globals__.get(x) for x in read)
            texts = frozenset(x for x in (*around, *cells.values()) if isinstance(x, str))
            self._asked(f"in {name}, the environment's", environment(used | texts))
        self._asked(f"in {name}, PyTorch's", switches(used))
        for values, only in ((function.__globals__, read), (cells, frozenset(cells))):
            self._values(name, values, used, only=only, calls=calls + 1)
        defaults = {**_defaults(function), **(function.__kwdefaults__ or {})}
        self._values(name, defaults, used, only=frozenset(defaults), calls=calls + 1)
        self._values(name, vars(function), used, calls=calls + 1)
        if isinstance(wrapped := getattr(function, "__wrapped__", None), FunctionType):
            self._function(name, wrapped, calls=calls)

    def _methods(self, methods: list[Method], *, calls: int = 0) -> None:
        """Those that a class runs: they stay what they are, and read what is around them."""
        for owner, some in groupby(methods, lambda x: x.owner):
            names = [x.name for x in some]
            self.found.append(Watched.of(f"in {owner.__name__}, the method", vars(owner), names))
        for method in methods:
            self._function(f"{method.owner.__name__}.{method.name}", method.function, calls=calls)

    def _object(
        self, name: str, value: Any, used: frozenset[Any], begin: frozenset[str], *, depth: int, calls: int
    ) -> None:
        """Attributes that are mentioned, of it or of its class, also by its methods that are mentioned.

        ``begin`` has the methods that are run without being mentioned.
        """
        if (function := underlying(value)) is not None:
            self._function(name, function, calls=calls)
        if not depth or not self._first(value, used):
            return
        methods = methods_run(type(value), begin=begin | used) if _is_users(type(value)) else []
        used = used.union(*(mentioned(x.function) for x in methods))
        resolved = _Resolved(value)
        names = frozenset(attributes(value) or ()) if used & _ALL_ATTRIBUTES else used
        self._values(name, resolved, used, only=names, depth=depth - 1, calls=calls)
        self._methods(methods, calls=calls + 1)

    def _class(self, name: str, kind: type, used: frozenset[Any], *, depth: int, calls: int) -> None:
        """One of the user's: attributes and methods that are mentioned."""
        if not _is_users(kind) or not self._first(kind, used):
            return
        begin = used | _CALLED | (_OF_AUTOGRAD if issubclass(kind, torch.autograd.Function) else frozenset())
        methods = methods_run(kind, begin=begin)
        used = used.union(*(mentioned(x.function) for x in methods))
        for base in of_users(kind):
            self._values(name, vars(base), used, depth=max(0, depth - 1), calls=calls)
        self._methods(methods, calls=calls + 1)

    def _values(
        self,
        name: str,
        values: Mapping[Any, Any],
        used: frozenset[Any],
        *,
        depth: int = _DEPTH,
        calls: int = 0,
        only: frozenset[Any] | None = None,
    ) -> None:
        """Of these, what is mentioned (of globals, ``only`` those), and what is mentioned of what is in it."""
        names = [x for x in values if x in (used if only is None else only) and not self._is_models(values[x])]
        if names:
            self.found.append(Watched.of(f"in {name}, the variable", values, names, kept=partial(_kept, used=used)))
        for x in names if depth else ():
            self.within(f"{name}, {x}", values[x], used, depth=depth - 1, calls=calls)

    def _asked(self, path: str, asked: Asked) -> None:
        """What is asked for at every call."""
        if asked:
            self.found.append(Watched.of(path, asked, list(asked), kept=_kept))

    def _module(self, name: str, module: nn.Module) -> None:
        """A criterion, say, or a teacher, that a loss has around it."""
        if not self._first(module):
            return
        for values in (vars(module), module._buffers, module._parameters, module._modules):  # noqa: SLF001 - by which they are
            kept = [x for x, y in values.items() if isinstance(y, (*_PLAIN, nn.Module)) and not x.startswith("_")]
            if kept:
                self.found.append(Watched.of(f"in {name}, the variable", values, kept, kept=_kept))


def _called(values: Mapping[Any, Any], names: frozenset[Any]) -> list[FunctionType]:
    """The user's functions among these."""
    found = (values[x] for x in names & values.keys())
    return [x for x in found if isinstance(x, FunctionType) and not is_of_a_library(x)]


def _defaults(function: FunctionType) -> dict[str, Any]:
    given = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return dict(zip(names[len(names) - len(given) :], given, strict=True))


def _is_users(value: Any) -> bool:
    """Is it a class or a module (a file of Python) that is no library's?"""
    if isinstance(value, ModuleType):
        return not is_of_a_library(value) and not is_installed(value.__name__, getattr(value, "__file__", None))
    is_other = not isinstance(value, type) or is_of_a_library(value) or issubclass(value, torch.Tensor)
    return not is_other and not comes_installed(value)


def _is_own(value: Any) -> bool:
    """Is it an object with attributes that is not of a library?"""
    if isinstance(value, torch.Tensor | nn.Module | type | np.ndarray | ModuleType):
        return False
    is_called = callable(value) and attributes(value) is not None and _is_users(type(value))
    return is_called or (is_settings(value) and not is_of_a_library(type(value)))


def _is_read_whole(value: dict[Any, Any], used: frozenset[Any]) -> bool:
    """May any key be read? Where none is mentioned, nothing else can be why the dict is."""
    return len(value) <= _MOST_VALUES and bool(used & _WHOLE or not used & value.keys())


def _kept(value: Any, used: frozenset[Any] = frozenset(), *, depth: int = _DEPTH) -> Any:
    """What is compared with a value at each call: numbers and texts, also in containers; of others, which it is."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.ndarray):
        return snapshot(value)
    if isinstance(value, dict) and depth and _is_read_whole(value, used):
        return {key: _kept(x, used, depth=depth - 1) for key, x in value.items()}
    if not depth or not isinstance(value, list | tuple | set | frozenset | deque) or len(value) > _MOST_KEPT:
        return Same(value)
    if isinstance(value, set | frozenset):
        return set(value)
    inside = (_kept(x, used, depth=depth - 1) for x in value)
    return deque(inside) if isinstance(value, deque) else list(inside) if isinstance(value, list) else tuple(inside)


class _Resolved(Mapping[str, Any]):
    """The attributes of an object, its own and those of its class, as they are: a property is not called."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getitem__(self, name: str) -> Any:
        own = attributes(self._value)
        if own is not None and name in own:
            return own[name]
        for base in of_users(type(self._value)):
            if name in vars(base):
                return vars(base)[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(
            dict.fromkeys(
                [*(attributes(self._value) or ()), *(y for x in of_users(type(self._value)) for y in vars(x))]
            )
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
