"""Steps in which an implementation's condition does not hold: the same schedule, with PyTorch's own in its place."""

from __future__ import annotations

from collections.abc import Collection

from explorer.graph import Operator, Phase, TrainingGraph
from explorer.schedule import Run, Schedule, with_frees


def without(graph: TrainingGraph, schedule: Schedule, operators: Collection[int]) -> Schedule:
    """Run some operators as PyTorch does, and keep until then what that reads.

    Args:
        graph: the schedule's.
        schedule: valid.
        operators: ids of operators that run once.

    Returns:
        A valid schedule; it may take more memory.
    """
    runs = [step for step in schedule.steps if isinstance(step, Run)]
    first: dict[int, int] = {}
    for at, run in enumerate(runs):
        first.setdefault(run.operator, at)
        if run.operator in operators:
            runs[at] = Run(run.operator, graph.operators[run.operator].default().name)
    # What is read for longer now cannot be overwritten before.
    held = {storage.id for storage in graph.storages if storage.held}
    alive = set(held)
    for at in range(len(runs) - 1, -1, -1):
        operator = graph.operators[runs[at].operator]
        chosen = operator.implementation(runs[at].implementation)
        again = first[operator.id] != at
        writes = set(chosen.writes) - (held if again else set())
        if chosen.overwrites in alive:
            # The first run of an optional operator may come after the forward pass, where it counts as a second one.
            again_too = again or (operator.optional and operator.phase is Phase.FORWARD)
            runs[at] = Run(operator.id, _elsewhere(operator, chosen.reads, chosen.writes, again=again_too))
        alive = (alive - writes) | (set(chosen.reads) - graph.persistent)
    return with_frees(graph, runs, method=schedule.method, budget_bytes=schedule.budget_bytes)


def _elsewhere(operator: Operator, reads: Collection[int], writes: Collection[int], *, again: bool) -> str:
    """The implementation that needs and makes the same, and overwrites nothing."""
    return next(
        x.name
        for x in operator.implementations
        if x.overwrites is None
        and set(x.reads) == set(reads)
        and set(x.writes) == set(writes)
        and (x.again if again else x.first)
    )
