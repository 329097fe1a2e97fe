"""Values that a captured step took as they were: noted, and compared with what is there later."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import nn

from explorer.capture.mentions import is_installed, is_of_a_library

AGAIN = "profile, solve and apply again, with the model as it is now"
_DEPTH = 4
_CONTAINERS = list | dict | set | deque
_MOST_NUMBERS = 2**16
"""Of an array whose numbers are compared at each call."""


@dataclass(frozen=True)
class Watched:
    """Attributes of one object, and what they were.

    Attributes:
        path: of the module, empty for the model itself.
        values: where the attributes are.
        read: gets all of them at once.
        names: theirs, in that order.
        expected: what ``read`` got; containers as copies.
    """

    path: str
    values: Mapping[Any, Any]
    read: Callable[[Mapping[Any, Any]], Any]
    names: tuple[Any, ...]
    expected: tuple[Any, ...]

    @classmethod
    def of(
        cls, path: str, values: Mapping[Any, Any], names: list[Any], *, kept: Callable[[Any], Any] | None = None
    ) -> Watched:
        """Take note of what these attributes are; ``kept`` makes what is compared with each, else ``snapshot``."""
        # The first name twice, so that one name makes a tuple too: in tuples, one object is equal to itself.
        read = itemgetter(names[0], *names)
        return cls(path, values, read, tuple(names), tuple(map(kept or snapshot, read(values))))

    @property
    def has_containers(self) -> bool:
        """Can what is watched change without a write to the attributes, or without a trace of one?"""
        return not isinstance(self.values, dict) or any(map(_can_change, self.expected))

    def holds(self) -> bool:
        """Are they still?"""
        try:
            return bool(self.expected == self.read(self.values))
        except (KeyError, RuntimeError, ValueError, TypeError):
            return False  # gone, or a tensor or array in the place of another

    def change(self) -> str:
        """In words, the first attribute that is another."""
        for name, before in zip(self.names, self.expected[1:], strict=True):
            now = self.values.get(name)
            if not _equal(before, now):
                return _told(self.path, name, before, now)
        return f"{self.path or 'the model'} changed"


class Same:
    """Equal to one object alone: of that, what is read is watched where it is."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: object) -> None:
        """This one."""
        self.value = value

    def __eq__(self, other: object) -> bool:
        """Is it the very one?"""
        return other is self.value


class _Array:
    """The numbers of an array, which is equal to one with the same."""

    __array_ufunc__ = None  # so that it is asked, and not each of an array's numbers
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: np.ndarray) -> None:
        self.numbers = array.copy()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, np.ndarray) or (other.dtype, other.shape) != (self.numbers.dtype, self.numbers.shape):
            return False
        return other.tobytes() == self.numbers.tobytes()

    def __repr__(self) -> str:
        return repr(self.numbers)


def snapshot(value: Any, *, depth: int = _DEPTH) -> Any:
    """The value; of containers and arrays a copy, with copies of those in them. It is equal to what it is of."""
    if isinstance(value, np.ndarray) and value.size <= _MOST_NUMBERS and not value.dtype.hasobject:
        return _Array(value)
    if not depth or not isinstance(value, _CONTAINERS | tuple):
        return value
    if isinstance(value, dict):
        return {key: snapshot(x, depth=depth - 1) for key, x in value.items()}
    if isinstance(value, set):
        return set(value)
    inside = (snapshot(x, depth=depth - 1) for x in value)
    return deque(inside) if isinstance(value, deque) else list(inside) if isinstance(value, list) else tuple(inside)


def _can_change(kept: Any) -> bool:
    return isinstance(kept, _CONTAINERS | _Array) or (isinstance(kept, tuple) and any(map(_can_change, kept)))


def attributes(value: Any) -> Mapping[str, Any] | None:
    """What an object holds, in its dict or in slots; None if it is no object with attributes of its own."""
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        return own
    kind = type(value)
    has_slots = any("__slots__" in vars(x) for x in kind.__mro__)
    return _Slots(value) if has_slots and not is_of_a_library(kind) and not is_installed(kind.__module__) else None


class _Slots(Mapping[str, Any]):
    """The attributes of an object that has no dict, as they are."""

    def __init__(self, value: object) -> None:
        self._value = value
        given = (vars(x).get("__slots__", ()) for x in type(value).__mro__)
        self._names = [name for x in given for name in ((x,) if isinstance(x, str) else x)]

    def __getitem__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self._value, name)
        except AttributeError as error:
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        return (x for x in self._names if x in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _equal(before: Any, now: Any) -> bool:
    if before is now:
        return True
    try:
        return bool(before == now)
    except (RuntimeError, ValueError, TypeError):
        return False


def _told(path: str, name: str, before: Any, now: Any) -> str:
    if name == "training":
        modes = ("training", "evaluation") if before else ("evaluation", "training")
        call = f"{path}.train({before})" if path else f"train({before})"
        was = f"{path or 'the model'} was captured in {modes[0]} mode and is in {modes[1]} mode now"
        return f"{was}: call {call}, or {AGAIN}"
    before = before.value if isinstance(before, Same) and isinstance(before.value, nn.Module) else before
    full = f"{path} {name!r}" if path.startswith("in ") else f"{path}.{name}" if path else name
    if (
        isinstance(before, Same)
        or isinstance(now, torch.Tensor | nn.Module)
        or isinstance(before, torch.Tensor | nn.Module)
    ):
        # Values are looked up anew in every step.
        remedy = (
            "load the new one's state into it (load_state_dict)" if isinstance(before, nn.Module) else "put it back"
        )
        return f"{full} is another {type(now).__name__} than the one that was captured: {remedy}, or {AGAIN}"
    return f"{full} is {now!r}, and was {before!r} when the step was captured: put it back, or {AGAIN}"
