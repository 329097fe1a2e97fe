"""The schedules in the orders with the least memory, nothing recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.schedule import Run, Schedule, keep_all, with_frees
from explorer.solvers.ordering.order import best_order
from explorer.solvers.ordering.steps import Halves, OrderedSteps, halves_of

METHOD = "model"


@dataclass(frozen=True)
class LeastMemory:
    """What is known of the orders of a step.

    Attributes:
        schedules: the captured order, the best order of the same runs, and those with runs in two halves.
        lower_bound_bytes: no order of the same runs, and none with those runs in halves that were tried, takes less.
    """

    schedules: tuple[Schedule, ...]
    lower_bound_bytes: int


def least_memory(profile: Profile, *, seed: int = 0) -> LeastMemory:
    """Order a step, and where that helps, take operators of its backward pass apart.

    Args:
        profile: graph and costs.
        seed: of the random changes on the way.
    """
    whole = OrderedSteps.of(profile)
    found = [(whole, best_order(whole.task, seed=seed))]
    schedules = [keep_all(profile.graph), whole.schedule(found[0][1].operators, method=METHOD)]
    halves = halves_of(profile.graph)
    for halved in filter(None, dict.fromkeys((halves, _cheap(profile, halves)))):
        steps = OrderedSteps.of(profile, halved=halved)
        order = best_order(steps.task, seed=seed)
        found.append((steps, order))
        schedules.append(steps.schedule(order.operators, method=METHOD))
        schedules.append(_joined(profile.graph, [steps.runs[x] for x in order.operators], halved))
    return LeastMemory(tuple(schedules), min(x.lower_bound_bytes for _, x in found))


def _cheap(profile: Profile, halves: Sequence[Halves]) -> tuple[Halves, ...]:
    """Those of which neither half needs more workspace than the whole: with them, no order has to take more."""
    graph = profile.graph

    def workspace(operator: int, name: str) -> int:
        return profile.workspace_bytes(graph.operators[operator].implementation(name))

    return tuple(
        x
        for x in halves
        if max(workspace(y.operator, y.implementation) for y in (x.part, x.rest))
        <= workspace(x.whole.operator, x.whole.implementation)
    )


def _joined(graph: TrainingGraph, runs: Sequence[Run], halved: Sequence[Halves]) -> Schedule:
    """The same order with halves that follow each other as one run: two calls take longer than one."""
    half = {run: x for x in halved for run in (x.part, x.rest)}
    joined: list[Run] = []
    for run in runs:
        one = half.get(run)
        if one is not None and joined and joined[-1] != run and half.get(joined[-1]) == one:
            joined[-1] = one.whole
        else:
            joined.append(run)
    return with_frees(graph, joined, method=METHOD, budget_bytes=None)
