"""What may be asked of the solvers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.device_profile import Profile
from explorer.graph import FAITHFUL, Optimization
from explorer.solvers.methods import METHODS
from explorer.solvers.pins import NO_PINS, Pins
from explorer.solvers.problem import Problem

PINNABLE = ("monet", "monet-checkpointing")
FORMULATIONS = ("grouped", "paper")
ALL_OPTIMIZATIONS = FAITHFUL

_SEEDS = 10**6

Optimizations = str | Iterable[str]
"""``"all"``, ``"none"``, or names of optimizations."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to solve.

    Attributes:
        method: name of one of ``METHODS``.
        formulation: one of ``FORMULATIONS``.
        time_limit: seconds for each budget.
        gap: stop once the schedule is proven to be within this of the fastest, relative to its time.
        optimizations: which implementations may be chosen beside PyTorch's own.
        exact: only bit-exact implementations.
        seed: of the plan search.
        pins: what is decided already.
    """

    method: str = "monet"
    formulation: str = "grouped"
    time_limit: float = 10.0
    gap: float = 0.01
    optimizations: frozenset[Optimization] = ALL_OPTIMIZATIONS
    exact: bool = False
    seed: int = 0
    pins: Pins = NO_PINS

    def __post_init__(self) -> None:
        """Raises ValueError for options that mean nothing."""
        if self.method not in METHODS:
            raise ValueError(f"method is {self.method!r}; allowed: {', '.join(map(repr, METHODS))}")
        if self.pins and self.method not in PINNABLE:
            raise ValueError(f"pins are for {' and '.join(map(repr, PINNABLE))}, not for method {self.method!r}")
        if self.formulation not in FORMULATIONS:
            raise ValueError(f"formulation is {self.formulation!r}; allowed: {', '.join(map(repr, FORMULATIONS))}")
        if not 0 <= self.seed < _SEEDS:
            raise ValueError(f"seed is {self.seed}; it must be from 0 to {_SEEDS - 1}")
        if not 0 < self.time_limit < float("inf"):
            raise ValueError(f"time_limit is {self.time_limit}; it must be a positive number of seconds")
        if not 0 <= self.gap < float("inf"):
            raise ValueError(f"gap is {self.gap}; it must be 0 or more, such as 0.01 for 1 %")

    def problem(self, profile: Profile) -> Problem:
        """The problem that these options make of a profile.

        Raises:
            ValueError: pins that cannot be honoured.
        """
        return Problem.of(profile, optimizations=self.optimizations, exact=self.exact, pins=self.pins)


def parse_optimizations(optimizations: Optimizations) -> frozenset[Optimization]:
    """``"all"``, ``"none"``, one name (also several with commas between), or names, as a set.

    Raises:
        ValueError: a name is unknown; says which there are.
    """
    if isinstance(optimizations, str):
        if optimizations in ("all", "none"):
            return ALL_OPTIMIZATIONS if optimizations == "all" else frozenset()
        optimizations = optimizations.split(",")
    names = [str(name).strip() for name in optimizations]
    known = [str(x) for x in Optimization]
    if unknown := [name for name in names if name not in known]:
        allowed = ", ".join(map(repr, ["all", "none", *known]))
        raise ValueError(f"optimizations has {unknown[0]!r}; allowed: {allowed}")
    return frozenset(Optimization(name) for name in names)
