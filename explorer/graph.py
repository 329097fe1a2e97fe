"""The joint forward and backward graph of one training step, without torch.

Everything later stages need is here: which operators run in which order, which storages each reads and
writes, and how large those are. Views are resolved at capture: memory belongs to storages, never to views,
so an operator that reads a view reads the storage below it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from explorer.arguments import a_whole_number
from explorer.autocast import Autocast
from explorer.harmless import one_line
from explorer.iteration import STEP_ALONE, Iteration
from explorer.units import shown

MOST_BYTES = 2**50
"""Of one storage or workspace: far more than any device has, and sums of thousands are still 64-bit numbers."""


class Phase(StrEnum):
    """Which part of an iteration an operator belongs to. Backward is what depends on a gradient (or only serves one).

    An update uses gradients: at the end, or among the operators of the backward pass.
    """

    FORWARD = "forward"
    BACKWARD = "backward"
    UPDATE = "update"


class Role(StrEnum):
    """What a storage is for."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    ACTIVATION = "activation"
    GRADIENT = "gradient"
    PARAMETER_GRADIENT = "parameter_gradient"
    GRADIENT_BUFFER = "gradient_buffer"
    """Where gradients of earlier microbatches are, or those that processes have in common."""

    @property
    def persistent(self) -> bool:
        """Allocated before the step and after it, whatever the schedule."""
        return self in (Role.PARAMETER, Role.BUFFER, Role.INPUT, Role.GRADIENT_BUFFER)


class When(StrEnum):
    """Which runs of an operator an implementation may serve."""

    FIRST = "first"
    AGAIN = "again"
    ALWAYS = "always"


class Optimization(StrEnum):
    """What an implementation belongs to, so that it can be asked for by name (MONeT section 4.2 and appendix C)."""

    OUTPUT = "output"
    """Backward from the operator's output instead of its input."""
    INTERMEDIATE = "intermediate"
    """Backward from a compact tensor that an optional operator makes."""
    CONVOLUTION = "convolution"
    """Another algorithm (convolution, pooling, loss): another time and workspace, for the same result."""
    INPLACE = "inplace"
    """The result takes the memory of what is read."""
    FUSED = "fused"
    """Several calls as one kernel of PyTorch's compiler; captured only if asked for."""
    SPARSE = "sparse"
    """Gist: what waits for the backward pass is stored sparse; captured, and chosen, only if asked for."""
    LOSSY = "lossy"
    """Gist: it is stored in reduced precision, which changes gradients; likewise."""


FAITHFUL = frozenset(Optimization) - {Optimization.SPARSE, Optimization.LOSSY}
"""What ``"all"`` stands for: nothing that changes gradients beyond rounding, nor memory that depends on values."""


