"""What a model's forward passes read of its modules that is no tensor: settings that an exported file compares."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import nn

from explorer.capture.mentions import globals_read, mentioned, methods_run, of_users
from explorer.execution.guards import is_settings, set_by_hugging_face
from explorer.execution.watched import attributes
from explorer.exporting.planned import setting

_MODULES_OWN = frozenset(vars(nn.Module())) | {"forward"}
_DEPTH = 4
_MOST_PARTS = 64
_MOST_LETTERS = 200
_PLAIN = (type(None), bool, int, float, complex, str, torch.dtype)


def settings_read(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Of each module by its path: names of settings, with what ``setting`` says of them.

    Of torch's own modules these are what their forward methods mention; of others, what any of the model's does, as a
    module may read its child's. What nothing mentions (a count of steps that a training loop keeps) may be another
    when a file is loaded, and is left out.
    """
    modules = dict(model.named_modules())
    names = {kind: _mentioned(kind) for kind in {type(x) for x in modules.values()}}
    common = frozenset[str]().union(*(x for kind, x in names.items() if not _is_torchs(kind)))
    seen: set[int] = set()
    return {path: dict(_settings(x, names[type(x)] | common, seen)) for path, x in modules.items()}


def _is_torchs(thing: type | FunctionType) -> bool:
    return str(thing.__module__).partition(".")[0] == "torch"


def _mentioned(kind: type, begin: str = "forward") -> frozenset[str]:
    """What the forward method of a class mentions, with the methods and functions that this calls."""
    owners = [x for x in kind.__mro__ if x not in (nn.Module, object)]
    found, before = frozenset({begin}), frozenset[str]()
    while found != before:  # a method may be called by a function, or by what a decorator is around
        methods = methods_run(kind, begin=found, owners=owners)
        found, before = found | _followed([x.function for x in methods]), found
    return found


def _followed(functions: list[FunctionType]) -> frozenset[str]:
    """What functions mention, and those that they call, are around, or hold."""
    pending = [(x, _DEPTH) for x in functions]
    found: set[str] = set()
    seen: set[FunctionType] = set()
    while pending:
        function, depth = pending.pop()
        if function in seen:
            continue
        seen.add(function)
        found |= mentioned(function)
        called = [function.__globals__.get(x) for x in globals_read(function)]
        called += [inspect.unwrap(function), *(x.cell_contents for x in function.__closure__ or () if _is_filled(x))]
        pending += [(x, depth - 1) for x in called if depth and isinstance(x, FunctionType) and not _is_torchs(x)]
    return frozenset(found)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _settings(module: nn.Module, names: frozenset[str], seen: set[int]) -> Iterator[tuple[str, Any]]:
    of_class = {name: x for kind in reversed(of_users(type(module))) for name, x in vars(kind).items()}
    held = {name: x for name, x in of_class.items() if _is_plain(x)} | vars(module)
    kept = names - _MODULES_OWN
    yield from _of({x: held[x] for x in sorted(kept & held.keys())}, names, seen, depth=_DEPTH)


def _of(held: Mapping[str, Any], names: frozenset[str], seen: set[int], *, depth: int) -> Iterator[tuple[str, Any]]:
    """Settings among attributes or entries, and in what holds some itself; configurations each once."""
    for name, value in held.items():
        named = callable(value) and not isinstance(value, nn.Module) and isinstance(setting(value), str)
        plain = _is_plain(value)
        if named or plain or (isinstance(value, tuple | list) and _is_short(value)):
            yield name, setting(value)
        if not depth or plain or id(value) in seen:
            continue
        if isinstance(value, dict) or is_settings(value):
            seen.add(id(value))
        for inner, found in _of(_within(value, names), names, seen, depth=depth - 1):
            yield f"{name}.{inner}", found


def _within(value: Any, names: frozenset[str]) -> Mapping[str, Any]:
    """What a dict, a list, a partial or an object holds, by what ``setting_at`` finds it by."""
    if isinstance(value, tuple | list):
        return {str(index): x for index, x in enumerate(value)} if _is_short(value) else {}
    if isinstance(value, partial):
        given = {f"keywords.{name}": x for name, x in value.keywords.items()}
        return {"func": value.func, "args": value.args, "keywords": tuple(sorted(value.keywords)), **given}
    if isinstance(value, dict):
        held, read = value, names
    elif is_settings(value):
        held, read = attributes(value) or {}, names - set_by_hugging_face(value)
    elif _is_called(value):
        held, read = attributes(value) or {}, names | _mentioned(type(value), "__call__")
    else:
        return {}
    return {x: y for x, y in held.items() if isinstance(x, str) and x.isidentifier() and x in read}


def _is_short(value: tuple[Any, ...] | list[Any]) -> bool:
    return len(value) <= _MOST_PARTS


def _is_called(value: Any) -> bool:
    """Is it an object of a class of the user's with ``__call__``, neither a function, nor a class, nor a module?"""
    of_another = isinstance(value, nn.Module | type | FunctionType | torch.Tensor)
    return callable(value) and not of_another and bool(of_users(type(value)))


def _is_plain(value: Any, *, depth: int = _DEPTH) -> bool:
    """Is it a number, a text or the like, or a tuple, list or set of some?"""
    if isinstance(value, tuple | list | set | frozenset):
        return depth > 0 and len(value) <= _MOST_PARTS and all(_is_plain(x, depth=depth - 1) for x in value)
    if isinstance(value, str) and len(value) > _MOST_LETTERS:
        return False
    return type(setting(value) if isinstance(value, Enum | np.generic) else value) in _PLAIN
