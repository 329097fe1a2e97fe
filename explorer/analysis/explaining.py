"""Why a schedule does what it does: the fate of each tensor and operator in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, Phase, Role, Storage
from explorer.kinds import a_profile
from explorer.schedule import Schedule
from explorer.simulation import profile_for, simulate
from explorer.timeline import Lifetime, Stage, Timeline
from explorer.units import format_bytes, shown


class Fate(StrEnum):
    """What becomes of a tensor."""

    PERSISTENT = "persistent"
    """A parameter, buffer or input: in memory before the step and after it."""
    KEPT = "kept"
    """Made in the forward pass, in memory when the backward pass begins, never made again."""
    RECOMPUTED = "recomputed"
    """Made again after the forward pass."""
    ENCODED = "encoded"
    """Gone before the backward pass, which reads a compact tensor (a bit mask, window offsets) in its place."""
    REPLACED = "replaced"
    """Gone before the backward pass, which reads another activation in its place (an output for an input)."""
    TEMPORARY = "temporary"
    """Of use to its own pass only: PyTorch would not keep it for the backward pass either, or it is a gradient."""
    ABSENT = "absent"
    """This schedule never makes it: an auxiliary tensor that nothing reads."""


@dataclass(frozen=True, slots=True)
class Recomputation:
    """What making a tensor again would take, with what a schedule has in memory when its backward pass reads it.

    Attributes:
        operators: ids of the forward operators that would run, in order.
        time_ms: of all of them, each by its quickest implementation.
        before: the backward operator before which they would run.
    """

    operators: tuple[int, ...]
    time_ms: float
    before: int


@dataclass(frozen=True, slots=True)
class TensorExplanation:
    """A tensor in a schedule.

    Attributes:
        storage: which.
        fate: what becomes of it.
        allocated_bytes: as the allocator takes it.
        producer: id of the operator that makes it; None for what is persistent.
        lifetimes: its stays in memory, as runs of the timeline; none for what is persistent.
        alive_ms: how long it is in memory, summed over its stays; the whole step for what is persistent.
        at_peak: is it in memory at the schedule's peak?
        made_again: how often it is made after the forward pass.
        made_again_ms: time of its producer's recomputations.
        stand_ins: ids of the storages that backward operators read where PyTorch's own implementation reads this one.
        readers: ids of the backward operators that read it in this schedule.
        recomputation: what making it again would take (or takes, before its first reader); None where nothing in the
            backward pass could read it, or it cannot be made again.
    """

    storage: Storage
    fate: Fate
    allocated_bytes: int
    producer: int | None
    lifetimes: tuple[Lifetime, ...]
    alive_ms: float
    at_peak: bool
    made_again: int
    made_again_ms: float
    stand_ins: tuple[int, ...]
    readers: tuple[int, ...]
    recomputation: Recomputation | None


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """One run of an operator.

    Attributes:
        run: its row of the timeline.
        stage: what it is part of.
        implementation: its name.
        time_ms: its duration.
        workspace_bytes: memory beyond inputs and outputs.
    """

    run: int
    stage: Stage
    implementation: str
    time_ms: float
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class OperatorExplanation:
    """An operator in a schedule.

    Attributes:
        operator: which.
        runs: in order.
        alternatives: its implementations with their time in ms and workspace in bytes, PyTorch's own first.
    """

    operator: Operator
    runs: tuple[OperatorRun, ...]
    alternatives: tuple[tuple[str, float, int], ...]


def explain(profile: Profile, schedule: Schedule, tensor: str) -> TensorExplanation:
    """Say what becomes of a tensor in a schedule.

    Args:
        profile: graph and costs.
        schedule: for that graph.
        tensor: its name (``Storage.name``).

    Raises:
        ValueError: there is no such tensor, or the schedule is not for this profile.
    """
    found = next((x for x in a_profile(profile).graph.storages if x.name == tensor), None)
    if found is None:
        raise ValueError(f"there is no tensor {shown(tensor)}; names are those of the graph's storages")
    return _Explainer(profile, schedule).tensor(found)


def explain_operator(profile: Profile, schedule: Schedule, operator: str) -> OperatorExplanation:
    """Say how an operator runs in a schedule, and how it might.

    Raises:
        ValueError: there is no such operator, or the schedule is not for this profile.
    """
    profile = profile_for(schedule, profile=profile)
    found = next((x for x in profile.graph.operators if x.name == operator), None)
    if found is None:
        raise ValueError(f"there is no operator {shown(operator)}; names are those of the graph's operators")
    return _Explainer(profile, schedule).operator(found)


def explain_all(profile: Profile, schedule: Schedule) -> tuple[TensorExplanation, ...]:
    """Every tensor that is made in the forward pass, in the order of the graph."""
    explainer = _Explainer(profile, schedule)
    made = explainer.graph.producer
    return tuple(explainer.tensor(x) for x in explainer.graph.storages if made.get(x.id, 1 << 62) < explainer.boundary)


class _Explainer:
    def __init__(self, profile: Profile, schedule: Schedule) -> None:
        profile = profile_for(schedule, profile=profile)
        self.profile, self.graph = profile, profile.graph
        self.boundary = profile.graph.forward_count
        self.line: Timeline = simulate(profile, schedule)
        self.first_backward = next(
            (n for n, x in enumerate(self.line.operators) if x >= self.boundary), len(self.line.operators)
        )
        self.stays: dict[int, list[Lifetime]] = {}
        for stay in self.line.lifetimes:
            self.stays.setdefault(stay.storage, []).append(stay)
        self.used = [self._implementation(n) for n in range(len(self.line.operators))]
        backward = [n for n, x in enumerate(self.line.stages) if x is Stage.BACKWARD]
        ran = {n: self.graph.operators[self.line.operators[n]] for n in backward}
        # By storage: looked up for each of thousands.
        self.made_again = _by_storage(
            (n, self.used[n].writes) for n, x in enumerate(self.line.stages) if x is Stage.RECOMPUTE
        )
        self.readers = _by_storage((n, self.used[n].reads) for n in backward)
        self.own_readers = _by_storage((n, ran[n].default().reads) for n in backward)
        self.possible_readers = _by_storage((n, way.reads) for n in backward for way in ran[n].implementations)

    def _implementation(self, run: int) -> Implementation:
        return self.graph.operators[self.line.operators[run]].implementation(self.line.implementations[run])

    def tensor(self, storage: Storage) -> TensorExplanation:
        stays = tuple(sorted(self.stays.get(storage.id, ()), key=lambda x: x.start))
        again = self.made_again.get(storage.id, [])
        persistent = storage.id in self.graph.persistent
        whole = persistent or not len(self.line.operators)
        return TensorExplanation(
            storage=storage,
            fate=self._fate(storage, stays, again),
            allocated_bytes=self.profile.allocated_bytes(storage),
            producer=self.graph.producer.get(storage.id),
            lifetimes=stays,
            alive_ms=self.line.time_ms if whole else sum(self._duration(stay) for stay in stays),
            at_peak=persistent or any(x.start <= self.line.peak_run <= x.end for x in stays),
            made_again=len(again),
            made_again_ms=sum(float(self.line.times_ms[n]) for n in again),
            stand_ins=self._stand_ins(storage),
            readers=tuple(self.line.operators[n] for n in self.readers.get(storage.id, ())),
            recomputation=None if persistent else self._recomputation(storage),
        )

    def operator(self, operator: Operator) -> OperatorExplanation:
        runs = tuple(
            OperatorRun(
                n,
                self.line.stages[n],
                self.used[n].name,
                float(self.line.times_ms[n]),
                self.profile.workspace_bytes(self.used[n]),
            )
            for n, x in enumerate(self.line.operators)
            if x == operator.id
        )
        alternatives = tuple(
            (x.name, self.profile.cost(x).time_ms, self.profile.workspace_bytes(x)) for x in operator.implementations
        )
        return OperatorExplanation(operator, runs, alternatives)

    def _duration(self, stay: Lifetime) -> float:
        return float(self.line.times_ms[stay.start : stay.end + 1].sum())

    def _fate(self, storage: Storage, stays: Sequence[Lifetime], again: Sequence[int]) -> Fate:
        if storage.id in self.graph.persistent:
            return Fate.PERSISTENT
        if storage.role is not Role.ACTIVATION:
            return Fate.TEMPORARY
        if again or not stays:
            return Fate.RECOMPUTED if again else Fate.ABSENT
        if any(x.start < self.first_backward <= x.end for x in stays):
            return Fate.KEPT
        stand_ins = self._stand_ins(storage)
        compact = any(self.graph.operators[self.graph.producer[x]].optional for x in stand_ins)
        return Fate.ENCODED if compact else Fate.REPLACED if stand_ins else Fate.TEMPORARY

    def _stand_ins(self, storage: Storage) -> tuple[int, ...]:
        """What backward operators read beyond what PyTorch's implementation does, where that reads the tensor."""
        found: dict[int, None] = {}
        for n in self.own_readers.get(storage.id, ()):
            own = self.graph.operators[self.line.operators[n]].default()
            if storage.id not in self.used[n].reads:
                more = (x for x in self.used[n].reads if x not in own.reads and x not in self.graph.persistent)
                found |= dict.fromkeys(x for x in more if self.graph.producer[x] < self.boundary)
        return tuple(found)

    def _recomputation(self, storage: Storage) -> Recomputation | None:
        """The operators that make it from what is in memory just before a backward operator first wants it."""
        reader = self._first_reader(storage)
        if reader is None:
            return None
        operators = self._closure(storage.id, reader)
        if operators is None:
            return None
        time_ms = sum(self.profile.cost(x).time_ms for x in operators.values())
        return Recomputation(tuple(sorted(operators)), time_ms, self.line.operators[reader])

    def _first_reader(self, storage: Storage) -> int | None:
        """The first backward run that reads it, or might by another implementation."""
        readers = self.readers.get(storage.id) or self.possible_readers.get(storage.id)
        return readers[0] if readers else None

    def _there(self, storage: int, run: int) -> bool:
        """Is it in memory just before a run?"""
        return storage in self.graph.persistent or any(x.start < run <= x.end for x in self.stays.get(storage, ()))

    def _closure(self, wanted: int, run: int) -> dict[int, Implementation] | None:
        """Operators that must run again to have a storage before a run, each by its quickest way.

        None where one cannot.
        """
        pending, found = [wanted], dict[int, Implementation]()

        def there(storage: int) -> bool:
            return storage != wanted and self._there(storage, run)

        while pending:
            storage = pending.pop()
            maker = self.graph.operators[self.graph.producer[storage]]
            if maker.id in found and storage in found[maker.id].writes:
                continue
            # What it reads of its own making (a normalisation's statistics) must be there.
            own = set(maker.default().writes)
            able = [
                x
                for x in maker.implementations
                if x.again
                and storage in x.writes
                and all(there(own_result) for own_result in own.intersection(x.reads))
            ]
            if not able:
                return None
            quickest = found[maker.id] = min(able, key=lambda x: self.profile.cost(x).time_ms)
            pending += [x for x in quickest.reads if not there(x)]
        return found


