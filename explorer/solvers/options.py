"""What may be asked of the solvers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from explorer.arguments import a_flag, a_number, a_whole_number
from explorer.device_profile import Profile
from explorer.graph import FAITHFUL, Optimization
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.pins import NO_PINS, Pins
from explorer.solvers.problem.problem import Problem
from explorer.solvers.strategy import DEFAULT, Strategy
from explorer.units import shown

PINNABLE = ("monet", "monet-checkpointing")
FORMULATIONS = ("grouped", "paper")

_SEEDS = 10**6
_ALLOWED = ", ".join(map(repr, ["all", "none", *map(str, Optimization)]))

Optimizations = str | Iterable[str]
"""``"all"``, ``"none"``, or names of optimizations."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to solve.

    Attributes:
        method: name of one of ``explorer.solvers.methods.table.METHODS``, which says so where it is not.
        formulation: one of ``FORMULATIONS``.
        time_limit: seconds for each budget.
        gap: stop once the schedule is proven to be within this of the fastest, relative to its time.
        optimizations: which implementations may be chosen beside PyTorch's own.
        exact: only bit-exact implementations.
        seed: of the plan search.
        pins: what is decided already.
        order: operators may be put in another order first.
        strategy: how MONeT's joint problem is worked at.
    """

    method: str = "monet"
    formulation: str = "grouped"
    time_limit: float = 10.0
    gap: float = 0.01
    optimizations: frozenset[Optimization] = FAITHFUL
    exact: bool = False
    seed: int = 0
    pins: Pins = NO_PINS
    order: bool = False
    strategy: Strategy = DEFAULT

    def __post_init__(self) -> None:
        """Raises ValueError for options that mean nothing."""
        if self.pins and self.method not in PINNABLE:
            raise ValueError(f"pins are for {' and '.join(map(repr, PINNABLE))}, not for method {self.method!r}")
        if not isinstance(self.formulation, str) or self.formulation not in FORMULATIONS:
            raise ValueError(f"formulation is {shown(self.formulation)}; allowed: {', '.join(map(repr, FORMULATIONS))}")
        a_whole_number(self.seed, "seed", least=0, most=_SEEDS - 1)
        a_number(self.time_limit, "time_limit", above=0, what="a positive number of seconds")
        a_number(self.gap, "gap", least=0, what="0 or more, such as 0.01 for 1 %")
        a_flag(self.exact, "exact")
        a_flag(self.order, "order")

    def problem(self, profile: Profile) -> Problem:
        """The problem that these options make of a profile.

        Raises:
            ValueError: pins that cannot be honoured.
        """
        return problem_of(profile, optimizations=self.optimizations, exact=self.exact, pins=self.pins)


def parse_optimizations(optimizations: Optimizations) -> frozenset[Optimization]:
    """``"all"``, ``"none"``, one name (also several with commas between), or names, as a set.

    Raises:
        ValueError: a name is unknown; says which there are.
    """
    if not isinstance(optimizations, Iterable) or isinstance(optimizations, bytes):
        raise ValueError(f"optimizations is {shown(optimizations)}; allowed: {_ALLOWED}")
    if isinstance(optimizations, str):
        if optimizations in ("all", "none"):
            return FAITHFUL if optimizations == "all" else frozenset()
        optimizations = optimizations.split(",")
    names = [str(name).strip() for name in optimizations]
    known = [str(x) for x in Optimization]
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"optimizations has {shown(unknown[0])}; allowed: {_ALLOWED}")
    return frozenset(Optimization(name) for name in names)
