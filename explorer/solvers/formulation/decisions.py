"""Which ways a run may take in a model: one by default, the others as variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from explorer.solvers.formulation.ways import Way, base_of
from explorer.solvers.programs.rows import Amount, scaled


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way with a variable of its own: ``block`` is ``a`` (binary) or ``q`` (continuous, in place)."""

    way: Way
    block: str
    position: int


@dataclass(frozen=True, slots=True)
class Decision:
    """How something runs that runs as often as its owner says: 1, or the value of a variable.

    Attributes:
        owner: of the run.
        base: the way it takes unless one of the others is chosen; None if it must be one of those.
        others: the variables; together at most the owner, or as much where there is no base.
    """

    owner: Amount
    base: Way | None
    others: tuple[Alternative, ...] = ()

    @property
    def ways(self) -> tuple[Way, ...]:
        """All of them."""
        return (*(() if self.base is None else (self.base,)), *(x.way for x in self.others))

    def amount(self, of: Callable[[Way], float]) -> Amount:
        """Σ of the values of the ways that run: bytes or milliseconds, say."""
        usual = 0.0 if self.base is None else of(self.base)
        terms, constant = scaled(self.owner, usual)
        extra = [(x.block, x.position, of(x.way) - usual) for x in self.others]
        return [*terms, *extra], constant

    def chosen(self, of: Callable[[Way], bool]) -> Amount:
        """1 if a way with a property runs, else 0."""
        return self.amount(lambda way: float(of(way)))


@dataclass(frozen=True, slots=True)
class Decisions:
    """How everything runs.

    Attributes:
        first: first runs, by forward operator; none for an optional one whose result is never of use.
        again: recomputations, by (group, node).
        backward: by (backward operator, index of its form).
    """

    first: dict[int, Decision]
    again: dict[tuple[int, int], Decision]
    backward: dict[tuple[int, int], Decision]

    def __iter__(self) -> Iterator[Decision]:
        """All of them."""
        return chain(self.first.values(), self.again.values(), self.backward.values())


def worthwhile(ways: Sequence[Way], *, room_bytes: float) -> tuple[Way | None, tuple[Way, ...]]:
    """The base, if there is one, and the ways worth a variable beside it.

    Args:
        ways: of one run.
        room_bytes: what it can always have. Where that is enough for the base, no slower way is ever taken.
    """
    base = base_of(ways)
    others = [x for x in ways if x is not base]
    if base is not None and base.bytes <= room_bytes:
        others = [x for x in others if x.time_ms < base.time_ms or x.forms != base.forms]
    return base, tuple(others)


def follows_by_itself(base: Way | None, others: Sequence[Way]) -> bool:
    """Is the only other way no worse than the base in any respect, so that it is taken whenever it can be?"""
    if base is None or len(others) != 1:
        return False
    way = others[0]
    return way.time_ms <= base.time_ms and way.bytes <= base.bytes and way.forms == base.forms
