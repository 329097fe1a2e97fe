"""Other curves for the trade-off plot: other choices of implementations, and other methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from explorer.device_profile import Profile
from explorer.graph import FAITHFUL, Optimization
from explorer.solution import Solution
from explorer.solvers import trade_off
from explorer.solvers.methods import METHODS, Answers, Method
from explorer.solvers.options import Options

_POINTS = 10
_TIME_LIMIT_S = 3.0


@dataclass(frozen=True)
class Curve:
    """A way to get schedules for many budgets.

    Attributes:
        title: for the legend.
        make: called with a profile and budgets in bytes; yields answers as they come.
    """

    title: str
    make: Callable[[Profile, Sequence[int]], Iterator[Solution]]


def known_curves() -> dict[str, Curve]:
    """By name: MONeT with fewer optimizations, then the other methods that ``explorer.solve`` has."""
    found = {"checkpointing": Curve("checkpointing alone", _of_optimizations())}
    for optimization in (x for x in Optimization if x in FAITHFUL):
        found[f"{optimization.value} alone"] = Curve(f"{optimization.value} alone", _of_optimizations(optimization))
    others = {name: method for name, method in METHODS.items() if not name.startswith("monet")}
    return found | {name: Curve(method.title, _of_method(method)) for name, method in others.items()}


def budgets(smallest_bytes: int, plain_bytes: int) -> tuple[int, ...]:
    """Where the curves of other methods are computed."""
    return tuple(np.linspace(smallest_bytes, plain_bytes, _POINTS).astype(np.int64).tolist())


def _of_optimizations(*chosen: Optimization) -> Callable[[Profile, Sequence[int]], Iterator[Solution]]:
    def make(profile: Profile, _: Sequence[int]) -> Iterator[Solution]:
        yield from trade_off(profile, optimizations=[x.value for x in chosen])

    return make


def _of_method(method: Method) -> Callable[[Profile, Sequence[int]], Iterator[Solution]]:
    options = Options(method.name, time_limit=_TIME_LIMIT_S)

    def make(profile: Profile, budgets_bytes: Sequence[int]) -> Iterator[Solution]:
        # What answers many budgets from one table is asked once; the others one by one: points show as they come.
        once = method.answers is Answers.CURVE
        for asked in [budgets_bytes] if once else [[x] for x in budgets_bytes]:
            yield from method.solve(profile, asked, options=options)

    return make
