"""Operators that can be run in several ways: what each way takes, and which the schedule chose."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, Phase, Role, TrainingGraph
from explorer.timeline import Stage, Timeline
from widgets.scene.layers import NO_MODULE, covers

_BACKWARD = re.compile(r"_backward.*")
_CALL = re.compile(r"explorer\..*")  # a target of ours
_DECORATION = re.compile(r"^_+|^native_|_legit.*$|_with_indices$|_\d*$")
_OTHER_NAMES = {"threshold": "relu", "embedding_dense": "embedding"}
"""Of what is called otherwise in the backward pass than in the forward pass."""


class Part(StrEnum):
    """What a call computes."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    WEIGHT_GRADIENT = "weight gradient"
    INPUT_GRADIENT = "input gradient"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one operator in one layer that offer the same ways, in the forward pass and the backward pass.

    Attributes:
        layer: module path; ``NO_MODULE`` outside modules.
        kind: what is computed, as people call it: ``"convolution"``, ``"layer norm"``.
        label: layer and operator, told apart from all others.
        operators: ids.
        alike: equal for calls that offer the same ways at the same costs.
    """

    layer: str
    kind: str
    label: str
    operators: tuple[int, ...]
    alike: int


@dataclass(frozen=True, slots=True)
class Way:
    """One implementation of one part.

    Attributes:
        part: what it computes.
        implementation: its name.
        time_ms: of one run.
        workspace_bytes: memory beyond what it reads and writes.
        made_bytes: its results, as far as they are of this part.
        overwritten_bytes: of its results, what takes the memory of something that it reads.
        kept_bytes: in the backward pass, what it reads of what the forward pass made.
        runs: how often the schedule runs it; 0 if it did not choose it.
        both: computes the gradients of weight and input at once.
    """

    part: Part
    implementation: str
    time_ms: float
    workspace_bytes: int
    made_bytes: int = 0
    overwritten_bytes: int = 0
    kept_bytes: int = 0
    runs: int = 0
    both: bool = False

    @property
    def added_bytes(self) -> int:
        """What is allocated while it runs, beyond what it reads."""
        return self.made_bytes + self.workspace_bytes - self.overwritten_bytes

    @property
    def plain_name(self) -> str:
        """The implementation's name without the part that it is for."""
        if self.both:
            return f"{self.implementation}, both at once"
        name = self.implementation.removeprefix(f"{self.part.value}, ")
        return "aten, alone" if name == self.part.value else name


