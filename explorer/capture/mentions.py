"""What the text of functions mentions: of all that is around them, that is what they can read."""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_INSTALLED = {"site-packages", "dist-packages"}
_LIBRARIES = ("torch", "transformers", "explorer", "numpy", "builtins", "math", "functools")


def is_of_a_library(thing: type | FunctionType | ModuleType) -> bool:
    """Is a class, function or module not the user's? What libraries read does not change between two steps."""
    name = thing.__name__ if isinstance(thing, ModuleType) else thing.__module__
    return str(name).partition(".")[0] in _LIBRARIES


def is_installed(module: str, file: str | None = None) -> bool:
    """Is a module Python's own, or, by its file, one of an installed package?"""
    return module.partition(".")[0] in sys.stdlib_module_names or not _INSTALLED.isdisjoint(Path(file or "").parts)


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
    return frozenset[str]().union(
        code.co_names, code.co_freevars, (x for x in code.co_consts if isinstance(x, str)), *inside
    )


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


def methods_run(kind: type) -> list[Method]:
    """The forward method of a class and what it calls of the class, by their names, as far as they are no library's."""
    known: dict[str, list[Method]] = {}
    for owner in of_users(kind):
        for name, value in vars(owner).items():
            function = value.fget if isinstance(value, property) else value
            if isinstance(function, FunctionType):
                known.setdefault(name, []).append(Method(owner, name, function))
    pending, found = ["forward"], dict.fromkeys(known.get("forward", ()))
    while pending:
        for method in known.get(pending.pop(), ()):
            new = {x for x in mentioned(method.function) & known.keys() if known[x][0] not in found}
            found |= dict.fromkeys(x for name in new for x in known[name])
            pending += new
    return list(found)


def mentioned_by(kind: type) -> frozenset[str]:
    """What these methods mention."""
    return frozenset[str]().union(*(mentioned(x.function) for x in methods_run(kind)))
