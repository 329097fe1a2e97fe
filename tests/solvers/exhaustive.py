"""The fastest schedule of a small problem by searching all of them: what the programs are checked against."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

from explorer.schedule import Schedule
from explorer.solvers.problem.problem import Form, Option, Problem
from explorer.solvers.problem.schedules import schedule_of
from tests.solvers.unmerged import unmerged


@dataclass(frozen=True, slots=True)
class State:
    """The next backward operator, the first operator that may still run again before it, what is in memory."""

    stage: int
    next_again: int
    alive: frozenset[int]


@dataclass(frozen=True, slots=True)
class Start:
    """A forward pass: its time, what is in memory after it, and its runs as (operator id, form)."""

    time_ms: float
    kept: frozenset[int]
    order: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Best:
    """The fastest schedule and its time."""

    time_ms: float
    schedule: Schedule


Move = tuple[float, State, tuple[int, int] | None]
"""Milliseconds, what comes of it, and what ran as (operator id, form)."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a schedule must do besides fitting: pins, restated for this search alone.

    Attributes:
        kept: activations in memory after the forward pass and until the first backward operator behind the boundary
            has run; nothing makes them again.
        dropped: activations that are not in memory after the forward pass.
    """

    kept: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()

    def allows_start(self, kept: frozenset[int], held: set[int]) -> bool:
        """May the forward pass end so?"""
        return self.kept <= kept | held and not self.dropped & kept

    def allows_free(self, problem: Problem, activation: int, stage: int) -> bool:
        """May it go before this backward operator?"""
        first = next((t for t, op in enumerate(problem.backward) if t and op.forms), 0)
        return activation not in self.kept or stage > first

    def allows_again(self, form: Form) -> bool:
        """May it run again?"""
        return not self.kept & set(form.writes)


FREE = Rule()


def fastest(problem: Problem, budget_bytes: int, *, sweeps: bool, rule: Rule = FREE) -> Best | None:
    """Search by Dijkstra over what is in memory; None if nothing fits.

    Args:
        problem: small.
        budget_bytes: of the whole step.
        sweeps: recompute only before backward operators that may read an activation, in forward order, each operator
            once; otherwise anything after the boundary.
        rule: what must hold besides.
    """
    room = budget_bytes - problem.fixed_bytes
    offers = unmerged(problem).offers
    places = {t for t in range(1, len(problem.backward)) if offers[t] or not sweeps}
    queue: list[tuple[float, int, State, State | None, tuple[int, int] | None]] = []
    starts: dict[State, Start] = {}
    for start in _forward_passes(problem, room):
        if not rule.allows_start(start.kept, {x for x, found in enumerate(problem.activations) if found.held}):
            continue
        state = State(0, 0, start.kept)
        if state not in starts or start.time_ms < starts[state].time_ms:
            starts[state] = start
    for state, start in starts.items():
        queue.append((start.time_ms, len(queue), state, None, None))
    heapq.heapify(queue)
    count = len(queue)
    came: dict[State, tuple[State | None, tuple[int, int] | None]] = {}
    while queue:
        time_ms, _, state, before, run = heapq.heappop(queue)
        if state in came:
            continue
        came[state] = (before, run)
        if state.stage == len(problem.backward):
            return Best(time_ms, _schedule(problem, state, came, starts, budget_bytes))
        again = state.stage in places
        free_bytes = room - problem.held_bytes
        for cost_ms, following, ran in _moves(problem, state, free_bytes, rule, again=again, sweeps=sweeps):
            count += 1
            heapq.heappush(queue, (time_ms + cost_ms, count, following, state, ran))
    return None


def _forward_passes(problem: Problem, room: int) -> Iterator[Start]:
    free = [x for x, activation in enumerate(problem.activations) if not activation.held]
    held = {x for x, activation in enumerate(problem.activations) if activation.held}
    required = [i for i, op in enumerate(problem.forward) if not op.optional]
    optional = [i for i, op in enumerate(problem.forward) if op.optional and op.first]
    for count in range(len(optional) + 1):
        for wanted in combinations(optional, count):
            order = sorted((*required, *wanted))
            for forms in product(*(range(len(problem.forward[i].first)) for i in order)):
                runs = [(i, problem.forward[i].first[f]) for i, f in zip(order, forms, strict=True)]
                for kept in _subsets(x for _, form in runs for x in form.writes if x in free):
                    time_ms = _forward_time(problem, runs, kept | held, room)
                    if time_ms is not None:
                        yield Start(time_ms, kept, tuple(zip(order, forms, strict=True)))


def _subsets(items: Iterable[int]) -> Iterator[frozenset[int]]:
    found = list(items)
    for count in range(len(found) + 1):
        yield from map(frozenset, combinations(found, count))


def _forward_time(problem: Problem, runs: list[tuple[int, Form]], kept: frozenset[int], room: int) -> float | None:
    """Milliseconds of a forward pass that ends with ``kept`` in memory; None where that is impossible."""
    alive, total = set(kept), 0.0
    for _, form in reversed(runs):
        there = alive | set(form.reads) | set(form.writes)
        level = sum(problem.activations[x].bytes for x in there)
        times = [x.time_ms for x in _fitting(problem, form, room - level) if x.overwrites not in alive]
        if not times:
            return None
        total += min(times)
        alive = (alive - set(form.writes)) | set(form.reads)
    return None if alive else total


def _fitting(problem: Problem, form: Form, room: int) -> Iterator[Option]:
    for option in form.options:
        saved = 0 if option.overwrites is None else problem.activations[option.overwrites].bytes
        if option.workspace_bytes - saved <= room:
            yield option


def _moves(problem: Problem, state: State, room: int, rule: Rule, *, again: bool, sweeps: bool) -> Iterator[Move]:
    """What may happen next: something goes, the backward operator runs, a forward operator runs again."""
    for x in state.alive:
        if rule.allows_free(problem, x, state.stage):
            yield 0.0, State(state.stage, state.next_again, state.alive - {x}), None
    yield from _backward_moves(problem, state, room, rule)
    if again:
        yield from _again_moves(problem, state, room, rule, sweeps=sweeps)


def _held(problem: Problem) -> set[int]:
    return {x for x, activation in enumerate(problem.activations) if activation.held}


def _backward_moves(problem: Problem, state: State, room: int, rule: Rule) -> Iterator[Move]:
    live = sum(problem.activations[x].bytes for x in state.alive)
    stage = problem.backward[state.stage]
    if not stage.forms:
        yield 0.0, State(state.stage + 1, 0, state.alive), None
    for f, form in enumerate(stage.forms):
        if not set(form.reads) <= state.alive | _held(problem):
            continue
        for option in _fitting(problem, form, room - live - stage.idle_bytes - stage.made_bytes):
            if option.overwrites is None or rule.allows_free(problem, option.overwrites, state.stage + 1):
                left = state.alive - {option.overwrites}
                yield option.time_ms, State(state.stage + 1, 0, left), (len(problem.forward) + state.stage, f)


def _again_moves(problem: Problem, state: State, room: int, rule: Rule, *, sweeps: bool) -> Iterator[Move]:
    held, live = _held(problem), sum(problem.activations[x].bytes for x in state.alive)
    for i in range(state.next_again, len(problem.forward)):
        for f, form in enumerate(problem.forward[i].again):
            if not set(form.reads) <= state.alive | held or not rule.allows_again(form):
                continue
            made = sum(problem.activations[x].bytes for x in form.writes)
            for option in _fitting(problem, form, room - live - made - problem.backward[state.stage].idle_bytes):
                if option.overwrites is None or rule.allows_free(problem, option.overwrites, state.stage):
                    left = (state.alive - {option.overwrites}) | (set(form.writes) - held)
                    yield option.time_ms, State(state.stage, i + 1 if sweeps else 0, left), (i, f)


def _schedule(
    problem: Problem,
    state: State,
    came: dict[State, tuple[State | None, tuple[int, int] | None]],
    starts: dict[State, Start],
    budget_bytes: int,
) -> Schedule:
    order: list[tuple[int, int]] = []
    before, ran = came[state]
    while before is not None:
        if ran is not None:
            order.append(ran)
        state = before
        before, ran = came[state]
    order = [*starts[state].order, *reversed(order)]
    return schedule_of(problem, order, method="exhaustive", budget_bytes=budget_bytes)
