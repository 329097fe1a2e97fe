"""Lists of lines that a repeated block makes longer: from those of a few blocks to those of any number, by induction.

A list is a beginning, the block's lines again and again, and an end. Which block a block's lines refer to, and the
numbers in them, are functions of the first degree of which block it is and of how many there are. They are found in the
lists of some blocks, one more and two more.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

_NUMBER = re.compile(r"\d+")


class NotRepeating(Exception):  # noqa: N818 - an answer, which callers act upon
    """The lines are not those of some equal blocks, of one more, and of two more."""


@dataclass(frozen=True, slots=True)
class Line:
    """An entry of a list, apart from what depends on how many blocks there are.

    Attributes:
        fixed: all but the next.
        refers: numbers of the lines that it names, in order.
        numbers: others in it, those in names for example.
    """

    fixed: Hashable
    refers: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()


Sections = Sequence[Sequence[Line]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a line stands.

    Attributes:
        section: its number.
        offset: in the beginning, in a block, or from behind in the end.
        block: which one, counted in the section's order; None: before or behind them.
        behind: is it in the end?
    """

    section: int
    offset: int
    block: int | None = None
    behind: bool = False


_Kind = tuple[_Place, str]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A line as it is in a block of one of the graphs, with the places of the lines that it names."""

    line: Line
    block: int
    blocks: int
    places: tuple[_Place, ...]


@dataclass(frozen=True, slots=True)
class _Degree1:
    """``constant + of_block * block + of_blocks * blocks``."""

    constant: int
    of_block: int
    of_blocks: int

    def at(self, block: int, blocks: int) -> int:
        return self.constant + self.of_block * block + self.of_blocks * blocks


@dataclass(frozen=True, slots=True)
class _Rule:
    """A line for any number of blocks; what it names in a block is a place in the first, and a function."""

    fixed: Hashable
    refers: tuple[tuple[_Place, _Degree1 | None], ...]
    numbers: tuple[_Degree1, ...]


@dataclass(frozen=True, slots=True)
class _Section:
    """Lines of one kind: of the beginning, of ``blocks + extra`` blocks, and of the end."""

    number: int
    begin: int
    block: int
    end: int
    extra: int = 0

    def length(self, blocks: int) -> int:
        return self.begin + (blocks + self.extra) * self.block + self.end

    def place(self, position: int, blocks: int) -> _Place:
        inside = position - self.begin
        if inside < 0:
            return _Place(self.number, position)
        if inside < (blocks + self.extra) * self.block:
            return _Place(self.number, inside % self.block, inside // self.block)
        return _Place(self.number, self.length(blocks) - position, behind=True)

    def position(self, place: _Place, blocks: int) -> int:
        if place.behind:
            return self.length(blocks) - place.offset
        return place.offset if place.block is None else self.begin + place.block * self.block + place.offset

    def kind(self, place: _Place, blocks: int) -> tuple[_Kind, int]:
        """What has a rule of its own, and the block for its functions; first and last block are kinds of their own."""
        if place.block is None:
            return (place, ""), 0
        ends = {0: "first", blocks + self.extra - 1: "last"}
        kind = ends.get(place.block, "inside")
        return (replace(place, block=0), kind), place.block if kind == "inside" else 0


class Family:
    """Sections of lines by how many blocks there are more than in the first of the examples."""

    def __init__(self, examples: Sequence[Sections], *, places: int) -> None:
        """Find the rules.

        Args:
            examples: of some blocks, one more, and so on.
            places: lines of so many first sections are what lines refer to, by their number among all of them.

        Raises:
            NotRepeating: there are no such rules.
        """
        self._places = places
        self._sections = [_section(number, [x[number] for x in examples]) for number in range(len(examples[0]))]
        seen: dict[_Kind, list[_Seen]] = {}
        for blocks, example in enumerate(examples):
            there = [x.place(i, blocks) for x in self._sections[:places] for i in range(x.length(blocks))]
            for section, found in zip(self._sections, example, strict=True):
                for position, line in enumerate(found):
                    kind, block = section.kind(section.place(position, blocks), blocks)
                    named = tuple(there[x] for x in line.refers)
                    seen.setdefault(kind, []).append(_Seen(line, block, blocks, named))
        self._rules = {kind: _rule(found) for kind, found in seen.items()}

    def lines(self, blocks: int) -> list[list[Line]]:
        """Every section's with ``blocks`` more."""
        return [list(self._lines(x, blocks)) for x in self._sections]

    def _lines(self, section: _Section, blocks: int) -> Iterator[Line]:
        starts = list(accumulate((x.length(blocks) for x in self._sections[: self._places]), initial=0))
        for position in range(section.length(blocks)):
            kind, block = section.kind(section.place(position, blocks), blocks)
            rule = self._rules[kind]
            refers: list[int] = []
            for there, function in rule.refers:
                found = there if function is None else replace(there, block=function.at(block, blocks))
                refers.append(starts[there.section] + self._sections[there.section].position(found, blocks))
            yield Line(rule.fixed, tuple(refers), tuple(x.at(block, blocks) for x in rule.numbers))


