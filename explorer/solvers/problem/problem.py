"""A profile as the solvers see it: which activations to keep, what to run again, and which implementation each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.solvers.problem.pins import NO_PINS, Pins


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
    def base(self) -> Option | None:
        """The quickest option that overwrites no activation: it may always be taken, as far as memory allows."""
        return next((x for x in self.options if x.overwrites is None), None)


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
