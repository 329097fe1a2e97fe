"""The fastest schedule of a small problem by searching all of them: what the programs are checked against."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from explorer.schedule import Schedule
from explorer.solvers.problem import CheckpointProblem


@dataclass(frozen=True, slots=True)
class State:
    """The next backward operator, the first operator that may still run again before it, what is in memory."""

    stage: int
    next_again: int
    alive: frozenset[int]


@dataclass(frozen=True, slots=True)
class Best:
    """The fastest schedule and its time."""

    time_ms: float
    schedule: Schedule


def fastest(problem: CheckpointProblem, budget_bytes: int, *, sweeps: bool) -> Best | None:
    """Search by Dijkstra over what is in memory; None if nothing fits.

    Args:
        problem: small.
        budget_bytes: of the whole step.
        sweeps: recompute only before backward operators that need an activation, in forward order, each operator once;
            otherwise anything after the boundary.
    """
    queue: list[tuple[float, int, State, State | None, int | None]] = []
    for kept in _kept_after_forward(problem, budget_bytes - problem.fixed_bytes):
        queue.append((problem.base_time_ms, len(queue), State(0, 0, kept), None, None))
    count = len(queue)
    came: dict[State, tuple[State | None, int | None]] = {}
    room = budget_bytes - problem.fixed_bytes - problem.held_bytes
    while queue:
        time_ms, _, state, before, rerun = heapq.heappop(queue)
        if state in came:
            continue
        came[state] = (before, rerun)
        if state.stage == len(problem.backward):
            return Best(time_ms, _schedule(problem, state, came, budget_bytes))
        for again, following in _moves(problem, state, room, sweeps=sweeps):
            call = None if again is None else problem.forward[again].again
            cost = call.time_ms if call else 0.0
            count += 1
            heapq.heappush(queue, (time_ms + cost, count, following, state, again))
    return None


def _kept_after_forward(problem: CheckpointProblem, room: int) -> Iterator[frozenset[int]]:
    free = [x for x, activation in enumerate(problem.activations) if not activation.held]
    last = {x: i for i, op in enumerate(problem.forward) for x in (*op.first.writes, *op.first.reads)}
    for count in range(len(free) + 1):
        for chosen in combinations(free, count):
            kept = {*chosen, *(x for x, activation in enumerate(problem.activations) if activation.held)}
            peak = 0
            for i, operator in enumerate(problem.forward):
                made = (x for x, activation in enumerate(problem.activations) if activation.producer <= i)
                alive = sum(problem.activations[x].bytes for x in made if x in kept or last[x] >= i)
                peak = max(peak, alive + operator.first.workspace_bytes)
            if peak <= room:
                yield frozenset(chosen)


def _moves(problem: CheckpointProblem, state: State, room: int, *, sweeps: bool) -> Iterator[tuple[int | None, State]]:
    """Every next state, with the forward operator that runs again on the way."""
    held = {x for x, activation in enumerate(problem.activations) if activation.held}
    live = sum(problem.activations[x].bytes for x in state.alive)
    stage = problem.backward[state.stage]
    for x in state.alive:
        yield None, State(state.stage, state.next_again, state.alive - {x})
    if set(stage.needs) <= state.alive | held and live + stage.busy_bytes <= room:
        yield None, State(state.stage + 1, 0, state.alive)
    if state.stage == 0 or (sweeps and not set(stage.needs) - held):
        return
    for i in range(state.next_again, len(problem.forward)):
        again = problem.forward[i].again
        if again is None or not set(again.reads) <= state.alive | held:
            continue
        made = sum(problem.activations[x].bytes for x in again.writes)
        if live + made + again.workspace_bytes + stage.idle_bytes <= room:
            yield i, State(state.stage, i + 1 if sweeps else 0, state.alive | (set(again.writes) - held))


def _schedule(
    problem: CheckpointProblem,
    state: State | None,
    came: dict[State, tuple[State | None, int | None]],
    budget_bytes: int,
) -> Schedule:
    recomputations: dict[int, list[int]] = {}
    while state is not None:
        before, rerun = came[state]
        if rerun is not None:
            recomputations.setdefault(state.stage, []).insert(0, rerun)
        state = before
    return problem.schedule_of(recomputations, method="exhaustive", budget_bytes=budget_bytes)
