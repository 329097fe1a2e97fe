"""How an answer is sought and proven: named ingredients, each of which can be left out, and the sizes of each phase.

What every ingredient is worth stands in ``docs/ablation.md``, measured by ``benchmarks/solver/ablation.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import count

from explorer.units import shown


class Start(StrEnum):
    """What a plan search begins with; what was learnt from elsewhere is a start of all but those from scratch."""

    NEAR = "the best plan known, which need not fit"
    SCRATCH = "keeping everything, of searches for the smallest peak alone"
    ROOM = "the best that fits, after room was made there for something quicker"
    BEST = "the best that fits"


ALL_STARTS = (Start.NEAR, Start.ROOM, Start.BEST)


@dataclass(frozen=True, slots=True)
class Search:
    """One plan search.

    Attributes:
        effort: 1 takes about 0.1 s, whatever the graph's size.
        starts: what it begins with; where it finds nothing good, one more begins with each of the others.
        seed: of its random moves.
        echoes: whether changes of a block are made in others like it too.
    """

    effort: float
    starts: tuple[Start, ...]
    seed: int
    echoes: bool


@dataclass(frozen=True, slots=True)
class Searching:
    """Plan searches for one budget, longer and longer.

    Attributes:
        longer: how much longer each is than the one before, …
        longest: … up to this effort.
        patience: searches without a better plan before they end, when integer programs have ended too.
        first: effort of searches from what is known, before plans are bred, …
        breeding: … which then take so many times the effort of more such searches.
    """

    longer: float = 1.3
    longest: float = 60.0
    patience: int = 4
    first: float = 8.0
    breeding: float = 1.0


@dataclass(frozen=True, slots=True)
class Breeding:
    """Populations of plans.

    Attributes:
        founders: members, each from a search of its own.
        child: effort of a child, as a multiple of a founder's.
        longer: how much longer each search is than the one before, from the first child on.
        patience: children in a row that are no better than a parent, before others are founded.
        stagnant: founders and children since the best member, before others are founded, alike or not.
        temperatures: of searches in turn: cool ones keep what is good, warm ones leave traps; …
        coolest: … the last.
        twins: searches of each blueprint.
        converged: populations that end alike.
    """

    founders: int = 12
    child: float = 4.0
    longer: float = 1.01
    patience: int = 24
    stagnant: int = 36
    temperatures: tuple[float, ...] = (0.0003, 0.0006, 0.0012)
    coolest: float = 0.00002
    twins: int = 6
    converged: int = 4


@dataclass(frozen=True, slots=True)
class Turn:
    """An integer program, and a bound after it.

    Attributes:
        columns: of the program, at most; larger ones wait for the next turn.
        program: its share of the time left.
        bound: share of the time left for the bound.
        length: of the bound's intervals.
    """

    columns: float
    program: float
    bound: float
    length: float


@dataclass(frozen=True, slots=True)
class Proving:
    """Bounds, integer programs and breeding, in shares of the time left.

    Attributes:
        deep: operators of a network whose programs take seconds to be stated alone.
        small: columns of an integer program that is solved in seconds.
        blueprints: for the bound that comes first, whose program is small, so that blueprints come early.
        blueprint_length: of its intervals.
        rise: relative rise of that bound that is worth waiting for, …
        stale_s: … this long at least.
        wide: gap above which a bound's intervals get ends in chosen places, …
        long: … long ones, for with such ends these say most for their time.
        seeking: for the choice of those, …
        sought: … and for the bound then.
        turns: after that.
        loose: gap above which plans are bred after each bound, not before.
        loosest: gap above which a bound has …
        pressing: … this share.
        breeding: for breeding in this thread too, where problems are large.
        close: gap of a large problem below which bounds prove little; for breeding then …
        breeding_close: … this share.
        tightening: for each of the bounds of small problems in the end, …
        shorter: … whose intervals are so much shorter each time, …
        shortest: … down to this length, and then none.
        starts: schedules tried as start solutions of an integer program.
        finer: each grouping's threshold as a share of the one before.
    """

    deep: int = 2500
    small: int = 3000
    blueprints: float = 0.25
    blueprint_length: float = 1.0
    rise: float = 1e-4
    stale_s: float = 2.0
    wide: float = 0.01
    long: tuple[float, ...] = (float("inf"), 1.0)
    seeking: float = 0.1
    sought: float = 0.3
    turns: tuple[Turn, ...] = (Turn(3000, 0.25, 0.5, 0.5), Turn(float("inf"), 0.4, 0.6, 0.3))
    loose: float = 0.03
    loosest: float = 0.04
    pressing: float = 0.8
    breeding: float = 0.6
    close: float = 0.004
    breeding_close: float = 0.9
    tightening: float = 0.5
    shorter: float = 0.5
    shortest: float = 0.02
    starts: int = 8
    finer: float = 0.5


@dataclass(frozen=True, slots=True)
class Strategy:
    """What is done beside one annealing search after the other, and a bound by linear relaxations.

    Attributes:
        near: searches that begin with the best plan known, whether or not it fits.
        room: searches that make room for something quicker.
        stricter: where a search ends in what is probably a trap, more with a greater penalty for what does not fit.
        echoes: where a network repeats itself, searches change many of its blocks alike.
        population: populations of plans are bred between searches.
        blueprints: solutions of bounds are plans to search from.
        programs: MONeT's joint program, grouped, is solved by SCIP.
        whole_bounds: bounds have whole numbers.
        blueprint_bound: the first of these has a small program, so that blueprints come early.
        critical_ends: where a bound is far, its intervals end in chosen places.
        deep: plans of deep networks are bred from the first bound's solution before anything else is stated.
        tightening: small problems are bounded with shorter and shorter intervals in the end.
        searching, breeding, proving: sizes of each phase.
    """

    near: bool = True
    room: bool = True
    stricter: bool = True
    echoes: bool = True
    population: bool = True
    blueprints: bool = True
    programs: bool = True
    whole_bounds: bool = True
    blueprint_bound: bool = True
    critical_ends: bool = True
    deep: bool = True
    tightening: bool = True
    searching: Searching = field(default_factory=Searching)
    breeding: Breeding = field(default_factory=Breeding)
    proving: Proving = field(default_factory=Proving)

    def __post_init__(self) -> None:
        """Raises ValueError for an ingredient without what it builds on, and for sizes that are not positive."""
        for phase in (self.searching, self.breeding, self.proving):
            for size in fields(phase):
                value = getattr(phase, size.name)
                numbers = value if isinstance(value, tuple) else (value,)
                if not all(isinstance(x, Turn) or x > 0 for x in numbers):
                    raise ValueError(f"{size.name} is {shown(value)}; it must be positive")
        for name, needed in _NEEDS:
            if getattr(self, name) and not getattr(self, needed):
                raise ValueError(f"strategy has {name} without {needed}, which it builds on")

    def without(self, ingredient: str) -> Strategy:
        """The same without an ingredient, and without those that build on it.

        Raises:
            ValueError: there is no such ingredient.
        """
        if ingredient not in INGREDIENTS:
            raise ValueError(f"ingredient is {shown(ingredient)}; allowed: {', '.join(map(repr, INGREDIENTS))}")
        gone = {ingredient}
        while more := {name for name, needed in _NEEDS if needed in gone} - gone:
            gone |= more
        return replace(self, **dict.fromkeys(gone, False))

    @property
    def starts(self) -> tuple[Start, ...]:
        """What searches begin with, in turn."""
        wanted = {Start.NEAR: self.near, Start.ROOM: self.room}
        return tuple(x for x in ALL_STARTS if wanted.get(x, True))

    def searches(self, seed: int) -> Iterator[Search]:
        """Plan searches for one budget, longer and longer, which begin with every kind of plan in turn."""
        effort, starts = 1.0, self.starts
        for number in count():
            turn = number % len(starts)
            begins = starts[turn:] + starts[:turn] if self.stricter else starts[turn : turn + 1]
            yield Search(effort, begins, 1 + _SEEDS * seed + _STEP * number, self.echoes)
            effort = min(self.searching.longer * effort, self.searching.longest)


_SEEDS, _STEP = 1000, 5  # a solve has fewer searches than the one over the other, and a search takes fewer seeds
_NEEDS = (
    ("blueprints", "whole_bounds"),
    ("blueprint_bound", "whole_bounds"),
    ("critical_ends", "whole_bounds"),
    ("tightening", "whole_bounds"),
)
INGREDIENTS = tuple(x.name for x in fields(Strategy) if x.type == "bool")
DEFAULT = Strategy()
