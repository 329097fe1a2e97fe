"""A profile as the checkpointing solvers see it: which activations to keep, which operators to run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator, TrainingGraph
from explorer.schedule import Run, Schedule, Step, with_frees


@dataclass(frozen=True, slots=True)
class Activation:
    """A storage that the forward pass makes.

    Attributes:
        storage: its id in the graph.
        bytes: as the allocator takes it.
        producer: index of the forward operator that writes it.
        held: alive from its production to the end of the step, whatever the schedule.
    """

    storage: int
    bytes: int
    producer: int
    held: bool


@dataclass(frozen=True, slots=True)
class Call:
    """One way in which a forward operator runs; storages are activation indices.

    Attributes:
        implementation: its name.
        reads: activations that must be alive (MONeT's N_i).
        writes: activations that it makes.
        time_ms: its duration (τ_i).
        workspace_bytes: memory beyond reads and writes (c_i).
    """

    implementation: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    time_ms: float
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class ForwardOperator:
    """A forward operator: its first run, and a recomputation where one is possible."""

    first: Call
    again: Call | None


@dataclass(frozen=True, slots=True)
class BackwardOperator:
    """A backward operator in its fixed place, every gradient freed after its last use.

    Attributes:
        needs: activations that it reads (D_k).
        time_ms: its duration.
        idle_bytes: gradients alive just before it: what a recomputation there finds in memory (L̂_k).
        busy_bytes: gradients alive while it runs, its own included, and its workspace (L̂_k, y_k and ĉ_k).
    """

    needs: tuple[int, ...]
    time_ms: float
    idle_bytes: int
    busy_bytes: int


@dataclass(frozen=True, slots=True)
class Interval:
    """What a schedule does between two backward operators.

    Attributes:
        recomputations: forward operators run again just before the later of the two, in order.
        kept: activations alive after the later one.
    """

    recomputations: tuple[int, ...]
    kept: frozenset[int]


@dataclass(frozen=True, eq=False)
class CheckpointProblem:
    """MONeT's checkpointing problem (section 3) at storage granularity, PyTorch's own implementations only.

    Attributes:
        profile: where it comes from.
        activations: what forward operators write.
        forward: in order; index = operator id.
        backward: in order; index = operator id − ``forward_count``. The first is the boundary.
        fixed_bytes: in memory throughout.
    """

    profile: Profile
    activations: tuple[Activation, ...]
    forward: tuple[ForwardOperator, ...]
    backward: tuple[BackwardOperator, ...]
    fixed_bytes: int

    @classmethod
    def of(cls, profile: Profile) -> CheckpointProblem:
        """The problem of ``profile``."""
        graph = profile.graph
        made = {x: op.id for op in graph.forward for x in op.default().writes}
        index = {storage: position for position, storage in enumerate(made)}
        activations = tuple(
            Activation(x, profile.allocated_bytes(graph.storages[x]), producer, graph.storages[x].held)
            for x, producer in made.items()
        )
        forward = tuple(_forward(profile, op, index) for op in graph.forward)
        return cls(profile, activations, forward, _backward(profile, index), profile.fixed_bytes)

    @property
    def graph(self) -> TrainingGraph:
        """The training graph."""
        return self.profile.graph

    @cached_property
    def base_time_ms(self) -> float:
        """Every operator once: no schedule is faster."""
        return sum(op.first.time_ms for op in self.forward) + sum(op.time_ms for op in self.backward)

    @cached_property
    def held_bytes(self) -> int:
        """Activations that stay to the end whatever the schedule."""
        return sum(x.bytes for x in self.activations if x.held)

    def schedule_of(
        self, recomputations: Mapping[int, Sequence[int]], *, method: str, budget_bytes: int | None
    ) -> Schedule:
        """Decode: the schedule that runs forward operators again just before given backward operators.

        Args:
            recomputations: index of a backward operator to the forward operators run again before it, in order.
            method: what made the plan.
            budget_bytes: what it was made to fit.

        Returns:
            The schedule, without recomputations that nobody reads, each storage freed after its last use.
        """
        runs = [Run(i, op.first.implementation) for i, op in enumerate(self.forward)]
        for t in range(len(self.backward)):
            for i in recomputations.get(t, ()):
                again = self.forward[i].again
                assert again is not None, f"forward operator {i} cannot run again"
                runs.append(Run(i, again.implementation))
            operator = self.graph.backward[t]
            runs.append(Run(operator.id, operator.default().name))
        return with_frees(self.graph, runs, method=method, budget_bytes=budget_bytes)

    def intervals_of(self, schedule: Schedule) -> tuple[frozenset[int], tuple[Interval, ...]] | None:
        """Read a schedule: what it keeps after the forward pass, and what it does in each backward interval.

        Args:
            schedule: valid, for this graph.

        Returns:
            Activations alive after the last first run, and one interval per backward operator; None where it runs an
            implementation that this problem does not know.
        """
        index = {x.storage: position for position, x in enumerate(self.activations)}
        count = self.graph.forward_count
        alive: set[int] = set()
        after_forward: frozenset[int] = frozenset()
        ran: set[int] = set()
        again: list[int] = []
        intervals: list[Interval] = []
        for run, freed in _with_their_frees(schedule.steps):
            operator = self.graph.operators[run.operator]
            recomputed = run.operator in ran
            if run.implementation != operator.default(again=recomputed).name:
                return None
            ran.add(run.operator)
            alive |= {index[x] for x in operator.implementation(run.implementation).writes if x in index}
            alive -= {index[x] for x in freed if x in index}
            if run.operator >= count:
                intervals.append(Interval(tuple(again), frozenset(alive)))
                again = []
            elif recomputed:
                again.append(run.operator)
            if len(ran) == count:
                after_forward = frozenset(alive)
        return after_forward, tuple(intervals)


def _with_their_frees(steps: Iterable[Step]) -> Iterable[tuple[Run, list[int]]]:
    """Each run with the storages freed between it and the next run."""
    pairs: list[tuple[Run, list[int]]] = []
    for step in steps:
        if isinstance(step, Run):
            pairs.append((step, []))
        else:
            pairs[-1][1].append(step.storage)
    return pairs


def _forward(profile: Profile, operator: Operator, index: Mapping[int, int]) -> ForwardOperator:
    again = operator.default(again=True) if operator.recomputable else None
    return ForwardOperator(
        _call(profile, operator.default(), index), None if again is None else _call(profile, again, index)
    )


def _call(profile: Profile, implementation: Implementation, index: Mapping[int, int]) -> Call:
    # In-place runs are the joint problem's; PyTorch's own captured operators never overwrite.
    assert implementation.overwrites is None
    return Call(
        implementation.name,
        tuple(dict.fromkeys(index[x] for x in implementation.reads if x in index)),
        tuple(index[x] for x in implementation.writes),
        profile.cost(implementation).time_ms,
        profile.workspace_bytes(implementation),
    )


def _backward(profile: Profile, index: Mapping[int, int]) -> tuple[BackwardOperator, ...]:
    graph = profile.graph
    last_use = {x: op.id for op in graph.backward for x in (*op.default().reads, *op.default().writes)}
    alive: dict[int, int] = {}
    result = []
    for operator in graph.backward:
        implementation = operator.default()
        assert implementation.overwrites is None
        idle = sum(alive.values())
        alive |= {x: profile.allocated_bytes(graph.storages[x]) for x in implementation.writes}
        needs = tuple(dict.fromkeys(index[x] for x in implementation.reads if x in index))
        busy = sum(alive.values()) + profile.workspace_bytes(implementation)
        result.append(BackwardOperator(needs, profile.cost(implementation).time_ms, idle, busy))
        for x in [x for x in alive if last_use[x] == operator.id and not graph.storages[x].held]:
            del alive[x]
    return tuple(result)
