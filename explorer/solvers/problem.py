"""A profile as the solvers see it: which activations to keep, what to run again, and which implementation each time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import FAITHFUL, Implementation, Optimization, TrainingGraph
from explorer.schedule import Run, Schedule, Step, keep_all, with_frees
from explorer.solvers.pins import NO_PINS, Pins


@dataclass(frozen=True, slots=True)
class Activation:
    """A storage that the forward pass makes, or that an optional operator may make there.

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
class Option:
    """One implementation of a form.

    Attributes:
        implementation: its name.
        time_ms: its duration (τ).
        workspace_bytes: memory beyond reads and writes (c). A gradient that is overwritten is subtracted, so in the
            backward pass it may be negative; an activation is not, see ``extra_bytes``.
        overwrites: the activation whose memory becomes the result's, which must be of no more use then; None: none.
    """

    implementation: str
    time_ms: float
    workspace_bytes: int
    overwrites: int | None = None

    def extra_bytes(self, activations: Sequence[Activation]) -> int:
        """What it takes beside all that is read and written: its workspace, less the activation that it overwrites."""
        return self.workspace_bytes - (0 if self.overwrites is None else activations[self.overwrites].bytes)


@dataclass(frozen=True, slots=True)
class Form:
    """Ways to run an operator that read and write the same: they differ in time and workspace alone.

    Attributes:
        reads: activations that must be alive (MONeT's N_i or D_k^l), as indices, increasing.
        writes: activations that it makes; a backward operator makes none.
        options: quickest first; each has less workspace than every quicker one, or overwrites what those do not.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    options: tuple[Option, ...]

    @property
    def time_ms(self) -> float:
        """Of the quickest option."""
        return self.options[0].time_ms

    @property
    def workspace_bytes(self) -> int:
        """Of the smallest option that overwrites nothing."""
        return min(x.workspace_bytes for x in self.options if x.overwrites is None)


@dataclass(frozen=True, slots=True)
class ForwardOperator:
    """A forward operator.

    Attributes:
        first: forms of its first run; none if it is optional and of no use.
        again: forms of a recomputation; none where that is impossible.
        optional: its first run may be left out.
    """

    first: tuple[Form, ...]
    again: tuple[Form, ...]
    optional: bool


@dataclass(frozen=True, slots=True)
class BackwardOperator:
    """A backward operator in its fixed place, every gradient freed after its last use.

    Attributes:
        forms: by what they need (D_k^l); none for an operator that never runs, because others do its work.
        idle_bytes: gradients alive just before it: what a recomputation there finds in memory (L̂_k).
        made_bytes: the gradients that it makes (y_k). While it runs, idle, made and workspace bytes are in memory.
    """

    forms: tuple[Form, ...]
    idle_bytes: int
    made_bytes: int


@dataclass(frozen=True, slots=True)
class Choice:
    """How an operator runs: indices of the operator (within its pass), its form, and the form's option."""

    operator: int
    form: int
    option: int


@dataclass(frozen=True, slots=True)
class Interval:
    """What a schedule does between two backward operators.

    Attributes:
        recomputations: forward operators run again just before the later of the two, in order.
        backward: the later one; None if it never runs.
        kept: activations alive after it.
    """

    recomputations: tuple[Choice, ...]
    backward: Choice | None
    kept: frozenset[int]