@dataclass(frozen=True, slots=True)
class Storage:
    """One allocation of the step.

    Attributes:
        id: position in ``TrainingGraph.storages``.
        name: of the tensor that owns it.
        bytes: its size as torch asks for it (the device's rounding is the profile's business).
        role: what it is for.
        shape: of the owning tensor, for display.
        dtype: of the owning tensor, for display (``"float32"``).
        held: returned to the caller, so alive from its production to the end of the step.
    """

    id: int
    name: str
    bytes: int
    role: Role
    shape: tuple[int, ...]
    dtype: str
    held: bool = False


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to run an operator (MONeT section 4: an element of I_i or of the backward set).

    Attributes:
        name: unique within its operator.
        reads: storages that must be alive, in order of first use (MONeT's N_i or D_k^l).
        writes: storages that it makes.
        cost: key of its ``Cost`` in the profile; equal calls share one.
        when: a first run, a recomputation, or either.
        exact: bit-equal to what PyTorch's eager mode computes.
        overwrites: the storage of ``reads`` whose memory becomes the output's (in-place), or None.
        optimization: what it is part of; None if it is always to be had.
    """

    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    cost: str
    when: When = When.ALWAYS
    exact: bool = True
    overwrites: int | None = None
    optimization: Optimization | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if it makes something twice."""
        if len(set(self.writes)) < len(self.writes):
            raise ValueError(f"{self.name!r} writes {sorted(self.writes)}: one of them twice")

    @property
    def first(self) -> bool:
        """May it serve the first run?"""
        return self.when is not When.AGAIN

    @property
    def again(self) -> bool:
        """May it serve a recomputation?"""
        return self.when is not When.FIRST


@dataclass(frozen=True, slots=True)
class Operator:
    """One computing call of the joint graph.

    Attributes:
        id: position in ``TrainingGraph.operators`` and in the captured execution order.
        name: unique, stable across captures of the same model (``"convolution_3"``).
        target: what it calls (``"aten.convolution.default"``).
        phase: forward or backward.
        layer: module path it came from (``"layer1.0.conv2"``), empty outside modules.
        implementations: the first is PyTorch's own. Others may make less, and in the forward pass more.
        optional: it need not run. In the forward pass: it makes an auxiliary tensor (a bit mask) for another operator's
            backward. In the backward pass: it makes what an implementation of an earlier operator leaves out.
    """

    id: int
    name: str
    target: str
    phase: Phase
    layer: str
    implementations: tuple[Implementation, ...]
    optional: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError if two implementations share a name, by which schedules choose them."""
        if twice := _twice(x.name for x in self.implementations):
            raise ValueError(f"operator {self.name!r} has two implementations {twice!r}")

    def implementation(self, name: str) -> Implementation:
        """The implementation called ``name``.

        Raises:
            ValueError: this operator has none of that name.
        """
        for candidate in self.implementations:
            if candidate.name == name:
                return candidate
        known = ", ".join(repr(x.name) for x in self.implementations)
        raise ValueError(f"operator {self.name!r} has no implementation {name!r}; it has {known}")

    def default(self, *, again: bool = False) -> Implementation:
        """The first implementation that may serve a first run (or a recomputation)."""
        for candidate in self.implementations:
            if candidate.again if again else candidate.first:
                return candidate
        raise ValueError(f"operator {self.name!r} cannot be run again: {self.target} draws random numbers")


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, shape and dtype of a parameter or of a tensor of the batch."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        """As ``x float32[8, 3, 112, 112]``."""
        return f"{self.name} {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Identity:
    """What a schedule belongs to; says what differs when applied elsewhere.

    Attributes:
        model: class name of the model.
        batch: its sample batch, flattened.
        parameters: hash of the parameters' names, shapes and dtypes.
        operators: hash of the whole graph: calls, storages, bytes, implementations; not of the layers' names.
        iteration: what is done with gradients.
        autocast: what the step was captured under; None where that was not noted: it fits all, if the operators do.
        fused: chains of calls were joined, for PyTorch's compiler to make kernels of.
        compiled: it is what PyTorch's compiler makes of the step.
    """

    model: str
    batch: tuple[TensorSpec, ...]
    parameters: str
    operators: str
    iteration: Iteration = STEP_ALONE
    autocast: Autocast | None = None
    fused: bool = False
    compiled: bool = False

    def difference(self, other: Identity) -> str | None:
        """In words, the first thing in which ``other`` differs; None where nothing does.

        The class name alone is no difference: a subclass with the same graph runs the same schedule.
        """
        return next(self._differences(other), None)

    def _differences(self, other: Identity) -> Iterator[str]:
        here, there = one_line(self.model), one_line(other.model)
        if self.parameters != other.parameters:
            yield f"the model differs: {here} here, {there} there, with other parameters"
        for mine, theirs in zip(self.batch, other.batch, strict=False):
            if mine != theirs:
                yield f"the batch differs: {one_line(str(mine))} here, {one_line(str(theirs))} there"
        if len(self.batch) != len(other.batch):
            yield f"the batch differs: {len(self.batch)} tensors here, {len(other.batch)} there"
        if self.iteration != other.iteration:
            yield f"the iteration differs: {self.iteration} here, {other.iteration} there"
        if None not in (self.autocast, other.autocast) and self.autocast != other.autocast:
            yield f"autocast differs: {self.autocast} here, {other.autocast} there: profile with the same autocast="
        if self.fused != other.fused:
            here, there = ("with" if x else "without" for x in (self.fused, other.fused))
            yield f"the captures differ: {here} fused chains here, {there} there: profile with the same fuse="
        if self.compiled != other.compiled:
            here, there = ("compiled" if x else "plain" for x in (self.compiled, other.compiled))
            yield (
                f"one step is compiled and the other is not: {here} here, {there} there. What profile_compiled and "
                "'monet-compiled' plan runs by explorer.compiled, other schedules by explorer.apply too"
            )
        if self.operators != other.operators:
            yield (
                f"the captured operators differ ({here} here, {there} there): another forward method, loss, dtype or "
                "autocast setting or torch version, or tensors that share their memory in one only, as before and "
                "after copy.deepcopy, or, of compiled steps, another layout of convolutions or of the batch"
            )


@dataclass(frozen=True)
class TrainingGraph:
    """The joint graph of a training step, forward operators first, each pass in execution order.

    Attributes:
        model: class name of the captured model.
        batch: the sample batch, flattened.
        parameters: name, shape and dtype of each parameter, in the model's order.
        storages: every allocation; ``storages[i].id == i``.
        operators: every computing call; ``operators[i].id == i``.
        gradients: storages of a parameter and of its gradient, for each that gets one; empty where that is not known.
        iteration: what is done with gradients.
        autocast: what it was captured under; None where that was not noted.
        fused: chains of calls were joined, for PyTorch's compiler to make kernels of.
        compiled: its operators are the kernels of PyTorch's compiler, as far as they can be known.
    """

    model: str
    batch: tuple[TensorSpec, ...]
    parameters: tuple[TensorSpec, ...]
    storages: tuple[Storage, ...]
    operators: tuple[Operator, ...]
    gradients: tuple[tuple[int, int], ...] = ()
    iteration: Iteration = STEP_ALONE
    autocast: Autocast | None = None
    fused: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        """Check the structure, so that no later stage has to.

        Raises:
            ValueError: an id is out of place, a read has no earlier writer, the passes are mixed, or two operators
                share a name.
        """
        if twice := _twice(x.name for x in self.operators):
            raise ValueError(f"two operators are called {twice!r}")
        _check_structure(self)

    @cached_property
    def forward_count(self) -> int:
        """How many operators are forward; they have the ids ``0 … forward_count - 1``."""
        return sum(operator.phase is Phase.FORWARD for operator in self.operators)

    @cached_property
    def forward(self) -> Sequence[Operator]:
        """The forward operators in order."""
        return self.operators[: self.forward_count]

    @cached_property
    def backward(self) -> Sequence[Operator]:
        """The backward operators in order."""
        return self.operators[self.forward_count :]

    @cached_property
    def producer(self) -> dict[int, int]:
        """Storage id to the id of the first operator that writes it; persistent storages are absent."""
        return {
            storage: operator.id
            for operator in reversed(self.operators)
            for implementation in operator.implementations
            for storage in implementation.writes
        }

    @cached_property
    def persistent(self) -> frozenset[int]:
        """Ids of the storages that exist before and after the step."""
        return frozenset(storage.id for storage in self.storages if storage.id not in self.producer)

    @cached_property
    def identity(self) -> Identity:
        """What a schedule for this graph belongs to."""
        return Identity(
            model=self.model,
            batch=self.batch,
            parameters=_digest(self.parameters),
            operators=_digest((self.storages, tuple(replace(x, layer="") for x in self.operators))),
            iteration=self.iteration,
            autocast=self.autocast,
            fused=self.fused,
            compiled=self.compiled,
        )


def a_graph(value: object) -> TrainingGraph:
    """A training graph.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, TrainingGraph):
        return value
    held = isinstance(getattr(value, "graph", None), TrainingGraph)
    remedy = "give the profile's graph, profile.graph" if held else "profile.graph is one"
    raise ValueError(f"graph is {shown(value)}; it must be a TrainingGraph: {remedy}")


