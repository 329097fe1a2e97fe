"""In which way each backward operator runs: a problem knows one set of gradients for each, whatever implements it.

An operator may do its work whole, or in pieces with the optional operators behind it; implementations may read or make
other gradients. A search knows one such way. A bound holds for all of them: at every operator's place it knows all that
may run there, and each place may choose by itself, so that no schedule is left out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator
from explorer.solvers.problem.sets import in_all

_SMALL = 1 / 64
"""Of all that the forward pass makes."""
_CLEARLY = 0.97
"""What a whole takes of its pieces' time to count as quicker."""
Chosen = Mapping[int, Sequence[Implementation]]
Group = tuple[int, tuple[Implementation, ...]]
"""An operator, and implementations of it that read the same gradients and make the same."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What may run at an operator's place.

    Attributes:
        implementation: its name.
        reads: storages.
        writes: storages.
        time_ms: its duration.
        workspace_bytes: memory beyond reads and writes; None: it takes no memory at all, whatever else is there.
        overwrites: the storage whose memory becomes the result's; None: none.
        real: it is an implementation at its own place; otherwise it stands for a share of what does all of a family's
            work at once.
        until: the last place at which a share of the same stands.
    """

    implementation: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    time_ms: float
    workspace_bytes: int | None
    overwrites: int | None = None
    real: bool = True
    until: int = -1

    @classmethod
    def of(cls, profile: Profile, implementation: Implementation) -> Piece:
        """An implementation at its own place."""
        cost = profile.cost(implementation)
        return cls(
            implementation.name,
            implementation.reads,
            implementation.writes,
            cost.time_ms,
            profile.workspace_bytes(implementation),
            implementation.overwrites,
        )


@dataclass(frozen=True, slots=True)
class Division:
    """How a family may do its work.

    Attributes:
        groups: what runs, in order.
        writes: storages.
    """

    groups: tuple[Group, ...]
    writes: frozenset[int]

    @property
    def places(self) -> tuple[int, ...]:
        """The operators that run."""
        return tuple(place for place, _ in self.groups)


@dataclass(frozen=True, slots=True)
class Family:
    """An operator that must run, the optional ones that can do a part of its work, and the ways to do it.

    Attributes:
        whole: the operator that must run.
        parts: the others, which may be none.
        ways: of all allowed implementations.
        complete: those that make all that others may read, nothing twice and nothing too late.
    """

    whole: Operator
    parts: tuple[Operator, ...]
    ways: tuple[Division, ...]
    complete: tuple[Division, ...]

    @property
    def together(self) -> bool:
        """Does no other operator stand between them?"""
        return not self.parts or self.parts[-1].id - self.whole.id == len(self.parts)

    @property
    def places(self) -> tuple[int, ...]:
        """The operators that run in some way."""
        return tuple(sorted({place for way in self.ways for place in way.places}))


