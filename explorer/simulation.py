"""The one judge of schedules: bytes at every step, peak and time, or a refusal that names the step.

Memory at a step is what is alive before it, plus what it writes, plus its own workspace (MONeT equations 1-3, with
the exact local set instead of its upper bound).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from explorer.arguments import a_flag
from explorer.device_profile import Cost, Device, Profile
from explorer.graph import Implementation, Operator, Phase, Role, Storage, TrainingGraph
from explorer.kinds import a_profile, a_schedule
from explorer.rearranging import UPDATE_WITHIN
from explorer.reserved import Trace, an_allocator, reservation
from explorer.schedule import Free, Run, Schedule
from explorer.stays import check_placement
from explorer.timeline import CATEGORIES, COLUMN, ROLE_CATEGORY, Category, Lifetime, Stage, Timeline


def simulate(
    profile: Profile, schedule: Schedule, *, first_microbatch: bool = False, allocator: str | None = None
) -> Timeline:
    """Predict memory and time of a schedule.

    Args:
        profile: graph and costs.
        schedule: for that graph; it may be updated within the backward pass where the profile's is at the end.
        first_microbatch: of those whose gradients are accumulated: it meets no gradients, and its own stay.
        allocator: ``"caching"`` (PyTorch's own on CUDA devices) or ``"expandable"`` (the same with expandable
            segments): what it reserves for the step, with the smallest device that runs it, is the timeline's
            ``reservation`` too. None: without.

    Returns:
        The timeline.

    Raises:
        ValueError: the schedule belongs to another graph or is invalid, and the message names the step; or its
            placement is not one of what it makes.
    """
    profile = profile_for(schedule, profile=profile)
    a_flag(first_microbatch, "first_microbatch")
    if first_microbatch and not profile.graph.iteration.accumulate:
        raise ValueError("this profile has no gradients accumulated: profile(…, accumulate=True)")
    if difference := schedule.identity.difference(profile.graph.identity):
        raise ValueError(f"the schedule does not belong to this profile: {difference}")
    reserving = None if allocator is None else an_allocator(allocator)
    timeline = _Simulator(profile, schedule, first_microbatch=first_microbatch).run()
    if schedule.placement is not None and not first_microbatch:  # whose gradients stay longer than was planned
        check_placement(profile.graph, schedule.placement, timeline)
    if reserving is None:
        return timeline
    trace = Trace.of(profile, schedule, timeline, first_microbatch=first_microbatch)
    return replace(timeline, reservation=reservation(trace, reserving))


def profile_for(schedule: Schedule, *, profile: Profile) -> Profile:
    """The profile in the iteration that a schedule is for: its updates may be within the backward pass, or at the end.

    Raises:
        ValueError: these are none, or the profile knows no such iteration.
    """
    profile, schedule = a_profile(profile), a_schedule(schedule)
    return profile.in_iteration(profile.graph.iteration.as_in(schedule.identity.iteration))


class _Simulator:
    def __init__(self, profile: Profile, schedule: Schedule, *, first_microbatch: bool) -> None:
        self.profile = profile
        self.graph: TrainingGraph = profile.graph
        self.schedule = schedule
        self.now = np.zeros(len(CATEGORIES), dtype=np.int64)
        self.staying = Role.PARAMETER_GRADIENT if first_microbatch else None
        for storage in self.graph.persistent:
            found = self.graph.storages[storage]
            if first_microbatch and found.role is Role.GRADIENT_BUFFER:
                continue
            self.now[COLUMN[ROLE_CATEGORY[found.role]]] += profile.allocated_bytes(found)
        self.now[COLUMN[Category.OPTIMIZER_STATE]] += profile.optimizer_state_bytes
        self.now[COLUMN[Category.WORKSPACE]] += profile.device.persistent_workspace_bytes
        self.alive: dict[int, tuple[int, Category]] = {}
        self.ran: set[int] = set()
        self.updated: set[int] = set()
        self.lifetimes: list[Lifetime] = []
        self.rows: list[np.ndarray] = []
        self.times_ms: list[float] = []
        self.results: Collection[int] = self.alive.keys()  # in memory when the forward pass ends
        self.runs: list[tuple[int, str, Stage]] = []

    def run(self) -> Timeline:
        outlives_forward = _outlives_forward(self.graph, self.schedule)
        for position, step in enumerate(self.schedule.steps):
            if isinstance(step, Run):
                self._run(position, step, outlives_forward)
            else:
                self._free(position, step)
        if missing := [x.name for x in self.graph.operators if x.id not in self.ran and not x.optional]:
            raise ValueError(f"the schedule never runs {len(missing)} operators, {missing[0]!r} first")
        self._check_made(
            self.graph.operators, self.alive.keys(), "the schedule never makes {}, which the caller receives"
        )
        self._check_made(
            self.graph.forward, self.results, "the forward pass ends without {}, which the caller receives"
        )
        last = len(self.runs) - 1
        self.lifetimes += [self._stay(x, start, last, category) for x, (start, category) in self.alive.items()]
        operators, implementations, stages = zip(*self.runs, strict=True) if self.runs else ((), (), ())
        rows = np.array(self.rows, dtype=np.int64).reshape(len(self.rows), len(CATEGORIES))
        return Timeline(operators, implementations, stages, rows, np.array(self.times_ms), tuple(self.lifetimes))

    def _check_made(self, operators: Sequence[Operator], alive: Collection[int], message: str) -> None:
        """All that these can make for the caller is in memory."""
        there = self.graph.persistent.union(alive)
        missing = [x.id for x in self.graph.storages if x.held and x.id not in there]
        made = {x for operator in operators for y in operator.implementations for x in y.writes} if missing else set()
        for held in missing:
            if held in made:
                raise ValueError(message.format(self._name(held)))

    def _run(self, position: int, step: Run, outlives_forward: set[tuple[int, int]]) -> None:
        if not 0 <= step.operator < len(self.graph.operators):
            raise ValueError(f"step {position} runs operator {step.operator}, which does not exist")
        operator = self.graph.operators[step.operator]
        where = f"step {position} (run {operator.name!r})"
        after_forward = self.graph.forward_count in self.ran
        again = operator.id in self.ran or (operator.optional and operator.phase is Phase.FORWARD and after_forward)
        if not again and operator.phase is Phase.FORWARD and after_forward:
            raise ValueError(f"{where}: its first run comes after the forward pass has ended")
        implementation = self._implementation(where, operator, step.implementation, again=again)
        self._check_reads(where, implementation)
        if operator.phase is Phase.BACKWARD and not after_forward:
            self.results = set(self.alive)
        stage = Stage(operator.phase.value) if not again else Stage.RECOMPUTE
        overwritten = implementation.overwrites
        if overwritten is not None:
            if self.graph.storages[overwritten].held or overwritten in self.graph.persistent:
                raise ValueError(f"{where} overwrites {self._name(overwritten)}, which must be kept")
            self._drop(overwritten, len(self.runs) - 1)
        discarded = 0
        for storage in implementation.writes:
            found = self.graph.storages[storage]
            if storage in self.alive:
                # Made a second time while the first copy lives: the new one goes as soon as the call returns.
                discarded += self.profile.allocated_bytes(found)
                continue
            category = self._category(found, position, outlives_forward, again=again)
            self.alive[storage] = (len(self.runs), category)
            self.now[COLUMN[category]] += self.profile.allocated_bytes(found)
        row = self.now.copy()
        row[COLUMN[Category.WORKSPACE]] += self.profile.workspace_bytes(implementation) + discarded
        self.rows.append(row)
        self.times_ms.append(self.profile.cost(implementation).time_ms)
        self.runs.append((operator.id, implementation.name, stage))
        self.ran.add(operator.id)
        if operator.target == UPDATE_WITHIN:
            self.updated |= set(implementation.reads) & self.graph.persistent

    def _check_reads(self, where: str, implementation: Implementation) -> None:
        for storage in implementation.reads:
            if storage not in self.alive and storage not in self.graph.persistent:
                raise ValueError(f"{where} reads {self._name(storage)}, which is not in memory then")
            if storage in self.updated:
                raise ValueError(f"{where} reads {self._name(storage)}, which has been updated by then")

    def _implementation(self, where: str, operator: Operator, name: str, *, again: bool) -> Implementation:
        try:
            implementation = operator.implementation(name)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        if not (implementation.again if again else implementation.first):
            raise ValueError(f"{where}: {name!r} cannot serve {'another' if again else 'a first'} run")
        return implementation

    def _free(self, position: int, step: Free) -> None:
        if step.storage not in self.alive:
            raise ValueError(f"step {position} frees {self._name(step.storage)}, which is not in memory then")
        if self.graph.storages[step.storage].held:
            raise ValueError(f"step {position} frees {self._name(step.storage)}, which the caller receives")
        if self.graph.storages[step.storage].role is not self.staying:
            self._drop(step.storage, len(self.runs) - 1)

    def _drop(self, storage: int, end: int) -> None:
        start, category = self.alive.pop(storage)
        self.now[COLUMN[category]] -= self.profile.allocated_bytes(self.graph.storages[storage])
        self.lifetimes.append(self._stay(storage, start, end, category))

    def _stay(self, storage: int, start: int, end: int, category: Category) -> Lifetime:
        return Lifetime(storage, start, end, category, self.profile.allocated_bytes(self.graph.storages[storage]))

    def _category(
        self, storage: Storage, position: int, outlives_forward: set[tuple[int, int]], *, again: bool
    ) -> Category:
        if storage.role is not Role.ACTIVATION:
            return ROLE_CATEGORY[storage.role]
        if again:
            return Category.RECOMPUTED
        saved = storage.held or (position, storage.id) in outlives_forward
        return Category.SAVED if saved else Category.TEMPORARIES

    def _name(self, storage: int) -> str:
        if 0 <= storage < len(self.graph.storages):
            return repr(self.graph.storages[storage].name)
        return f"storage {storage}, which does not exist"


def _outlives_forward(graph: TrainingGraph, schedule: Schedule) -> set[tuple[int, int]]:
    """(step, storage) of every production in the forward pass that is still in memory when it ends."""
    boundary = graph.forward_count
    made: dict[int, int] = {}
    for position, step in enumerate(schedule.steps):
        if isinstance(step, Free):
            made.pop(step.storage, None)
        elif step.operator == boundary:
            break
        elif 0 <= step.operator < boundary:
            for implementation in graph.operators[step.operator].implementations:
                if implementation.name == step.implementation:
                    made |= {x: position for x in implementation.writes if x not in made}
                    if implementation.overwrites is not None:
                        made.pop(implementation.overwrites, None)
    return {(position, storage) for storage, position in made.items()}


def validate(graph: TrainingGraph, schedule: Schedule) -> None:
    """Check a schedule against a graph alone, without costs.

    Raises:
        ValueError: it belongs to another graph or is invalid; the message names the step.
    """
    peak_without_workspace(graph, schedule)


def peak_without_workspace(graph: TrainingGraph, schedule: Schedule) -> int:
    """The peak of a schedule by the sizes of tensors alone, in bytes.

    Raises:
        ValueError: as ``validate``.
    """
    keys = {implementation.cost for operator in graph.operators for implementation in operator.implementations}
    free = Profile(graph, dict.fromkeys(keys, Cost(0.0, 0)), Device("none", "none", "none"))
    return simulate(free, schedule).peak_bytes