def _twice(names: Iterable[str]) -> str | None:
    """The first name that occurs again."""
    seen: set[str] = set()
    return next((x for x in names if x in seen or seen.add(x)), None)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _check_places(graph: TrainingGraph) -> None:
    for kind, items in (("storage", graph.storages), ("operator", graph.operators)):
        for position, item in enumerate(items):
            if item.id != position:
                raise ValueError(f"{kind} {item.name!r} has id {item.id} at position {position}")


def _check_structure(graph: TrainingGraph) -> None:
    _check_places(graph)
    for storage in graph.storages:
        a_whole_number(storage.bytes, f"the size of storage {storage.name!r} in bytes", least=0, most=MOST_BYTES)
    known = {storage.id for storage in graph.storages if storage.role.persistent}
    sure, backward_sure = set(known), set()
    backward = False
    for operator in graph.operators:
        if backward and operator.phase is Phase.FORWARD:
            raise ValueError(f"forward operator {operator.name!r} stands after a backward one")
        backward = operator.phase is not Phase.FORWARD
        if operator.optional:
            _check_optional(operator, graph, known, backward_sure)
        _check_operator(operator, known, len(graph.storages))
        if not operator.optional:
            _check_default(operator, sure)
            _check_held(operator, graph)
            sure |= set(operator.default().writes)
            backward_sure |= set(operator.default().writes) if backward else set()
    for storage in graph.storages:
        if storage.id not in known:
            raise ValueError(f"storage {storage.name!r} is written by no operator")