class Choices:
    """All calls of a profile's graph with more than one way to run some part of them."""

    def __init__(self, profile: Profile) -> None:
        """Look through the graph, once for all timelines."""
        self.profile = profile
        self.calls: tuple[Calls, ...] = tuple(_calls_with_choice(profile.graph))
        self._ways: dict[tuple[int, str], tuple[Way, ...]] = {}
        self._calls_of = {operator: i for i, calls in enumerate(self.calls) for operator in calls.operators}

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """What there is a choice for, in order of first use."""
        return tuple(dict.fromkeys(calls.kind for calls in self.calls))

    def covered(self, selection: str) -> tuple[Calls, ...]:
        """Those of a layer and of all below it."""
        return tuple(calls for calls in self.calls if covers(selection, calls.layer))

    def foremost(self, selection: str, *, kind: str = "") -> Calls | None:
        """Of the selected layer the calls with the most ways, else of all; of one kind, if given. None without any."""
        of_kind = [calls for calls in self.calls if kind in ("", calls.kind)]
        among = [calls for calls in of_kind if covers(selection, calls.layer)] or of_kind
        return max(among, key=self._ways_offered, default=None)

    def ways(self, calls: Calls, timeline: Timeline) -> tuple[Way, ...]:
        """Every way to run some part of these calls; equal ones of several operators are one, with the runs of all."""
        runs = _runs(timeline)
        found: dict[tuple[Part, str, bool], Way] = {}
        for operator in (self.profile.graph.operators[x] for x in calls.operators):
            for implementation in operator.implementations:
                for way in self._ways_of(operator.id, implementation.name):
                    _add(found, way, runs[operator.id, implementation.name, way.part is Part.RECOMPUTE])
        return tuple(found.values())

    def chosen(self, timeline: Timeline) -> tuple[tuple[Way, ...], ...]:
        """The ways that a schedule runs, for each of ``calls``."""
        found: list[dict[tuple[Part, str, bool], Way]] = [{} for _ in self.calls]
        for (operator, name, again), count in _runs(timeline).items():
            place = self._calls_of.get(operator)
            if place is not None:
                for way in self._ways_of(operator, name):
                    if (way.part is Part.RECOMPUTE) is again:
                        _add(found[place], way, count)
        return tuple(tuple(ways.values()) for ways in found)

    def _ways_of(self, operator_id: int, name: str) -> tuple[Way, ...]:
        """One implementation's, part by part, without runs; made once."""
        key = operator_id, name
        if key not in self._ways:
            operator = self.profile.graph.operators[operator_id]
            way = operator.implementation(name)
            self._ways[key] = tuple(self._way(operator, way, x) for x in _parts(self.profile.graph, operator, way))
        return self._ways[key]

    def _ways_offered(self, calls: Calls) -> int:
        operators = (self.profile.graph.operators[x] for x in calls.operators)
        return len({(x.phase, x.optional, way.name) for x in operators for way in x.implementations})

    def _way(self, operator: Operator, implementation: Implementation, part: Part) -> Way:
        profile, graph = self.profile, self.profile.graph
        results = [graph.storages[x] for x in implementation.writes if _is_of(part, graph.storages[x].role)]
        over = implementation.overwrites
        kept = (x for x in implementation.reads if x in graph.producer and graph.producer[x] < graph.forward_count)
        return Way(
            part,
            implementation.name,
            profile.cost(implementation).time_ms,
            profile.workspace_bytes(implementation),
            made_bytes=sum(map(profile.allocated_bytes, results)),
            overwritten_bytes=0 if over is None else profile.allocated_bytes(graph.storages[over]),
            kept_bytes=0
            if operator.phase is Phase.FORWARD
            else sum(profile.allocated_bytes(graph.storages[x]) for x in kept),
            both=part in _ROLES and _roles(graph, implementation) >= set(_ROLES.values()),
        )


def _add(found: dict[tuple[Part, str, bool], Way], way: Way, runs: int) -> None:
    """One more operator's; both halves of a backward pass have an implementation of the same name.

    The time of one run is the mean of those that run.
    """
    key = way.part, way.implementation, way.both
    before = found.get(key, way)
    whole = before.runs + runs
    if runs and before.runs and before.time_ms != way.time_ms:
        way = replace(way, time_ms=(before.runs * before.time_ms + runs * way.time_ms) / whole)
    elif not runs:
        way = before
    found[key] = replace(way, runs=whole) if whole else way


def differ_in_workspace_alone(ways: Iterable[Way]) -> bool:
    """Do the ways of each part make the same, in memory of its own?"""
    made: dict[Part, int] = {}
    return all(not x.overwritten_bytes and made.setdefault(x.part, x.made_bytes) == x.made_bytes for x in ways)


_ROLES = {Part.WEIGHT_GRADIENT: Role.PARAMETER_GRADIENT, Part.INPUT_GRADIENT: Role.GRADIENT}


def _is_of(part: Part, role: Role) -> bool:
    return role is _ROLES.get(part, role)


def _roles(graph: TrainingGraph, implementation: Implementation) -> set[Role]:
    return {graph.storages[storage].role for storage in implementation.writes}


