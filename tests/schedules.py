"""Random valid schedules, for tests of everything that takes one."""

from __future__ import annotations

import random

from explorer.graph import Operator, TrainingGraph
from explorer.schedule import Run, Schedule, with_frees


def random_schedule(graph: TrainingGraph, seed: int, *, keep: float) -> Schedule:
    """Keep each activation with probability ``keep`` whenever that is asked; recompute what is missed just in time."""
    rng = random.Random(seed)
    first = [Run(x.id, x.default().name) for x in graph.forward]
    runs = list(first)
    needed_always = _needed_always(graph)
    alive = {
        storage
        for operator in graph.forward
        for storage in operator.default().writes
        if storage in needed_always or rng.random() < keep
    }
    for operator in graph.backward:
        order: list[Run] = []
        for storage in operator.default().reads:
            _recompute(graph, storage, alive, order)
        runs += sorted(order, key=lambda x: x.operator)
        runs.append(Run(operator.id, operator.default().name))
        alive = {x for x in alive if x in needed_always or rng.random() < keep}
    return with_frees(graph, runs, method="random", budget_bytes=None)


def _recompute(graph: TrainingGraph, storage: int, alive: set[int], order: list[Run]) -> None:
    producer = graph.producer.get(storage)
    if producer is None or storage in alive or producer >= graph.forward_count:
        return
    operator = graph.operators[producer]
    implementation = operator.default(again=True)
    for source in implementation.reads:
        _recompute(graph, source, alive, order)
    order.append(Run(operator.id, implementation.name))
    alive |= set(implementation.writes)


def _needed_always(graph: TrainingGraph) -> set[int]:
    """What no recomputation makes again: outputs for the caller, random numbers."""
    held = {x.id for x in graph.storages if x.held}
    return held | {storage for operator in graph.forward for storage in _made_once(operator)}


def _made_once(operator: Operator) -> set[int]:
    again = {storage for x in operator.implementations if x.again for storage in x.writes}
    return set(operator.default().writes) - again
