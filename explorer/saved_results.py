"""Schedules that a compiled step can run: what is saved after the forward pass, and nothing else, is chosen.

``torch.compile``'s partitioner computes again what was not saved once, where the backward pass first reads it, from the
nearest results that are in memory then, and the compiler writes results over arguments that nothing reads any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, Phase, TrainingGraph
from explorer.schedule import Free, Run, Schedule, with_frees


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a choice: the step's time and peak, and what is in memory at the peak."""

    time_ms: float
    peak_bytes: int
    at_peak: frozenset[int]


class CompiledStep:
    """A compiled graph with costs, and what becomes of it when some results are saved."""

    def __init__(self, profile: Profile) -> None:
        """``profile`` is of a compiled step."""
        self.profile = profile
        self.graph: TrainingGraph = profile.graph
        self.forward = [x for x in self.graph.forward if not x.optional]
        self.backward = [x for x in self.graph.backward if not x.optional]
        self.bytes = [profile.allocated_bytes(x) for x in self.graph.storages]
        self.held = frozenset(x.id for x in self.graph.storages if x.held)
        ways = {id(y): y for x in self.graph.operators for y in x.implementations}
        self.costs = {key: (profile.cost(x).time_ms, profile.workspace_bytes(x)) for key, x in ways.items()}

    @cached_property
    def keepsakes(self) -> frozenset[int]:
        """Storages that are saved whatever the choice, if the backward pass needs them."""
        largest = max((self.bytes[x] for x in self.made - self._copies), default=0)
        kept = set(self.held)
        for operator in self.forward:
            again = {x for way in operator.implementations if way.again for x in way.writes}
            for storage in operator.default().writes:
                if storage not in again or self.bytes[storage] * 64 <= largest:
                    kept.add(storage)
        return frozenset(kept)

    @cached_property
    def _copies(self) -> frozenset[int]:
        """Of model and batch in another layout: their sizes say nothing of activations'."""
        return frozenset(
            x
            for operator in self.forward
            for x in operator.default().writes
            if not any(way.again for way in operator.implementations)
            and self.graph.persistent.issuperset(operator.default().reads)
        )

    @cached_property
    def made(self) -> frozenset[int]:
        """What the forward pass puts into memory."""
        return frozenset(x for operator in self.forward for x in operator.default().writes)

    @cached_property
    def read(self) -> frozenset[int]:
        """What of that the backward pass reads, if all of it is there."""
        return frozenset(x for operator in self.backward for x in operator.default().reads) & self.made

    @cached_property
    def choices(self) -> tuple[int, ...]:
        """Storages that may be saved or not."""
        return tuple(sorted(self.made - self.keepsakes))

    def runs(self, saved: AbstractSet[int]) -> list[tuple[Operator, Implementation]]:
        """What runs in order, before results are put over arguments."""
        found = [(x, x.default()) for x in self.forward]
        there = set(saved) | self.keepsakes | self.graph.persistent
        for operator in self.backward:
            self._make(operator.default().reads, there, found)
            found.append((operator, operator.default()))
            there |= set(operator.default().writes)
        return found

    def _make(self, wanted: Iterable[int], there: set[int], found: list[tuple[Operator, Implementation]]) -> None:
        missing = [x for x in wanted if x not in there]
        while missing:
            operator = self.graph.operators[self.graph.producer[missing[0]]]
            together = [x for x in missing if x in operator.default().writes]
            way = self._way(operator, together, there)
            self._make(way.reads, there, found)
            found.append((operator, way))
            there |= set(way.writes)
            missing = [x for x in missing if x not in there]

    def _way(self, operator: Operator, wanted: list[int], there: set[int]) -> Implementation:
        """From what is nearest: with the least missing, then the fewest results beside those wanted."""

        def rank(way: Implementation) -> tuple[int, int, int, float]:
            made = set(way.writes)
            missing = sum(self.bytes[x] for x in way.reads if x not in there)
            return (
                sum(x not in made for x in wanted),
                missing,
                len(made.difference(wanted)),
                self.costs[id(way)][0],
            )

        ways = [x for x in operator.implementations if x.again and x.overwrites is None and wanted[0] in x.writes]
        return min(ways, key=rank)

    def judge(self, saved: AbstractSet[int]) -> Figures:
        """Time and peak, as the simulator has them of ``schedule``, without making one."""
        runs = self.runs(saved)
        alive: set[int] = set()
        now, peak, time_ms = self.profile.fixed_bytes, 0, 0.0
        at_peak: frozenset[int] = frozenset()
        for (operator, way), dying in zip(runs, self._dying(runs), strict=True):
            chosen = self._in_place(operator, way, dying)
            if chosen.overwrites is not None:
                now -= self.bytes[chosen.overwrites]
                alive.discard(chosen.overwrites)
            discarded = 0
            for storage in chosen.writes:
                if storage in alive:
                    discarded += self.bytes[storage]
                else:
                    alive.add(storage)
                    now += self.bytes[storage]
            cost_ms, workspace = self.costs[id(chosen)]
            time_ms += cost_ms
            if now + workspace + discarded > peak:
                peak, at_peak = now + workspace + discarded, frozenset(alive)
            for storage in dying:
                if storage in alive:
                    alive.discard(storage)
                    now -= self.bytes[storage]
        return Figures(time_ms, peak, at_peak)

    def _dying(self, runs: list[tuple[Operator, Implementation]]) -> list[set[int]]:
        """What nothing reads after each run, until it is made again."""
        later = set(self.held)
        found = []
        for _, way in reversed(runs):
            used = {*way.reads, *way.writes} - self.graph.persistent
            found.append(used - later)
            later = later.difference(set(way.writes) - self.held).union(x for x in way.reads)
        return found[::-1]

    def _in_place(self, operator: Operator, way: Implementation, dying: AbstractSet[int]) -> Implementation:
        """Over an argument that nothing reads later, as the compiler does it."""
        if way is operator.default():
            for other in operator.implementations:
                if other.overwrites is not None and other.overwrites in dying:
                    return other
        return way

    def schedule(self, saved: AbstractSet[int], *, method: str, budget_bytes: int | None = None) -> Schedule:
        """As a schedule."""
        runs = self.runs(saved)
        chosen = [(x, self._in_place(x, way, dying)) for (x, way), dying in zip(runs, self._dying(runs), strict=True)]
        return with_frees(
            self.graph, [Run(x.id, way.name) for x, way in chosen], method=method, budget_bytes=budget_bytes
        )


def saved_by(graph: TrainingGraph, schedule: Schedule) -> frozenset[int]:
    """What a schedule has in memory when the forward pass ends, of what that makes."""
    alive: set[int] = set()
    for step in schedule.steps:
        if isinstance(step, Free):
            alive.discard(step.storage)
            continue
        operator = graph.operators[step.operator]
        if operator.phase is not Phase.FORWARD:
            break
        way = operator.implementation(step.implementation)
        alive |= set(way.writes)
        if way.overwrites is not None:
            alive.discard(way.overwrites)
    return frozenset(alive)