def _by_storage(touched: Iterable[tuple[int, Iterable[int]]]) -> dict[int, list[int]]:
    """The runs that touch each storage, in order, a run once."""
    found: dict[int, dict[int, None]] = {}
    for run, storages in touched:
        for storage in storages:
            found.setdefault(storage, {})[run] = None
    return {storage: list(runs) for storage, runs in found.items()}


def sentence(profile: Profile, found: TensorExplanation) -> str:
    """An explanation as a sentence or two, without markup."""
    graph = profile.graph
    maker = "" if found.producer is None else f" made by {_where(graph.operators[found.producer])}"
    told = f"{found.storage.name!r} ({format_bytes(found.allocated_bytes)}){maker} is {found.fate.value}"
    if found.made_again:
        times = "once" if found.made_again == 1 else f"{found.made_again} times"
        told += f": made again {times}, in {found.made_again_ms:.2f} ms"
    if found.fate in (Fate.ENCODED, Fate.REPLACED):
        names = ", ".join(repr(graph.storages[x].name) for x in found.stand_ins)
        told += f": the backward pass reads {names} instead"
    if found.fate is Fate.ABSENT:
        return f"{told}: this schedule does not make it."
    told += f". In memory for {found.alive_ms:.1f} ms" + (
        ", also at the peak." if found.at_peak else ", not at the peak."
    )
    if found.fate is Fate.KEPT and found.recomputation is not None:
        count = len(found.recomputation.operators)
        told += f" Making it again would take {found.recomputation.time_ms:.2f} ms ({count} operators)."
    return told


def _where(operator: Operator) -> str:
    passed = " in the backward pass" if operator.phase is Phase.BACKWARD else ""
    return f"{operator.name!r}" + (f" in {operator.layer!r}" if operator.layer else "") + passed
