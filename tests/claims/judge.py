"""The fastest and the smallest schedule of a small graph, by trying all: what the solvers' claims are held against.

It knows the graph, its costs and the rules of the simulator, and nothing of the solvers: neither how they state the
problem nor what they leave out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import Implementation, Optimization, Phase
from explorer.schedule import Free, Run, Schedule

_MOST_STATES = 40_000


class TooManyStatesError(Exception):
    """There are more states than the judge looks at."""


@dataclass(frozen=True, slots=True)
class State:
    """How far a step has come: the next operator in captured order, and what is in memory."""

    following: int
    alive: frozenset[int]


@dataclass(frozen=True, slots=True)
class Move:
    """A run: its step, the state after it, the bytes in memory meanwhile, its milliseconds."""

    run: Run
    after: State
    bytes: int
    time_ms: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best schedule and what it takes."""

    schedule: Schedule
    cost: float


class Judge:
    """All schedules of the class that ``BoundScope`` describes.

    Args:
        profile: small.
        optimizations: which implementations may be chosen beside PyTorch's own.
        exact: only bit-exact ones beside them.
    """

    def __init__(self, profile: Profile, *, optimizations: Collection[Optimization], exact: bool = False) -> None:
        """Collects what may run."""
        self.profile, self.graph = profile, profile.graph
        self.allowed = {
            op.id: tuple(
                x
                for n, x in enumerate(op.implementations)
                if (n == 0 and not op.optional)
                or ((x.optimization is None or x.optimization in optimizations) and (x.exact or not exact))
            )
            for op in self.graph.operators
        }
        persistent = {x.id for x in self.graph.storages if x.role.persistent}
        self.bytes = {x.id: 0 if x.id in persistent else profile.allocated_bytes(x) for x in self.graph.storages}
        self.persistent = frozenset(persistent)
        self.held = frozenset(x.id for x in self.graph.storages if x.held) - persistent
        # What the caller receives of the forward pass is there when that ends.
        self.results = self.held & {s for op in self.graph.forward for x in op.implementations for s in x.writes}

    def fastest(self, budget_bytes: int) -> Verdict | None:
        """The schedule within a budget that takes least time; None if nothing fits."""
        return self._search(lambda so_far, move: so_far + move.time_ms, room_bytes=budget_bytes)

    @cached_property
    def smallest(self) -> Verdict | None:
        """The schedule with the smallest peak; None if nothing is complete."""
        return self._search(lambda so_far, move: max(so_far, move.bytes), room_bytes=None)

    def _search(self, cost_of: Callable[[float, Move], float], *, room_bytes: int | None) -> Verdict | None:
        begin = State(0, frozenset())
        queue: list[tuple[float, int, State, State | None, Run | None]] = [(0.0, 0, begin, None, None)]
        came: dict[State, tuple[State | None, Run | None]] = {}
        count = 0
        while queue:
            cost, _, state, before, run = heapq.heappop(queue)
            if state in came:
                continue
            came[state] = (before, run)
            if len(came) > _MOST_STATES:
                raise TooManyStatesError
            if self._ends(state):
                return Verdict(self._schedule(state, came), cost)
            for move in self._moves(state):
                if move.after not in came and (room_bytes is None or move.bytes <= room_bytes):
                    count += 1
                    heapq.heappush(queue, (cost_of(cost, move), count, move.after, state, move.run))
            for after in self._without_one(state):
                if after not in came:
                    count += 1
                    heapq.heappush(queue, (cost, count, after, state, None))
        return None

    def _ends(self, state: State) -> bool:
        return state.following == len(self.graph.operators) and self.held <= state.alive

    def _without_one(self, state: State) -> Iterator[State]:
        """One goes; or an operator that need not run is left out."""
        for x in state.alive - self.held:
            yield State(state.following, state.alive - {x})
        if state.following < len(self.graph.operators) and self.graph.operators[state.following].optional:
            yield self._useful(State(state.following + 1, state.alive))

    def _moves(self, state: State) -> Iterator[Move]:
        if state.following == self.graph.forward_count and not self.results <= state.alive:
            return
        if state.following < len(self.graph.operators):
            for x in self.allowed[state.following]:
                if x.first:
                    yield from self._run(state, state.following, x, state.following + 1)
        if state.following > self.graph.forward_count:
            for operator in self.graph.operators[: self.graph.forward_count]:
                for x in self.allowed[operator.id]:
                    if x.again:
                        yield from self._run(state, operator.id, x, state.following)

    def _run(self, state: State, operator: int, x: Implementation, following: int) -> Iterator[Move]:
        if not set(x.reads) <= state.alive | self.persistent:
            return
        there = state.alive
        if x.overwrites is not None:
            if x.overwrites in self.held | self.persistent:
                return
            there -= {x.overwrites}
        # What is made though it is there is there twice.
        level = sum(self.bytes[s] for s in there) + sum(self.bytes[s] for s in x.writes)
        level += self.profile.workspace_bytes(x) + self.profile.fixed_bytes
        after = self._useful(State(following, there | set(x.writes)))
        yield Move(Run(operator, x.name), after, level, self.profile.cost(x).time_ms)

    def _useful(self, state: State) -> State:
        """Without what nothing reads from here on."""
        return State(state.following, state.alive & (self._read_from[state.following] | self.held))

    @cached_property
    def _read_from(self) -> list[frozenset[int]]:
        """By the next operator: what that, later ones, and recomputations may read."""
        again = {s for op in self.graph.forward for x in self.allowed[op.id] if x.again for s in x.reads}
        found: list[frozenset[int]] = [frozenset()]
        for operator in reversed(self.graph.operators):
            found.append(found[-1] | {s for x in self.allowed[operator.id] if x.first for s in x.reads})
        found.reverse()
        last = max((op.id for op in self.graph.operators if op.phase is Phase.BACKWARD), default=-1)
        return [x | again if n <= last else x for n, x in enumerate(found)]

    def _schedule(self, state: State, came: dict[State, tuple[State | None, Run | None]]) -> Schedule:
        """The runs that lead to a state, with what goes between them."""
        steps: list[Run | Free] = []
        after, (before, run) = state, came[state]
        while before is not None:
            over = None if run is None else self.graph.operators[run.operator].implementation(run.implementation)
            made = set() if over is None else set(over.writes)
            gone = {None if over is None else over.overwrites}
            steps += [Free(x) for x in sorted((before.alive | made) - after.alive - (gone - made))]
            steps += [] if run is None else [run]
            after, (before, run) = before, came[before]
        return Schedule(self.graph.identity, "exhaustive", 0, tuple(reversed(steps)))
