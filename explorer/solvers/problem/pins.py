"""What the user decides instead of the solver: tensors to keep or to recompute, implementations to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from itertools import pairwise
from typing import TypeVar

from explorer.arguments import several
from explorer.graph import Implementation, Operator, Role, Storage, TrainingGraph, When
from explorer.schedule import Free, Run, Schedule
from explorer.units import shown

T = TypeVar("T", Storage, Operator)
_SUCH_AS = "{'relu_3': 'recompute'}"


class Stay(StrEnum):
    """What a pinned tensor has to do."""

    KEEP = "keep"
    """It is in memory when the backward pass begins, until its last use there, and is never computed again."""
    RECOMPUTE = "recompute"
    """It is not in memory when the backward pass begins; where that needs it, it is computed again."""


@dataclass(frozen=True, slots=True)
class Pins:
    """Decisions taken out of a solver's hands.

    Attributes:
        tensors: (name of an activation, what it has to do), by name.
        operators: (name of an operator, the implementation of every run that this one can serve), by name.
    """

    tensors: tuple[tuple[str, Stay], ...] = ()
    operators: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        """Is anything pinned?"""
        return bool(self.tensors or self.operators)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.tensors) + len(self.operators)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """As ``solve`` takes them."""
        return (*((name, str(stay)) for name, stay in self.tensors), *self.operators)

    def broken_by(self, graph: TrainingGraph, schedule: Schedule) -> tuple[str, ...]:
        """What a schedule does against these pins, in words; empty where it honours them all.

        Reads the steps alone, so that it confirms what a solver claims.
        """
        kept, runs = _kept_after_forward(graph, schedule), [x for x in schedule.steps if isinstance(x, Run)]
        names = {x.name: x.id for x in graph.storages}
        broken = []
        for name, stay in self.tensors:
            made = sum(names[name] in graph.operators[x.operator].implementation(x.implementation).writes for x in runs)
            if stay is Stay.KEEP and (names[name] not in kept or made != 1):
                broken.append(f"{name!r} is not kept")
            if stay is Stay.RECOMPUTE and names[name] in kept:
                broken.append(f"{name!r} is kept")
        wanted, seen = dict(self.operators), set()
        for run in runs:
            operator, again = graph.operators[run.operator], run.operator in seen
            seen.add(run.operator)
            if operator.name in wanted and run.implementation != wanted[operator.name]:
                pinned = operator.implementation(wanted[operator.name])
                if pinned.again if again else pinned.first:
                    broken.append(f"{operator.name!r} runs by {run.implementation!r}")
        return tuple(broken)


NO_PINS = Pins()
Pairs = Mapping[str, str] | Iterable[tuple[str, str]]
PinsLike = Pins | Pairs
"""``{"relu_3": "recompute"}``, or pairs of the same, since a tensor and an operator may share a name."""


def parse_pins(pins: PinsLike | None) -> Pins:
    """Pins from names: a tensor's with ``"keep"`` or ``"recompute"``, an operator's with an implementation's.

    Raises:
        ValueError: a value is no text, or something is pinned in two ways.
    """
    if pins is None or isinstance(pins, Pins):
        return pins or NO_PINS
    given = list(pins.items()) if isinstance(pins, Mapping) else several(pins, "pins", such_as=_SUCH_AS)
    for pair in given:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError(f"pins has {shown(pair)}; each must be a name with what becomes of it, such as {_SUCH_AS}")
        if not isinstance(pair[1], str):
            raise ValueError(
                f"pin of {shown(pair[0])} is {shown(pair[1])}; it must be 'keep', 'recompute' or an implementation"
            )
    pairs: dict[tuple[str, str], None] = dict.fromkeys((str(name), str(value)) for name, value in given)
    stays = {str(stay) for stay in Stay}
    tensors = sorted((name, Stay(value)) for name, value in pairs if value in stays)
    operators = sorted((name, value) for name, value in pairs if value not in stays)
    for pinned in (tensors, operators):
        for (name, one), (other, two) in pairwise(pinned):
            if name == other:
                raise ValueError(f"pins contradict each other: {name!r} is pinned to {str(one)!r} and to {str(two)!r}")
    return Pins(tuple(tensors), tuple(operators))


@dataclass(frozen=True, slots=True)
class Pinned:
    """Pins in the terms of a graph.

    Attributes:
        kept: storages that must be in memory when the backward pass begins, and are made once.
        dropped: storages that must not be in memory then.
        implementations: operator id to the implementation of every run that it can serve.
    """

    kept: frozenset[int]
    dropped: frozenset[int]
    implementations: dict[int, Implementation]


def resolve(pins: Pins, graph: TrainingGraph) -> Pinned:
    """Find what pins name.

    What an operator's first run must overwrite cannot be in memory when the backward pass begins: it is dropped too.

    Raises:
        ValueError: there is no such thing, it cannot be pinned, or pins contradict each other.
    """
    kept = {_activation(graph, name).id for name, stay in pins.tensors if stay is Stay.KEEP}
    dropped = {_activation(graph, name).id for name, stay in pins.tensors if stay is Stay.RECOMPUTE}
    for storage in (graph.storages[x] for x in dropped):
        if storage.held:
            raise ValueError(f"{storage.name!r} cannot be recomputed: the caller receives it, so it stays to the end")
    implementations = {}
    for name, choice in pins.operators:
        operator = _named(graph.operators, name, "operator")
        implementation = implementations[operator.id] = operator.implementation(choice)
        over = implementation.overwrites
        if over is None or not (operator.id < graph.forward_count and implementation.first):
            continue
        if over in kept:
            raise ValueError(
                f"pins contradict each other: {choice!r} of {name!r} overwrites {graph.storages[over].name!r}, "
                "which is to be kept"
            )
        dropped.add(over)
    return Pinned(frozenset(kept), frozenset(dropped), implementations)


def restricted(pinned: Pinned, operator: Operator, chosen: Iterable[Implementation]) -> tuple[Implementation, ...]:
    """The implementations of an operator that pins leave, each for the runs that they leave it."""
    wanted = pinned.implementations.get(operator.id)
    found = []
    for candidate in chosen:
        first, again = candidate.first, candidate.again
        if wanted is not None and candidate.name != wanted.name:
            first, again = first and not wanted.first, again and not wanted.again
        if pinned.kept & set(candidate.writes):
            again = False
        found.append(serving(candidate, first=first, again=again))
    return tuple(x for x in found if x is not None)


def check_served(graph: TrainingGraph, pinned: Pinned, chosen: Mapping[int, Sequence[Implementation]]) -> None:
    """Check that every pinned implementation may still be chosen.

    Raises:
        ValueError: the optimizations asked for leave it out, or it cannot run with another pin.
    """
    for operator, implementation in pinned.implementations.items():
        if implementation.name in {x.name for x in chosen[operator]}:
            continue
        part = implementation.optimization
        kinds = [*([] if part is None else [f"optimization {part.value!r}"])]
        kinds += [] if implementation.exact else ["results that are not bit-exact"]
        because = f"it is of {' and '.join(kinds)}, " if kinds else ""
        raise ValueError(
            f"{graph.operators[operator].name!r} cannot be pinned to {implementation.name!r}: {because}"
            "which the optimizations asked for, or another pin, leave out"
        )


def without_unserved(
    graph: TrainingGraph, pinned: Pinned, chosen: Mapping[int, tuple[Implementation, ...]]
) -> dict[int, tuple[Implementation, ...]]:
    """Leave out runs that read what nothing makes any more, until all that is left can be served.

    Raises:
        ValueError: an operator that must run no longer can.
    """
    found = dict(chosen)
    ran = {x for x, implementations in found.items() if implementations}
    while True:
        made = {x for op in graph.forward for i in found[op.id] if i.first for x in i.writes}
        again = {x for op in graph.forward for i in found[op.id] if i.again for x in i.writes}
        backward = {x for op in graph.backward for i in found[op.id] for x in i.writes}
        at_first = made | graph.persistent
        later = (made - pinned.dropped) | again | backward | graph.persistent
        left = {
            x: tuple(
                served
                for i in found[x]
                if (served := _served(i, at_first, later, backward=x >= graph.forward_count)) is not None
            )
            for x in found
        }
        _check_runs(graph, pinned, ran, left)
        if left == found:
            return found
        found = left


def _served(
    implementation: Implementation, at_first: set[int], later: set[int], *, backward: bool
) -> Implementation | None:
    reads = set(implementation.reads)
    if backward:
        return implementation if reads <= later else None
    return serving(
        implementation, first=implementation.first and reads <= at_first, again=implementation.again and reads <= later
    )


def _check_runs(
    graph: TrainingGraph, pinned: Pinned, ran: set[int], found: Mapping[int, Sequence[Implementation]]
) -> None:
    for x in sorted(ran):
        operator = graph.operators[x]
        able = [i for i in found[x] if i.first or x >= graph.forward_count]
        if not able and not (operator.optional and x not in pinned.implementations):
            missing = [graph.storages[y].name for y in sorted(pinned.dropped)]
            because = f"; {', '.join(map(repr, missing))} cannot be made again for it" if missing else ""
            raise ValueError(f"pins contradict each other: with them, {operator.name!r} cannot run{because}")


def serving(implementation: Implementation, *, first: bool, again: bool) -> Implementation | None:
    """The same implementation for some of its runs only; None for none of them."""
    if not (first or again):
        return None
    if (first, again) == (implementation.first, implementation.again):
        return implementation
    return replace(implementation, when=When.FIRST if first else When.AGAIN)


def _kept_after_forward(graph: TrainingGraph, schedule: Schedule) -> set[int]:
    alive: set[int] = set()
    for step in schedule.steps:
        if isinstance(step, Free):
            alive.discard(step.storage)
        elif step.operator >= graph.forward_count:
            break
        else:
            implementation = graph.operators[step.operator].implementation(step.implementation)
            alive |= set(implementation.writes)
            alive.discard(-1 if implementation.overwrites is None else implementation.overwrites)
    return alive


def _activation(graph: TrainingGraph, name: str) -> Storage:
    storage = _named(graph.storages, name, "tensor")
    if storage.role is not Role.ACTIVATION or graph.producer.get(storage.id, 1 << 62) >= graph.forward_count:
        raise ValueError(f"{name!r} is a {storage.role.value.replace('_', ' ')}; only activations can be pinned")
    return storage


def _named(things: Sequence[T], name: str, kind: str) -> T:
    found = next((x for x in things if x.name == name), None)
    if found is None:
        close = get_close_matches(name, [x.name for x in things], n=3)
        meant = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ValueError(f"there is no {kind} {name!r}{meant}")
    return found
