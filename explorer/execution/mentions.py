"""What the text of functions mentions: of all that is around them, that is what they can read."""

from __future__ import annotations

from functools import cache
from types import CodeType, FunctionType

_LIBRARIES = ("torch", "transformers", "explorer", "numpy", "builtins", "math", "functools")


def is_of_a_library(thing: type | FunctionType) -> bool:
    """Is a class or function not the user's? What libraries read does not change between two steps."""
    return str(thing.__module__).partition(".")[0] in _LIBRARIES


def mentioned(function: FunctionType) -> frozenset[str]:
    """Names of globals, attributes and keys in a function's text, that of functions within it included."""
    return _in_code(function.__code__)


@cache
def _in_code(code: CodeType) -> frozenset[str]:
    inside = [_in_code(x) for x in code.co_consts if isinstance(x, CodeType)]
    return frozenset[str]().union(
        code.co_names, code.co_freevars, (x for x in code.co_consts if isinstance(x, str)), *inside
    )


def methods_of(kind: type) -> dict[str, FunctionType]:
    """Methods that a class has of its own."""
    return {name: x for name, x in vars(kind).items() if isinstance(x, FunctionType)}


def of_users(kind: type) -> list[type]:
    """A class and those that it is made of, as far as they are no library's."""
    return [x for x in kind.__mro__ if not is_of_a_library(x)]


def mentioned_by(kind: type) -> frozenset[str]:
    """What all methods of a class mention, as far as they are no library's."""
    return frozenset[str]().union(*(mentioned(x) for base in of_users(kind) for x in methods_of(base).values()))