def _check_default(operator: Operator, sure: set[int]) -> None:
    """PyTorch's own implementation can run whatever else is chosen: only on what is there in any case."""
    own = operator.implementations[0] if operator.implementations else None
    if own is not None and not (own.first and sure.issuperset(own.reads)):
        raise ValueError(
            f"{own.name!r} of {operator.name!r} is PyTorch's own implementation: it must serve a first run, and "
            "read only what operators make that are not optional"
        )


def _check_held(operator: Operator, graph: TrainingGraph) -> None:
    """What the caller receives is made by PyTorch's own implementation, too."""
    own = set(operator.default().writes)
    extra = {x for way in operator.implementations for x in way.writes if graph.storages[x].held} - own
    if extra:
        raise ValueError(f"a way of {operator.name!r} writes {sorted(extra)} for the caller, the default not")


def _check_optional(operator: Operator, graph: TrainingGraph, known: set[int], backward_sure: set[int]) -> None:
    """An optional operator makes something of its own in the forward pass, in the backward what another one makes."""
    written = {x for implementation in operator.implementations for x in implementation.writes}
    if operator.phase is not Phase.FORWARD:
        if not written <= backward_sure:
            raise ValueError(f"{operator.name!r} is optional: it must make what an earlier backward operator makes too")
    elif written & known or any(graph.storages[x].held for x in written if 0 <= x < len(graph.storages)):
        raise ValueError(f"{operator.name!r} is optional: it must make something of its own that the caller never gets")


def _check_operator(operator: Operator, known: set[int], storages: int) -> None:
    """Check reads against ``known`` storages and add the writes to it."""
    if not operator.implementations:
        raise ValueError(f"operator {operator.name!r} has no implementation")
    operator.default()
    written = {storage for implementation in operator.implementations for storage in implementation.writes}
    if any(not 0 <= storage < storages for storage in written) or (written & known and not operator.optional):
        raise ValueError(f"operator {operator.name!r} writes {sorted(written)}: unknown, or written before")
    extra = written - set(operator.default().writes)
    if extra and operator.phase is not Phase.FORWARD:
        raise ValueError(f"a way of {operator.name!r} writes {sorted(extra)}, the default not, in the backward pass")
    for implementation in operator.implementations:
        # A recomputation may read what the first run made: a dropout mask, a normalisation's statistics.
        readable = known | written if implementation.when is When.AGAIN else known
        if missing := set(implementation.reads) - readable:
            raise ValueError(f"operator {operator.name!r} reads {sorted(missing)} before anything wrote it")
        if implementation.overwrites is not None and implementation.overwrites not in implementation.reads:
            raise ValueError(f"{implementation.name!r} of {operator.name!r} overwrites what it does not read")
    known |= written
