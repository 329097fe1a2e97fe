"""What users give to the functions of this package: taken, or refused in one sentence with the remedy.

Plain values; profiles, schedules and budgets are in ``kinds``, models and batches in ``torch_arguments``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from explorer.units import shown

_LONGEST = 255  # bytes, of a name in the file systems of today


def several(values: Any, name: str, *, such_as: str) -> list[Any]:
    """The members of a collection.

    Raises:
        ValueError: it is a single text, or nothing that has members.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ValueError(f"{name} is {shown(values)}; it must be a list, such as {such_as}")
    return list(values)


def a_number(
    value: Any, name: str, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf, what: str
) -> float:
    """A finite number within limits.

    Args:
        value: what was given.
        name: of the argument.
        least: the smallest allowed.
        above: what it must be larger than.
        most: the largest allowed.
        what: is allowed, in words.

    Raises:
        ValueError: it is none.
    """
    fits = _is(value, Real) and least <= value <= most and value > above
    if not fits or math.isinf(value):
        raise ValueError(f"{name} is {shown(value)}; it must be {what}")
    return float(value)


def a_whole_number(value: Any, name: str, *, least: int, most: int | None = None) -> int:
    """A whole number from ``least`` to ``most``.

    Raises:
        ValueError: it is none.
    """
    fits = _is(value, Integral) and value >= least
    if not fits or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} is {shown(value)}; it must be a whole number, {allowed}")
    return int(value)


def a_flag(value: Any, name: str) -> bool:
    """True or False; anything else that Python takes for either would hide a mistake.

    Raises:
        ValueError: it is neither.
    """
    if value is not True and value is not False:
        raise ValueError(f"{name} is {shown(value)}; it must be True or False")
    return value


def a_path(value: Any, *, instead: str = "") -> Path:
    """A path.

    Args:
        value: what was given.
        instead: what else may be given, as ``", or …"``.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
        raise ValueError(f"path is {shown(value)}; it must be the path of a file{instead}")
    path = Path(value)
    if any(len(part.encode(errors="replace")) > _LONGEST for part in path.parts):
        raise ValueError(f"path is {shown(str(value))}, too long for the name of a file{instead}")
    return path


def a_callback(value: Any, name: str) -> None:
    """Something to call, or None.

    Raises:
        ValueError: it is neither.
    """
    if value is not None and not callable(value):
        raise ValueError(f"{name} is {shown(value)}; it must be a function, or None")


def a_loss(value: Any) -> Callable[[Any, Any], Any] | None:
    """A loss function, or None.

    Raises:
        ValueError: it is something else; says what to give instead.
    """
    if value is None or (callable(value) and not isinstance(value, type)):
        return value
    remedy = "it must be a function of (output, target), such as torch.nn.functional.cross_entropy, or None"
    if isinstance(value, type):
        remedy = f"make one of it: {value.__name__}()"
    raise ValueError(f"loss is {shown(value)}; {remedy}")


def _is(value: Any, kind: type) -> bool:
    """Is it a number of this kind? True and False count as numbers in Python, but no one means them as such."""
    return isinstance(value, kind) and not isinstance(value, bool)
