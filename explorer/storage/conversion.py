"""Frozen dataclasses to plain JSON types and back, with every entry checked; needs nothing beyond Python.

What crosses a stage is made of few types: dataclasses, enums of strings, tuples, dicts by strings, numbers, truth
values, strings, None and unions of those. A machine that profiles or runs has PyTorch and often little else, so this
leans on no library.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Sequence
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")
Convert = Callable[[Any], Any]
_PLAIN = frozenset({int, str, float, bool, type(None)})
_LONGEST = 2000  # characters of a text, many times what names and notes have: messages quote them


class WrongContentError(ValueError):
    """An entry that does not fit.

    Attributes:
        path: where it stands, from the outermost: names of fields, keys, positions.
        said: what is wrong with it.
    """

    def __init__(self, said: str, path: tuple[str | int, ...] = ()) -> None:
        """With nothing around it yet."""
        super().__init__(said)
        self.said = said
        self.path = path

    def within(self, part: str | int) -> WrongContentError:
        """The same, seen from one level further out."""
        return WrongContentError(self.said, (part, *self.path))

    def __str__(self) -> str:
        """As ``costs.relu.time_ms: it is missing``."""
        return f"{'.'.join(map(str, self.path)) or 'its structure'}: {self.said}"


def to_plain(value: Any) -> Any:
    """A value as JSON has it: objects, lists, strings, numbers."""
    kind = type(value)
    return value if kind in _PLAIN else _writer(kind)(value)


@cache
def _writer(kind: type) -> Convert:
    """What makes values of ``kind`` plain."""
    if dataclasses.is_dataclass(kind):
        names = [x.name for x in dataclasses.fields(kind)]
        return lambda value: {name: to_plain(getattr(value, name)) for name in names}
    if issubclass(kind, tuple | list):
        return lambda value: [x if type(x) in _PLAIN else to_plain(x) for x in value]
    if issubclass(kind, dict):
        return lambda value: {str(key): to_plain(x) for key, x in value.items()}
    if issubclass(kind, Enum):
        return lambda value: value.value
    # What passes for a string or a number without being one exactly: PyTorch's version, NumPy's floats.
    plain = next((x for x in (str, float, int) if issubclass(kind, x)), None)
    assert plain is not None, f"{kind.__name__} is not among the types that are stored"
    return plain


def from_plain(content: Any, kind: type[T]) -> T:
    """What ``to_plain`` made, as a ``kind`` again. Fields that ``kind`` does not have are left out.

    Raises:
        WrongContentError: an entry is missing, of another type, or refused by its class.
    """
    return cast("T", _reader(kind)(content))


@cache
def _reader(kind: Any) -> Convert:
    """What turns plain content into a ``kind``; made once for each."""
    origin, of = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _of_dataclass(cast("type", kind))
    if origin in (Union, types.UnionType):
        return _of_union(of)
    if origin is tuple:
        return _of_many(_reader(of[0])) if of[-1] is Ellipsis else _of_few([_reader(x) for x in of])
    if origin is dict:
        return _of_dict(_reader(of[1]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _of_enum(kind)
    return {int: _whole, float: _number, str: _text, bool: _truth, type(None): _nothing}[kind]


def _of_dataclass(kind: type) -> Convert:
    hints = get_type_hints(kind)
    fields = [
        (
            x.name,
            _reader(hints[x.name]),
            x.default is dataclasses.MISSING and x.default_factory is dataclasses.MISSING,
        )
        for x in dataclasses.fields(kind)
    ]

    def read(content: Any) -> Any:
        if not isinstance(content, dict):
            raise WrongContentError(f"it must be an object with the fields of {kind.__name__}, not {content!r:.40}")
        values = {}
        for name, convert, required in fields:
            if name in content:
                try:
                    values[name] = convert(content[name])
                except WrongContentError as error:
                    raise error.within(name) from None
            elif required:
                raise WrongContentError("it is missing", (name,))
        try:
            return kind(**values)
        except ValueError as error:
            raise WrongContentError(str(error)) from error

    return read


def _of_union(kinds: Sequence[Any]) -> Convert:
    """The first that fits; of dataclasses, the one whose required fields are there."""
    needed = {
        frozenset(x.name for x in dataclasses.fields(kind) if x.default is dataclasses.MISSING): _reader(kind)
        for kind in kinds
        if dataclasses.is_dataclass(kind)
    }
    readers = [_reader(kind) for kind in kinds if not dataclasses.is_dataclass(kind)]

    def read(content: Any) -> Any:
        if isinstance(content, dict):
            for names, convert in needed.items():
                if names <= content.keys():
                    return convert(content)
        for convert in readers:
            try:
                return convert(content)
            except WrongContentError:
                continue
        names = " or ".join(getattr(x, "__name__", str(x)) for x in kinds)
        raise WrongContentError(f"it must be {names}, not {content!r:.40}")

    return read


def _of_many(convert: Convert) -> Convert:
    def read(content: Any) -> Any:
        if not isinstance(content, list | tuple):
            raise WrongContentError(f"it must be a list, not {content!r:.40}")
        found: list[Any] = []
        try:
            for x in content:
                found.append(convert(x))  # noqa: PERF401 - its length says where it stopped
        except WrongContentError as error:
            raise error.within(len(found)) from None
        return tuple(found)

    return read


def _of_few(converters: Sequence[Convert]) -> Convert:
    def read(content: Any) -> Any:
        if not isinstance(content, list | tuple) or len(content) != len(converters):
            raise WrongContentError(f"it must be a list of {len(converters)}, not {content!r:.40}")
        return tuple(convert(x) for convert, x in zip(converters, content, strict=True))

    return read


def _of_dict(convert: Convert) -> Convert:
    def read(content: Any) -> Any:
        if not isinstance(content, dict):
            raise WrongContentError(f"it must be an object, not {content!r:.40}")
        found = {}
        for key, x in content.items():
            name = _text(key if isinstance(key, str) else str(key))
            try:
                found[name] = convert(x)
            except WrongContentError as error:
                raise error.within(name) from None
        return found

    return read


def _of_enum(kind: type[Enum]) -> Convert:
    known = {x.value: x for x in kind}

    def read(content: Any) -> Any:
        if isinstance(content, str) and content in known:
            return known[content]
        raise WrongContentError(f"it is {content!r:.40}; allowed: {', '.join(map(repr, known))}")

    return read


def _whole(content: Any) -> int:
    if type(content) is int:
        return content
    if isinstance(content, float) and content.is_integer():
        return int(content)
    raise WrongContentError(f"it must be a whole number, not {content!r:.40}")


def _number(content: Any) -> float:
    # YAML takes 1e3, without a point, for a string.
    if isinstance(content, float | int | str) and not isinstance(content, bool):
        try:
            return float(content)
        except (ValueError, OverflowError):
            pass
    raise WrongContentError(f"it must be a number, not {content!r:.40}")


def _text(content: Any) -> str:
    if isinstance(content, str) and len(content) <= _LONGEST:
        return content
    if isinstance(content, str):
        raise WrongContentError(f"it is a text of {len(content)} characters, {content!r:.40}…; allowed: {_LONGEST}")
    raise WrongContentError(f"it must be a string, not {content!r:.40}")


def _truth(content: Any) -> bool:
    if isinstance(content, bool):
        return content
    raise WrongContentError(f"it must be true or false, not {content!r:.40}")


def _nothing(content: Any) -> None:
    if content is not None:
        raise WrongContentError(f"it must be null, not {content!r:.40}")
