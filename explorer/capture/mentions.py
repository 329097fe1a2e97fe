"""What the text of functions mentions: of all that is around them, that is what they can read."""

from __future__ import annotations

import dis
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partialmethod
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

UNPACKED = "**"
"""Among what a function mentions: it reads all that some dict has."""
_UNPACKING = ("DICT_MERGE", "DICT_UPDATE")
_INSTALLED = {"site-packages", "dist-packages"}
_LIBRARIES = ("torch", "transformers", "explorer", "numpy", "builtins", "math", "functools")


def is_of_a_library(thing: type | FunctionType | ModuleType) -> bool:
    """Is a class, function or module not the user's? What libraries read does not change between two steps."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    return str(name).partition(".")[0] in _LIBRARIES


def is_installed(module: str, file: str | None = None) -> bool:
    """Is a module Python's own, or, by its file, one of an installed package?"""
    return module.partition(".")[0] in sys.stdlib_module_names or not _INSTALLED.isdisjoint(Path(file or "").parts)


def comes_installed(thing: type | FunctionType) -> bool:
    """Is a class or function Python's own, or of an installed package?"""
    module = str(thing.__module__)
    return is_installed(module, getattr(sys.modules.get(module), "__file__", None))


def mentioned(function: FunctionType) -> frozenset[str]:
    """Names of globals, attributes and keys in a function's text, that of functions within it included."""
    return _in_code(function.__code__)


def globals_read(function: FunctionType) -> frozenset[str]:
    """Names of variables around a function that it reads, that of functions within it included: no attributes."""
    return _read_in(function.__code__)


@cache
def _read_in(code: CodeType) -> frozenset[str]:
    inside = [_read_in(x) for x in code.co_consts if isinstance(x, CodeType)]
    names = (x.argval for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    return frozenset[str]().union(names, *inside)


@cache
def _in_code(code: CodeType) -> frozenset[str]:
    inside = [_in_code(x) for x in code.co_consts if isinstance(x, CodeType)]
    unpacked = {UNPACKED} if any(x.opname in _UNPACKING for x in dis.get_instructions(code)) else ()
    texts = (x for x in code.co_consts if isinstance(x, str))
    return frozenset[str]().union(code.co_names, code.co_freevars, texts, unpacked, *inside)


def of_users(kind: type) -> list[type]:
    """A class and those that it is made of, as far as they are no library's."""
    return [x for x in kind.__mro__ if not is_of_a_library(x)]


@dataclass(frozen=True)
class Method:
    """A method that a step runs.

    Attributes:
        owner: the class that it is written in.
        name: there.
        function: the method, or what a property calls.
    """

    owner: type
    name: str
    function: Any


def underlying(value: Any) -> FunctionType | None:
    """The function of a method of any kind, a property, or what is wrapped to be kept; None for what is none."""
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, staticmethod | classmethod):
        value = value.__func__
    elif isinstance(value, cached_property | partialmethod):
        value = value.func
    if not isinstance(value, FunctionType | type):
        value = getattr(value, "__wrapped__", value)
    return value if isinstance(value, FunctionType) else None


def methods_run(
    kind: type, *, begin: frozenset[str] = frozenset({"forward"}), owners: Sequence[type] | None = None
) -> list[Method]:
    """Methods of a class by these names and what they call of it, by their names.

    Args:
        kind: the class.
        begin: names.
        owners: of what it is made of, the classes whose methods count; None: those that are no library's.
    """
    known: dict[str, list[Method]] = {}
    for owner in of_users(kind) if owners is None else owners:
        for name, value in vars(owner).items():
            if (function := underlying(value)) is not None:
                known.setdefault(name, []).append(Method(owner, name, function))
    pending = sorted(begin & known.keys())
    found = dict.fromkeys(x for name in pending for x in known[name])
    while pending:
        for method in known.get(pending.pop(), ()):
            new = {x for x in mentioned(method.function) & known.keys() if known[x][0] not in found}
            found |= dict.fromkeys(x for name in new for x in known[name])
            pending += new
    return list(found)


def mentioned_by(kind: type) -> frozenset[str]:
    """What these methods mention."""
    return frozenset[str]().union(*(mentioned(x.function) for x in methods_run(kind)))