def _parts(graph: TrainingGraph, operator: Operator, implementation: Implementation) -> tuple[Part, ...]:
    if operator.phase is Phase.FORWARD:
        served = (Part.FORWARD, implementation.first), (Part.RECOMPUTE, implementation.again)
        return tuple(part for part, serves in served if serves)
    if operator.phase is Phase.UPDATE:
        return (Part.UPDATE,)
    roles = _roles(graph, implementation)
    # A convolution's backward pass can be run in halves.
    halves = tuple(part for part, role in _ROLES.items() if role in roles) if "conv" in operator.target else ()
    return halves or (Part.BACKWARD,)


def _runs(timeline: Timeline) -> Counter[tuple[int, str, bool]]:
    again = (stage is Stage.RECOMPUTE for stage in timeline.stages)
    return Counter(zip(timeline.operators, timeline.implementations, again, strict=True))


@lru_cache(maxsize=4096)
def kind_of(target: str) -> str:
    """What an operator computes, as people call it, in the forward pass and the backward pass alike."""
    _, _, name = target.partition(".")
    name = _BACKWARD.sub("", (name or target).partition(".")[0])
    while name != (bare := _DECORATION.sub("", name)):
        name = bare
    name = "attention" if "attention" in name else _OTHER_NAMES.get(name, name)
    return name.replace("_", " ") or target


def _calls_with_choice(graph: TrainingGraph) -> Iterator[Calls]:
    """In order of first use."""
    of_kind: dict[tuple[str, str], list[Operator]] = {}
    for operator in graph.operators:
        of_kind.setdefault((operator.layer or NO_MODULE, kind_of(operator.target)), []).append(operator)
    known: dict[object, int] = {}
    for (layer, kind), operators in of_kind.items():
        alike: dict[tuple[object, ...], list[list[Operator]]] = {}
        for call in _with_backward(operators):
            alike.setdefault(tuple(_offer(graph, x) for x in call), []).append(call)
        for offer, calls in alike.items():
            members = [x for call in calls for x in call]
            if _has_choice(graph, members):
                which = calls[0][0].name if layer == NO_MODULE or len(alike) > 1 else kind
                more = f" and {len(calls) - 1} more" if len(calls) > 1 else ""
                number = known.setdefault((kind, offer), len(known))
                yield Calls(layer, kind, f"{layer}: {which}{more}", tuple(x.id for x in members), number)


def _with_backward(operators: Sequence[Operator]) -> Iterator[list[Operator]]:
    """Each operator of the forward pass with those of the backward pass that work on the most of its storages."""
    found: dict[int, list[Operator]] = {}
    users: dict[int, list[int]] = {}
    for operator in operators:
        touched = {x for way in operator.implementations for x in (*way.reads, *way.writes)}
        votes = Counter(x for storage in touched for x in users.get(storage, ()))
        if operator.phase is not Phase.FORWARD and votes:
            found[votes.most_common(1)[0][0]].append(operator)
            continue
        found[operator.id] = [operator]
        if operator.phase is Phase.FORWARD:
            made = {x for way in operator.implementations for x in way.writes}
            for storage in touched:
                # What it made is its own; what it read, others may have read or made.
                users.setdefault(storage, []).extend([operator.id] * (2 if storage in made else 1))
    yield from found.values()


def _offer(graph: TrainingGraph, operator: Operator) -> tuple[object, ...]:
    """Equal for operators with the same ways at the same costs.

    What our own calls take is measured for each where they read slices of one tensor, as the steps of a recurrence do:
    those with functions and sizes alike offer the same.
    """

    def costs(way: Implementation) -> object:
        if not _CALL.fullmatch(operator.target):
            return way.cost
        sizes = (tuple(graph.storages[x].bytes for x in storages) for storages in (way.reads, way.writes))
        return way.cost.partition("#")[0], *sizes

    return operator.phase, *((x.name, costs(x)) for x in operator.implementations)


def _has_choice(graph: TrainingGraph, operators: Iterable[Operator]) -> bool:
    """Has one of them several ways for some part?"""
    return any(
        max(Counter(part for way in x.implementations for part in _parts(graph, x, way)).values()) > 1
        for x in operators
        if len(x.implementations) > 1
    )