@dataclass(frozen=True, slots=True)
class Reading:
    """A schedule in the terms of a problem.

    Attributes:
        first: the forward pass; optional operators that it leaves out are absent.
        after_forward: activations alive after it.
        intervals: one per backward operator.
    """

    first: tuple[Choice, ...]
    after_forward: frozenset[int]
    intervals: tuple[Interval, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """MONeT's joint problem (section 4) at storage granularity, with a choice of optimizations.

    Attributes:
        profile: where it comes from.
        activations: what forward operators write.
        forward: in order; index = operator id.
        backward: in order; index = operator id − ``forward_count``. The first is the boundary.
        fixed_bytes: in memory throughout.
        every_way: the same with all ways to divide the work of backward operators, of which this problem knows one.
            Each operator chooses by itself, so that it allows more than a schedule can do, and is for bounds alone.
            None where there is no other way.
        pins: what the user decided; it is in the forms already, but for ``kept``.
        kept: activations that must be in memory when the backward pass begins; nothing makes them again, and the
            ``keeper`` reads them.
        dropped: activations that must not be in memory then, each with its stand-in. What first runs make and read is
            the stand-in, so it goes with the forward pass; the activation is what is made again.
    """

    profile: Profile
    activations: tuple[Activation, ...]
    forward: tuple[ForwardOperator, ...]
    backward: tuple[BackwardOperator, ...]
    fixed_bytes: int
    every_way: Problem | None = None
    pins: Pins = NO_PINS
    kept: frozenset[int] = frozenset()
    dropped: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        profile: Profile,
        *,
        optimizations: Iterable[Optimization] = FAITHFUL,
        exact: bool = False,
        pins: Pins = NO_PINS,
    ) -> Problem:
        """The problem of ``profile``.

        Args:
            profile: graph and costs.
            optimizations: which implementations may be chosen, beside those that are always to be had.
            exact: only bit-exact ones.
            pins: decisions that are taken already.

        Raises:
            ValueError: a pin names nothing that can be pinned, or pins contradict each other or the other arguments.
        """
        from explorer.solvers.problem_building import build  # here because it builds on this module

        chosen = frozenset(optimizations)

        def allowed(implementation: Implementation) -> bool:
            wanted = implementation.optimization is None or implementation.optimization in chosen
            return wanted and (implementation.exact or not exact)

        return build(profile, allowed, pins)

    @property
    def for_bounds(self) -> Problem:
        """The problem whose bounds hold for every schedule of the graph."""
        return self if self.every_way is None else self.every_way

    @property
    def graph(self) -> TrainingGraph:
        """The training graph."""
        return self.profile.graph

    @cached_property
    def base_time_ms(self) -> float:
        """Every operator once, in its quickest way: no schedule is faster."""
        first = [op.first for op in self.forward if not op.optional]
        backward = [op.forms for op in self.backward if op.forms]
        return sum(min(x.time_ms for x in forms) for forms in (*first, *backward))

    @cached_property
    def held_bytes(self) -> int:
        """Activations that stay to the end whatever the schedule."""
        return sum(x.bytes for x in self.activations if x.held)

    @cached_property
    def storage_index(self) -> dict[int, int]:
        """Storage id to the index of its activation; of what is ``dropped``, not of its stand-in."""
        stand_ins = set(self.dropped.values())
        return {x.storage: position for position, x in enumerate(self.activations) if position not in stand_ins}

    @cached_property
    def first_index(self) -> dict[int, int]:
        """The same for first runs: of what is ``dropped``, the stand-in."""
        return self.storage_index | {self.activations[x].storage: stand_in for x, stand_in in self.dropped.items()}

    @cached_property
    def made_first(self) -> frozenset[int]:
        """Activations that a first run may make."""
        return frozenset(x for operator in self.forward for form in operator.first for x in form.writes)

    @cached_property
    def keeper(self) -> int | None:
        """The backward operator that reads what is ``kept``: the first after the boundary; None if nothing is."""
        after_boundary = (t for t, operator in enumerate(self.backward) if t and operator.forms)
        return next(after_boundary, None) if self.kept else None

    def forms(self, operator: int, *, again: bool = False) -> tuple[Form, ...]:
        """Forms of the operator with this id in the graph."""
        if operator >= len(self.forward):
            return self.backward[operator - len(self.forward)].forms
        return self.forward[operator].again if again else self.forward[operator].first

    def read(self, schedule: Schedule) -> Reading | None:
        """Read a schedule: what it keeps after the forward pass, and what it does in each backward interval.

        Args:
            schedule: valid, for this graph.

        Returns:
            None where it runs an implementation that this problem does not have, keeps what is pinned otherwise, or
            recomputes what this problem runs once: forward operators before the backward pass, and backward ones.
        """
        count = self.graph.forward_count
        alive: set[int] = set()
        after_forward: frozenset[int] = frozenset()
        first: list[Choice] = []
        again: list[Choice] = []
        intervals: list[Interval] = []
        seen: set[int] = set()
        for run, freed in _with_their_frees(schedule.steps):
            choice = self._choice(run, again=bool(intervals))
            repeated = run.operator in seen and (run.operator >= count or not intervals)
            if choice is None or repeated:
                return None
            seen.add(run.operator)
            # Optional backward operators that did not run have intervals too, in which nothing happens.
            while run.operator >= count and len(intervals) < run.operator - count:
                intervals.append(Interval((), None, frozenset(alive)))
            implementation = self.graph.operators[run.operator].implementation(run.implementation)
            alive |= {self.storage_index[x] for x in implementation.writes if x in self.storage_index}
            gone = (*freed, implementation.overwrites)
            alive -= {self.storage_index[x] for x in gone if x in self.storage_index}
            if run.operator >= count:
                intervals.append(Interval(tuple(again), choice, frozenset(alive)))
                again = []
            else:
                (again if intervals else first).append(choice)
                after_forward = after_forward if intervals else frozenset(alive)
        if not self.kept <= after_forward or after_forward & self.dropped.keys():
            return None
        while len(intervals) < len(self.backward):
            intervals.append(Interval((), None, frozenset(alive)))
        return Reading(tuple(first), after_forward, tuple(intervals))

    def _choice(self, run: Run, *, again: bool) -> Choice | None:
        forms = self.forms(run.operator, again=again)
        operator = run.operator - (len(self.forward) if run.operator >= len(self.forward) else 0)
        for f, form in enumerate(forms):
            for o, option in enumerate(form.options):
                if option.implementation == run.implementation:
                    return Choice(operator, f, o)
        # An option that others beat in every respect is none here: its form stands for it.
        if self.graph.operators[run.operator].name in dict(self.pins.operators):
            return None
        implementation = self.graph.operators[run.operator].implementation(run.implementation)
        backward = run.operator >= len(self.forward)
        index = self.storage_index if again or backward else self.first_index
        reads = {index.get(x) for x in implementation.reads} - {None}
        reads |= self.kept if backward and operator == self.keeper else set()
        writes = {index.get(x) for x in implementation.writes} - {None}
        same = [f for f, form in enumerate(forms) if set(form.reads) == reads and set(form.writes) == writes]
        return Choice(operator, same[0], 0) if same else None

    def schedule_of(self, order: Sequence[tuple[int, int]], *, method: str, budget_bytes: int | None) -> Schedule:
        """Decode: choose the quickest option that fits for every run of an order.

        What a run finds in memory does not depend on the options of the others, so each is chosen by itself; in place
        wherever that is the quickest, or the smallest, and what is overwritten is of no more use.

        Args:
            order: (operator id, index of its form), every operator once, forward ones again wherever wanted after the
                forward pass. Recomputations and optional runs that serve nothing are left out.
            method: what made the plan.
            budget_bytes: what it should fit; None: whatever memory that takes.

        Returns:
            The schedule, each storage freed after its last use.
        """
        forward = len(self.forward)
        boundary = next((at for at, (operator, _) in enumerate(order) if operator >= forward), len(order))
        room = float("inf") if budget_bytes is None else budget_bytes - self.fixed_bytes
        alive = {x for x, activation in enumerate(self.activations) if activation.held}
        alive_bytes = self._bytes(alive)
        idle_bytes = 0
        runs: list[Run] = []
        for at in range(len(order) - 1, -1, -1):
            operator, index = order[at]
            again = operator < forward and at > boundary
            form = self.forms(operator, again=again)[index]
            # What is held stays as the first run made it: a second copy goes as soon as the call returns.
            made = {x for x in form.writes if not (again and self.activations[x].held)}
            if operator < forward and (again or self.forward[operator].optional) and not made & alive:
                continue
            made_bytes = 0
            if operator >= forward:
                backward = self.backward[operator - forward]
                idle_bytes, made_bytes = backward.idle_bytes, backward.made_bytes
            elif at < boundary:
                idle_bytes = 0
            there_bytes = alive_bytes + self._bytes({*form.reads, *form.writes} - alive)
            # What it makes though it is there (held, or read by it) is there twice.
            twice = [x for x in form.writes if again and (self.activations[x].held or x in form.reads)]
            used = there_bytes + self._bytes(twice) + idle_bytes + made_bytes
            runs.append(Run(operator, self._fitting(form, alive, room - used).implementation))
            gone, read = made & alive, set(form.reads)
            alive_bytes += self._bytes((read - alive) | (read & gone)) - self._bytes(gone)
            alive -= gone
            alive |= read
        return with_frees(
            self.graph, reversed(runs), method=method, budget_bytes=budget_bytes, also_reads=self._also_read
        )

    def keep_all(self) -> Schedule:
        """What recomputes nothing, as plain PyTorch does; with pins, a simple schedule that honours them.

        Raises:
            ValueError: none was found that honours all pins, whatever memory it takes.
        """
        if not self.pins:
            return keep_all(self.graph)
        from explorer.solvers.pinned_start import pinned_start  # here because it builds on this module

        return pinned_start(self)

    @cached_property
    def _also_read(self) -> dict[int, frozenset[int]]:
        if self.keeper is None:
            return {}
        return {len(self.forward) + self.keeper: frozenset(self.activations[x].storage for x in self.kept)}

    def _bytes(self, activations: Iterable[int]) -> int:
        return sum(self.activations[x].bytes for x in activations)

    def _fitting(self, form: Form, alive: set[int], room: float) -> Option:
        """The quickest option within ``room`` bytes that overwrites nothing alive; the smallest if none is."""
        able = [x for x in form.options if x.overwrites not in alive]
        fitting = (x for x in able if x.extra_bytes(self.activations) <= room)
        return next(fitting, None) or min(able, key=lambda x: x.extra_bytes(self.activations))


def _with_their_frees(steps: Iterable[Step]) -> Iterable[tuple[Run, list[int]]]:
    """Each run with the storages freed between it and the next run."""
    pairs: list[tuple[Run, list[int]]] = []
    for step in steps:
        if isinstance(step, Run):
            pairs.append((step, []))
        else:
            pairs[-1][1].append(step.storage)
    return pairs
