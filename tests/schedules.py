"""Random valid schedules, for tests of everything that takes one."""

from __future__ import annotations

import random
from collections.abc import Callable

from explorer.graph import Implementation, Operator, Optimization, Phase, TrainingGraph
from explorer.schedule import Run, Schedule, with_frees

Allowed = Callable[[Implementation], bool]


def random_schedule(
    graph: TrainingGraph, seed: int, *, keep: float, allowed: Allowed | None = None, in_place: float = 0.5
) -> Schedule:
    """Keep each activation with probability ``keep`` whenever that is asked; recompute what is missed just in time.

    Args:
        graph: to run.
        seed: the same one gives the same schedule.
        keep: from 0 to 1.
        allowed: which implementations to draw from, PyTorch's own besides; None: PyTorch's own only.
        in_place: the share of runs that overwrite what is read nowhere later, of those that can.
    """
    return _Drawing(graph, random.Random(seed), keep, allowed, in_place).schedule()


def exact_or_fused(way: Implementation) -> bool:
    """For ``allowed``: what computes PyTorch's bits, or a kernel that stands for calls that do."""
    return way.exact or way.optimization is Optimization.FUSED


def keep_all_apart(graph: TrainingGraph) -> Schedule:
    """Recompute nothing, with nothing in place, as the methods that PyTorch is compared with count it."""
    runs = [Run(operator.id, operator.default().name) for operator in graph.operators if not operator.optional]
    return with_frees(graph, runs, method="test", budget_bytes=None)


class _Drawing:
    def __init__(
        self, graph: TrainingGraph, rng: random.Random, keep: float, allowed: Allowed | None, overwriting: float
    ) -> None:
        self.graph = graph
        self.rng = rng
        self.keep = keep
        self.allowed = allowed
        self.overwriting = overwriting
        self.needed_always = _needed_always(graph)
        self.extras = _extras(graph)
        self.alive: set[int] = set()
        self.readable = set(graph.persistent)

    def schedule(self) -> Schedule:
        runs: list[Run] = []
        for operator in self.graph.forward:
            if not operator.optional or (self.allowed is not None and self.rng.random() < 0.5):
                # What an optional operator makes is there only if that one was drawn.
                there = [x for x in operator.implementations if x.first and set(x.reads) <= self.readable]
                chosen = self.choose(operator, there)
                self.readable |= set(chosen.writes)
                runs.append(Run(operator.id, chosen.name))
                self.alive |= {x for x in chosen.writes if self.kept(x)}
        owed: set[int] = set()
        for operator in self.graph.backward:
            if operator.optional and not owed & set(operator.default().writes):
                continue
            there = [x for x in operator.implementations if self.extras.intersection(x.reads) <= self.alive]
            chosen = self.choose(operator, there)
            owed |= set(operator.default().writes) - set(chosen.writes)
            order: list[Run] = []
            for storage in chosen.reads:
                self.recompute(storage, order)
            runs += sorted(order, key=lambda x: x.operator)
            runs.append(Run(operator.id, chosen.name))
            self.alive = {x for x in self.alive if self.kept(x)}
        if self.allowed is not None:
            runs = self.in_place(runs)
        return with_frees(self.graph, runs, method="random", budget_bytes=None)

    def kept(self, storage: int) -> bool:
        return storage in self.needed_always or self.rng.random() < self.keep

    def choose(self, operator: Operator, among: list[Implementation] | tuple[Implementation, ...]) -> Implementation:
        if self.allowed is None:
            return among[0]
        own = () if operator.optional else operator.implementations[:1]
        found = [x for x in among if x.overwrites in {None, *self.extras} and (self.allowed(x) or x in own)]
        return self.rng.choice(found or list(among[:1]))

    def recompute(self, storage: int, order: list[Run]) -> None:
        producer = self.graph.producer.get(storage)
        if producer is None or storage in self.alive or producer >= self.graph.forward_count:
            return
        operator = self.graph.operators[producer]
        own = set(operator.default().writes)
        able = [x for x in operator.implementations if x.again and storage in x.writes]
        able = [x for x in able if x.overwrites is None and not (set(x.reads) & own) - self.alive]
        implementation = self.choose(operator, able)
        for source in implementation.reads:
            self.recompute(source, order)
        order.append(Run(operator.id, implementation.name))
        self.alive |= set(implementation.writes)

    def in_place(self, runs: list[Run]) -> list[Run]:
        """Some of the runs that could overwrite what is read nowhere later do so."""
        assert self.allowed is not None
        held = {x.id for x in self.graph.storages if x.held}
        alive = set(held)
        started = {run.operator: at for at, run in reversed(list(enumerate(runs)))}
        for at in range(len(runs) - 1, -1, -1):
            operator = self.graph.operators[runs[at].operator]
            chosen = operator.implementation(runs[at].implementation)
            again = started[operator.id] != at
            writes = set(chosen.writes) - (held if again else set())
            if (operator.optional or again) and not writes & alive:
                continue
            optional_again = operator.optional and operator.phase is Phase.FORWARD
            rivals = [
                x
                for x in operator.implementations
                if x.overwrites is not None
                and x.overwrites not in alive
                and self.allowed(x)
                and set(x.reads) == set(chosen.reads)
                and set(x.writes) == set(chosen.writes)
                and (x.again if again or optional_again else x.first)
            ]
            if rivals and self.rng.random() < self.overwriting:
                runs[at] = Run(operator.id, self.rng.choice(rivals).name)
            alive = (alive - writes) | (set(chosen.reads) - self.graph.persistent)
        return runs


def _needed_always(graph: TrainingGraph) -> set[int]:
    """What no recomputation makes again: outputs for the caller, random numbers."""
    held = {x.id for x in graph.storages if x.held}
    return held | {storage for operator in graph.forward for storage in _made_once(operator)}


def _made_once(operator: Operator) -> set[int]:
    again = {storage for x in operator.implementations if x.again for storage in x.writes}
    return {storage for x in operator.implementations for storage in x.writes} - again


def _extras(graph: TrainingGraph) -> set[int]:
    """What PyTorch's own implementations never make; one operator reads it, once."""
    own = {storage for operator in graph.operators for storage in operator.default().writes}
    return {x.id for x in graph.storages} - own - graph.persistent
