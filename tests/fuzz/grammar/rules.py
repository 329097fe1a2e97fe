"""Lines of code with places for variables and sizes, by family.

Places: ``x`` a tensor as the family wants it, ``s`` one of the same shape, ``y`` any, ``i`` whole numbers, ``r`` the
result; ``d`` and ``e`` dimensions of x, ``k`` a size within ``d``, ``j`` a position; ``L`` the last size, ``C`` the
second, ``S`` the shape, ``P`` a permutation; ``o`` a number of features, ``f`` a number, ``p`` a probability, ``n`` the
line's own number, ``m`` the number of a layer that an earlier line made, or its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Fits = Callable[[torch.Tensor], bool]


@dataclass(frozen=True)
class Rule:
    """A line that may be drawn: its code, the lines of ``__init__`` that it needs, and which tensors fit."""

    code: str
    setup: tuple[str, ...] = ()
    fits: Fits = bool


@dataclass(frozen=True)
class Family:
    """Rules that are drawn as often as those of any other family, times the weight."""

    name: str
    weight: int
    rules: tuple[Rule, ...]


def anything(x: torch.Tensor) -> bool:
    return x.ndim >= 0


def shaped(x: torch.Tensor) -> bool:
    return x.ndim >= 1


def rows(x: torch.Tensor) -> bool:
    return x.ndim >= 2


def sequence(x: torch.Tensor) -> bool:
    return x.ndim == 3


def image(x: torch.Tensor) -> bool:
    return x.ndim == 4 and min(x.shape[2:]) >= 2


def family(name: str, weight: int, fits: Fits, *lines: str | tuple[str, ...]) -> Family:
    """Each line is code, or code followed by the lines of ``__init__``."""
    rules = [Rule(line, (), fits) if isinstance(line, str) else Rule(line[0], line[1:], fits) for line in lines]
    return Family(name, weight, tuple(rules))