def _section(number: int, lines: Sequence[Sequence[Line]]) -> _Section:
    """Where the blocks are, from lines without what differs among blocks."""
    fixed = [[x.fixed for x in of_graph] for of_graph in lines]
    *_, less, most = fixed
    period = len(most) - len(less)
    if any(len(y) - len(x) != period for x, y in pairwise(fixed)):
        raise NotRepeating
    if period == 0:
        return _Section(number, len(most), 0, 0)
    same = next((i for i, (x, y) in enumerate(zip(less, most, strict=False)) if x != y), len(less))
    start = same
    while start > 0 and most[start - 1] == most[start - 1 + period]:
        start -= 1
    whole = (same + period - start) // period
    # At least four in the largest graph: a first one, a last one, and two between them to compare.
    if whole < 4 or less[same:] != most[same + period :]:
        raise NotRepeating
    end = len(most) - start - whole * period
    return _Section(number, start, period, end, extra=whole - (len(lines) - 1))


def _rule(seen: Sequence[_Seen]) -> _Rule:
    """The one that gives all of these."""
    if len({x.line.fixed for x in seen}) > 1:
        raise NotRepeating
    at = [(x.block, x.blocks) for x in seen]
    refers: list[tuple[_Place, _Degree1 | None]] = []
    for places in zip(*(x.places for x in seen), strict=True):
        alike = {replace(x, block=None if x.block is None else 0) for x in places}
        if len(alike) > 1:
            raise NotRepeating
        blocks = [x.block for x in places if x.block is not None]
        refers.append((alike.pop(), _function(at, blocks) if blocks else None))
    numbers = zip(*(x.line.numbers for x in seen), strict=True)
    return _Rule(seen[0].line.fixed, tuple(refers), tuple(_function(at, x) for x in numbers))


def _function(at: Sequence[tuple[int, int]], values: Sequence[int]) -> _Degree1:
    """The one that has these values at (block, blocks)."""
    known = dict(zip(at, values, strict=True))
    of_block = next((known[i + 1, n] - known[i, n] for i, n in known if (i + 1, n) in known), 0)
    of_blocks = next((known[i, n + 1] - known[i, n] for i, n in known if (i, n + 1) in known), 0)
    (block, blocks), value = at[0], values[0]
    return _Degree1(value - of_block * block - of_blocks * blocks, of_block, of_blocks)


def without_numbers(name: str) -> tuple[str, tuple[int, ...]]:
    """A name without its numbers, and those."""
    return _NUMBER.sub("0", name), tuple(int(x) for x in _NUMBER.findall(name))


def with_numbers(name: str, numbers: Iterator[int]) -> str:
    """The name again."""
    return _NUMBER.sub(lambda _: str(next(numbers)), name)
