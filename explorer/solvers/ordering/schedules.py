"""The schedules in the orders with the least memory, nothing recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.schedule import Run, Schedule, keep_all, with_frees
from explorer.solvers.ordering.bounds import lower_bound_bytes
from explorer.solvers.ordering.order import best_order
from explorer.solvers.ordering.steps import Halves, OrderedSteps, halves_of

METHOD = "model"


@dataclass(frozen=True)
class LeastMemory:
    """What is known of the orders of a step.

    Attributes:
        schedules: the captured order, the best order of the same runs, and those with runs in two halves.
        lower_bound_bytes: no order takes less, whichever operators run in halves.
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
    order = best_order(whole.task, seed=seed)
    schedules = [keep_all(profile.graph), whole.schedule(order.operators, method=METHOD)]
    peak, bound = order.peak_bytes, order.lower_bound_bytes
    halves = halves_of(profile.graph)
    cheap = tuple(x for x in halves if _workspace(profile, x.part, x.rest) <= _workspace(profile, x.whole))
    for halved in filter(None, dict.fromkeys((halves, cheap))):
        steps = OrderedSteps.of(profile, halved=halved)
        order = best_order(steps.task, seed=seed)
        schedules.append(steps.schedule(order.operators, method=METHOD))
        schedules.append(_joined(profile.graph, [steps.runs[x] for x in order.operators], halved))
        if halved == cheap:
            bound = min(bound, order.lower_bound_bytes)
        if order.peak_bytes <= peak:
            peak = order.peak_bytes
            break  # no workspace of a half stands in the way
    if cheap != halves:
        bound = min(bound, _bound_of_any_halves(profile, halves, enough_bytes=peak))
    return LeastMemory(tuple(schedules), bound)


def _workspace(profile: Profile, *runs: Run) -> int:
    """The most of these, in bytes."""
    ways = (profile.graph.operators[x.operator].implementation(x.implementation) for x in runs)
    return max(map(profile.workspace_bytes, ways))


def _bound_of_any_halves(profile: Profile, halves: Sequence[Halves], *, enough_bytes: int) -> int:
    """No order takes less, whichever operators are in halves.

    Where a half needs no more workspace than the whole, two halves one after the other need no more memory than it: so
    with such halves, no order of any choice takes less than those of all.
    """
    steps = OrderedSteps.of(profile, halved=halves)
    most = {run: _workspace(profile, x.whole) for x in halves for run in (x.part, x.rest)}
    known = zip(steps.runs, steps.task.workspace_bytes, strict=True)
    task = replace(steps.task, workspace_bytes=tuple(min(x, most.get(run, x)) for run, x in known))
    return lower_bound_bytes(task, enough_bytes=enough_bytes)


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
