"""What the solver is asked for, beside the budget."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.arguments import a_flag
from explorer.device_profile import Profile
from explorer.graph import Optimization
from explorer.solvers.options import Options
from explorer.solvers.problem.pins import NO_PINS, Pins
from explorer.solvers.search.plain_schedule import plain_schedule
from explorer.solvers.updates import with_updates
from explorer.units import shown


@dataclass(frozen=True)
class Choice:
    """What a session is asked for, by the names of its arguments.

    Attributes:
        optimizations: which implementations may be chosen beside PyTorch's own.
        exact: only bit-exact ones.
        time_limit: seconds for each budget.
        pins: what the user decided.
        update: when parameters are updated, ``"end"`` or ``"within"`` the backward pass; None: as the profile has it.
        order: solve in the order of operators with the least memory too.
    """

    optimizations: frozenset[Optimization]
    exact: bool = False
    time_limit: float = 10.0
    pins: Pins = NO_PINS
    update: str | None = None
    order: bool = False

    @property
    def schedules(self) -> tuple[frozenset[Optimization], bool, Pins, str | None, bool]:
        """What says which schedules are allowed; equal choices of these have the same curve."""
        return self.optimizations, self.exact, self.pins, self.update, self.order

    def same_session(self, other: Choice) -> bool:
        """Does a session for one serve the other too, once it is told?"""
        return (self.update, self.order) == (other.update, other.order)

    @property
    def options(self) -> Options:
        """As solvers take it.

        Raises:
            ValueError: for a choice that no session takes.
        """
        return Options(optimizations=self.optimizations, exact=self.exact, time_limit=self.time_limit, pins=self.pins)

    def check(self, profile: Profile | None) -> None:
        """Raise ValueError for a choice that no session takes; what is of a profile is checked where there is one."""
        options = self.options
        a_flag(self.order, "order")
        if self.update not in (None, "end", "within"):
            raise ValueError(f"update is {shown(self.update)}; allowed: 'end' or 'within', the backward pass")
        if profile is not None:
            chosen = self.profile_of(profile)
            if self.pins:
                plain_schedule(options.problem(chosen))

    def profile_of(self, profile: Profile) -> Profile:
        """The profile with updates when they are asked for.

        Raises:
            ValueError: it knows no such updates.
        """
        return profile if self.update is None else with_updates(profile, self.update)