class BackwardWays:
    """The ways of all backward operators.

    Args:
        profile: graph and costs.
        chosen: by operator, the implementations allowed.
        wanted: by operator, the one to which it is pinned.
    """

    def __init__(self, profile: Profile, chosen: Chosen, *, wanted: Mapping[int, Implementation]) -> None:
        """Collects them."""
        self.profile, self.graph, self.chosen, self.wanted = profile, profile.graph, dict(chosen), wanted
        backward = self.graph.backward
        self.made = {x for op in backward for i in op.implementations for x in i.writes}
        self.held = {x.id for x in self.graph.storages if x.held}
        self.readers: dict[int, set[int]] = {}
        self.sure_readers: dict[int, set[int]] = {}
        for operator in reversed(backward):
            if operator.optional and not any(map(self._of_use, chosen[operator.id])):
                self.chosen[operator.id] = ()
            reads = [self.made & set(x.reads) for x in self.chosen[operator.id]]
            for x in set().union(*reads):
                self.readers.setdefault(x, set()).add(operator.id)
            for x in () if operator.optional else in_all(reads):
                self.sure_readers.setdefault(x, set()).add(operator.id)
        self.families = [self._family(whole, parts) for whole, parts in self._members()]

    def best(self) -> dict[int, tuple[Implementation, ...]]:
        """Implementations of every backward operator by which it does its work in one and the same way.

        Raises:
            ValueError: pins leave an operator no way to do its work.
        """
        found: dict[int, tuple[Implementation, ...]] = {op.id: () for op in self.graph.backward}
        for family in self.families:
            found |= dict(self._best(family).groups)
        # What an optional operator makes for one of the ways that others do not take is made for nobody.
        read: set[int] = set(self.held)
        for operator in reversed(self.graph.backward):
            chosen = found[operator.id]
            if operator.optional and not any(read & set(x.writes) for x in chosen):
                found[operator.id] = ()
            read |= {x for way in found[operator.id] for x in way.reads}
        return found

    def all(self) -> dict[int, list[Piece]]:
        """What may run at each place, in any way; those of the best way come first."""
        found: dict[int, list[Piece]] = {op.id: [] for op in self.graph.backward}
        for family in self.families:
            best = self._best(family)
            for way in (best, *(x for x in family.ways if x is not best)):
                for place in family.places:
                    found[place] += self._pieces(family, way, place)
        return found

    def _of_use(self, implementation: Implementation, made: Collection[int] = ()) -> bool:
        """Does it make what the caller receives, or what something behind it may read, beside what was made?"""
        return any(x in self.held or x in self.readers for x in set(implementation.writes).difference(made))

    def _members(self) -> Iterator[tuple[Operator, list[Operator]]]:
        parts: dict[int, list[Operator]] = {}
        maker: dict[int, int] = {}
        for operator in reversed(self.graph.backward):
            maker |= dict.fromkeys(operator.default().writes, operator.id)
        for part in (x for x in self.graph.backward if x.optional):
            whole = min(maker[x] for x in part.default().writes)
            parts.setdefault(whole, []).append(part)
        for operator in self.graph.backward:
            if not operator.optional:
                yield operator, parts.get(operator.id, [])

    def _family(self, whole: Operator, parts: list[Operator]) -> Family:
        written, held = set(whole.default().writes), self.held
        needed = {x for x in written if x in held or self.readers.get(x, set()) - {whole.id}}
        least = {x for x in written if x in held or self.sure_readers.get(x)}
        ways = [way for x in self._groups(whole) for way in self._ways([x], parts, set(x[1][0].writes), least)]
        complete = [x for x in ways if needed <= x.writes and self._in_time(x)]
        return Family(whole, tuple(parts), tuple(ways), tuple(complete))

    def _groups(self, operator: Operator) -> Iterator[Group]:
        """Allowed implementations by the gradients that they read and by what they make."""
        groups: dict[object, list[Implementation]] = {}
        for x in self.chosen[operator.id]:
            groups.setdefault((frozenset(x.reads) & self.made, frozenset(x.writes)), []).append(x)
        yield from ((operator.id, tuple(x)) for x in groups.values())

    def _ways(self, groups: list[Group], parts: list[Operator], made: set[int], least: set[int]) -> Iterator[Division]:
        """Ways that begin with these groups, go on with some of the parts, and make the least that must be."""
        if not parts:
            if least <= made:
                yield Division(tuple(groups), frozenset(made))
            return
        yield from self._ways(groups, parts[1:], made, least)
        whole = self.graph.operators[groups[0][0]].default()
        for group in self._groups(parts[0]):
            of_its_own = set(group[1][0].reads) & set(whole.writes)
            if of_its_own <= made and self._of_use(group[1][0], made):
                yield from self._ways([*groups, group], parts[1:], made | set(group[1][0].writes), least)

    def _in_time(self, way: Division) -> bool:
        """Does it make nothing twice, everything before anything may read it, and write over nothing of use?"""
        made: set[int] = set()
        for place, group in way.groups:
            writes = set(group[0].writes)
            readers = {x for made_now in writes for x in self.readers.get(made_now, ())}
            late = any(way.places[0] < x < place for x in readers)
            if made & writes or late or not any(self._may_overwrite(place, x) for x in group):
                return False
            made |= writes
        return True

    def _may_overwrite(self, place: int, implementation: Implementation) -> bool:
        """Is what it writes over, if anything, of no more use there, whatever else runs?"""
        over = implementation.overwrites
        if over is None or over in self.held or over in self.graph.persistent:
            return over is None
        return over not in self.made or all(x <= place for x in self.readers.get(over, ()))

    def _best(self, family: Family) -> Division:
        """The way that takes least memory, then the one in most pieces: what one alone reads may go before the next.

        A small operator is not taken to pieces that take longer.
        """
        pinned = {x.id: self.wanted[x.id].name for x in (family.whole, *family.parts) if x.id in self.wanted}
        able = [
            way
            for way in family.complete
            if all(name in {x.name for x in dict(way.groups).get(place, ())} for place, name in pinned.items())
        ]
        if not able:
            raise ValueError(f"pins contradict each other: with them, {family.whole.name!r} cannot do its work")

        def quickest_ms(way: Division) -> float:
            return sum(min(map(self._ms, group)) for _, group in way.groups)

        best = min(able, key=lambda x: (self._extra_bytes(x), -len(x.groups), quickest_ms(x)))
        for way in able:
            if len(way.groups) == 1 and quickest_ms(way) < _CLEARLY * quickest_ms(best) and self._is_small(way):
                best = way
        return best

    def _is_small(self, way: Division) -> bool:
        """Is what it reads, makes and works with a small part of what the forward pass makes?"""
        size = self.profile.allocated_bytes
        ((_, group),) = way.groups
        used = {y for x in group for y in (*x.reads, *x.writes)} - self.graph.persistent
        used_bytes = self._extra_bytes(way) + sum(size(self.graph.storages[x]) for x in used)
        return used_bytes <= _SMALL * self._forward_bytes

    @cached_property
    def _forward_bytes(self) -> int:
        """Of all that the forward pass makes."""
        made = {x for op in self.graph.forward for x in op.default().writes}
        return sum(self.profile.allocated_bytes(self.graph.storages[x]) for x in made)

    def _extra_bytes(self, way: Division) -> int:
        """The least that it takes beyond what is read and made; a whole may write over something, and take less."""
        alone = len(way.groups) == 1

        def extra(x: Implementation) -> int:
            return self.profile.workspace_bytes(x) - (self._overwritten_bytes(x) if alone else 0)

        return max(min(map(extra, group)) for _, group in way.groups)

    def _overwritten_bytes(self, implementation: Implementation) -> int:
        over = implementation.overwrites
        return 0 if over is None else self.profile.allocated_bytes(self.graph.storages[over])

    def _pieces(self, family: Family, way: Division, place: int) -> Iterator[Piece]:
        """What of a way runs at a place, or stands there for what runs elsewhere."""
        (_, wholes), *others = way.groups
        if others or len(family.places) == 1:
            group = dict(way.groups).get(place, ())
            yield from (Piece.of(self.profile, x) for x in group)
            if not group:
                yield Piece("nothing", (), (), 0.0, None, real=False)
            return
        for x in wholes:
            time_ms = self._ms(x) * self._share(family, place)
            if family.together or place == family.whole.id:
                workspace_bytes = self.profile.workspace_bytes(x)
                until = family.places[-1]
                yield Piece(x.name, x.reads, x.writes, time_ms, workspace_bytes, x.overwrites, real=False, until=until)
            else:
                yield Piece(x.name, (), (), time_ms, None, real=False)

    def _share(self, family: Family, place: int) -> float:
        """Of a whole's time, as much as the quickest piece at this place takes of the time of all pieces."""
        in_pieces = [dict(way.groups) for way in family.ways if len(way.groups) > 1]
        quickest = {
            x: min((self._ms(i) for groups in in_pieces for i in groups.get(x, ())), default=0.0) for x in family.places
        }
        total = sum(quickest.values())
        return quickest[place] / total if total else float(place == family.whole.id)

    def _ms(self, implementation: Implementation) -> float:
        return self.profile.cost(implementation).time_ms
