"""What the solver is asked for, beside the budget."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.device_profile import Profile
from explorer.graph import Optimization
from explorer.solvers.options import Options
from explorer.solvers.problem.pins import NO_PINS, Pins
from explorer.solvers.search.plain_schedule import plain_schedule


@dataclass(frozen=True)
class Choice:
    """What a session is asked for, by the names of its arguments.

    Attributes:
        optimizations: which implementations may be chosen beside PyTorch's own.
        exact: only bit-exact ones.
        time_limit: seconds for each budget.
        pins: what the user decided.
    """

    optimizations: frozenset[Optimization]
    exact: bool = False
    time_limit: float = 10.0
    pins: Pins = NO_PINS

    @property
    def schedules(self) -> tuple[frozenset[Optimization], bool, Pins]:
        """What says which schedules are allowed; equal choices of these have the same curve."""
        return self.optimizations, self.exact, self.pins

    @property
    def options(self) -> Options:
        """As solvers take it.

        Raises:
            ValueError: for a choice that no session takes.
        """
        return Options(optimizations=self.optimizations, exact=self.exact, time_limit=self.time_limit, pins=self.pins)

    def check(self, profile: Profile | None) -> None:
        """Raise ValueError for a choice that no session takes; pins are checked where there is a profile."""
        options = self.options
        if profile is not None and self.pins:
            plain_schedule(options.problem(profile))
