"""Other curves for the trade-off plot: other choices of implementations, and other methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from explorer import solvers
from explorer.device_profile import Profile
from explorer.graph import FAITHFUL, Optimization
from explorer.solution import Solution
from explorer.solvers.methods.table import METHODS, Answers, Method
from explorer.solvers.options import Options

_POINTS = 10
_TIME_LIMIT_S = 3.0

Make = Callable[[Profile, Sequence[int], Callable[[], None]], Iterator[Solution]]
"""Called with a profile, budgets in bytes, and what to call between two searches: that may raise to stop."""


@dataclass(frozen=True)
class Curve:
    """A way to get schedules for many budgets.

    Attributes:
        title: for the legend.
        make: yields answers as they come.
        by_budget: one for each budget, so that it is known how many there will be.
    """

    title: str
    make: Make
    by_budget: bool = False


def known_curves() -> dict[str, Curve]:
    """By name: MONeT with fewer optimizations, then the other methods that ``explorer.solve`` has."""
    found = {"checkpointing": Curve("checkpointing alone", _of_optimizations())}
    for optimization in (x for x in Optimization if x in FAITHFUL):
        found[f"{optimization.value} alone"] = Curve(f"{optimization.value} alone", _of_optimizations(optimization))
    others = {name: method for name, method in METHODS.items() if not name.startswith("monet")}
    return found | {name: Curve(method.title, _of_method(method), by_budget=True) for name, method in others.items()}


def budgets(smallest_bytes: int, plain_bytes: int) -> tuple[int, ...]:
    """Where the curves of other methods are computed."""
    return tuple(np.linspace(smallest_bytes, plain_bytes, _POINTS).astype(np.int64).tolist())


def _of_optimizations(*chosen: Optimization) -> Make:
    def make(profile: Profile, _budgets: Sequence[int], look: Callable[[], None]) -> Iterator[Solution]:
        def should_stop(improves: bool) -> bool:  # noqa: FBT001 - as ``trade_off_in_steps`` calls it
            look()
            return improves  # ``trade_off`` ends there too

        *_, curve = solvers.trade_off_in_steps(
            profile, optimizations=[x.value for x in chosen], should_stop=should_stop
        )
        yield from curve

    return make


def _of_method(method: Method) -> Make:
    options = Options(method.name, time_limit=_TIME_LIMIT_S)

    def make(profile: Profile, budgets_bytes: Sequence[int], look: Callable[[], None]) -> Iterator[Solution]:
        # What answers many budgets from one table is asked once; the others one by one: points show as they come.
        once = method.answers is Answers.CURVE
        for asked in [budgets_bytes] if once else [[x] for x in budgets_bytes]:
            look()
            yield from method.solve(profile, asked, options=options)

    return make
