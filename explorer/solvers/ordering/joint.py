"""Order first, then any method: it solves a graph whose operators stand in another order, and what it finds is of both.

A solver goes by the order that operators have in the graph, so it gets a graph in the order with the least memory.
A schedule names operators and has an order of its own, so what comes back is translated and belongs to the graph as it
was captured. The captured order is solved too, and the better answer is given: the order is the best where nothing is
recomputed, which need not be so where much is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import Operator, TrainingGraph
from explorer.rearranging import UPDATE_WITHIN
from explorer.schedule import Run, Schedule, with_frees
from explorer.simulation import simulate
from explorer.solution import BoundScope, Solution, Status
from explorer.solvers.neither import neither
from explorer.solvers.ordering.steps import OrderedSteps, needed_by

_WAITING = "explorer.update_waiting"
"""In place of an update within the backward pass, while solving: recomputing through its parameter makes it wait."""

Solve = Callable[[Profile, float], Sequence[Solution]]
"""Solves for a profile, with a share of the time; one solution for each budget."""


@dataclass(frozen=True)
class Reordered:
    """A profile whose operators stand in another order.

    Attributes:
        original: as it was captured.
        order: its operators' ids, in the new order.
    """

    original: Profile
    order: tuple[int, ...]

    @classmethod
    def of(cls, profile: Profile, *, seed: int = 0) -> Reordered:
        """In the order with the least memory if nothing is recomputed."""
        from explorer.solvers.ordering.order import best_order

        steps = OrderedSteps.of(profile, any_way=True)
        found = best_order(steps.task, seed=seed)
        return cls(profile, _with_optional(profile.graph, [steps.runs[x].operator for x in found.operators]))

    @property
    def as_captured(self) -> bool:
        """Is it the captured order after all?"""
        return self.order == tuple(range(len(self.order)))

    @cached_property
    def profile(self) -> Profile:
        """For solvers: operators in the new order, and numbered so."""
        operators = [self.original.graph.operators[x] for x in self.order]
        numbered = tuple(
            replace(x, id=number, target=_WAITING if x.target == UPDATE_WITHIN else x.target)
            for number, x in enumerate(operators)
        )
        return replace(self.original, graph=replace(self.original.graph, operators=numbered))

    def schedule(self, found: Schedule) -> Schedule:
        """What was found for ``profile``, for the profile as it was captured."""
        graph = self.original.graph
        steps = [Run(self.order[x.operator], x.implementation) if isinstance(x, Run) else x for x in found.steps]
        runs = [x for x in steps if isinstance(x, Run)]
        settled = _settled(graph, runs)
        if settled == runs:
            return replace(found, identity=graph.identity, steps=tuple(steps))
        return with_frees(graph, settled, method=found.method, budget_bytes=found.budget_bytes)

    def solution(self, found: Solution) -> Solution:
        """What was found for ``profile``, for the profile as it was captured; no schedule if that is too large."""
        bounds = tuple(replace(x, scope=BoundScope.ORDER) for x in found.bounds if x.scope is BoundScope.PROBLEM)
        if found.schedule is None:
            return replace(found, bounds=bounds)
        message = _of_order(found.message)
        schedule = self.schedule(found.schedule)
        timeline = simulate(self.original, schedule)
        if timeline.peak_bytes > found.budget_bytes:
            message = "the only schedule found has an update that must wait, and exceeds the budget then"
            return Solution(Status.UNKNOWN, found.budget_bytes, bounds=bounds, message=message)
        return replace(
            found,
            status=Status.FEASIBLE,
            schedule=schedule,
            time_ms=timeline.time_ms,
            peak_bytes=timeline.peak_bytes,
            bounds=bounds,
            message=message,
        )


def solve_in_order(profile: Profile, solve: Solve, *, seed: int = 0) -> tuple[Solution, ...]:
    """Solve in the order with the least memory, and in the captured one; of every budget, the better answer.

    Args:
        profile: graph and costs.
        solve: what solves; each of the two gets half the time.
        seed: of the search for an order.

    Returns:
        Solutions for the profile as it was captured. Bounds are those of schedules in the order of the answer.
    """
    reordered = Reordered.of(profile, seed=seed)
    if reordered.as_captured:
        return tuple(map(in_one_order, solve(profile, 1.0)))
    ours = map(reordered.solution, solve(reordered.profile, 0.5))
    captured = map(in_one_order, solve(profile, 0.5))
    return tuple(map(better, ours, captured))


def in_one_order(solution: Solution) -> Solution:
    """What was found for the captured order, where others are looked at too: one of them may be better."""
    bounds = tuple(replace(x, scope=BoundScope.ORDER) if x.scope is BoundScope.PROBLEM else x for x in solution.bounds)
    status = Status.FEASIBLE if solution.status is Status.OPTIMAL else solution.status
    return replace(solution, bounds=bounds, status=status, message=_of_order(solution.message))


def _of_order(message: str) -> str:
    """What is said to be proven, as that of schedules in one order."""
    return message.replace("the fastest schedule", "the fastest schedule in this order")


def better(one: Solution, other: Solution) -> Solution:
    """Of two answers to the same budget, in different orders."""
    elapsed_s = one.elapsed_s + other.elapsed_s
    if one.schedule is None and other.schedule is None:
        return replace(neither(one, other), elapsed_s=elapsed_s)
    best = min(one, other, key=lambda x: (x.schedule is None, x.time_ms or 0.0, x.peak_bytes or 0))
    return replace(best, elapsed_s=elapsed_s)


def _with_optional(graph: TrainingGraph, order: Sequence[int]) -> tuple[int, ...]:
    """Optional operators behind the last one that they need."""
    place = {x: at for at, x in enumerate(order)}
    behind: dict[int, list[int]] = {}
    for operator in graph.operators:
        if operator.optional:
            behind.setdefault(max(needed_by(graph, operator, known=place), default=-1), []).append(operator.id)
    first = graph.forward_count
    found = list(behind.get(-1, ()))
    for at, x in enumerate(order):
        found += [x, *behind.get(at, ())]
    # Those of the forward pass that need nothing of it, or only buffers, stand at its beginning.
    return tuple(x for x in found if x < first) + tuple(x for x in found if x >= first)


def _settled(graph: TrainingGraph, runs: Sequence[Run]) -> list[Run]:
    """Each update behind the last run that reads its parameter: some recompute through it after its captured place."""
    last: dict[int, int] = {}
    for at, run in enumerate(runs):
        operator = graph.operators[run.operator]
        if operator.target != UPDATE_WITHIN:
            last |= dict.fromkeys(operator.implementation(run.implementation).reads, at)
    parameter = {gradient: x for x, gradient in graph.gradients}
    waiting: dict[int, list[Run]] = {}
    for at, run in enumerate(runs):
        until = at
        operator: Operator = graph.operators[run.operator]
        if operator.target == UPDATE_WITHIN:
            until = max(at, last.get(parameter[operator.default().reads[0]], 0))
        waiting.setdefault(until, []).append(run)
    settled: list[Run] = []
    for at in sorted(waiting):
        # What was to run there runs first, then the updates that waited for it.
        settled += sorted(waiting[at], key=lambda run: run is not runs[at])
    return settled
