"""Time and workspace of every implementation in a training graph, on one device."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from explorer.arguments import a_path, a_whole_number
from explorer.graph import MOST_BYTES, Implementation, Storage, TrainingGraph
from explorer.iteration import STEP_ALONE, Iteration
from explorer.rearranging import in_iteration
from explorer.storage import storage_format
from explorer.storage.conversion import to_plain
from explorer.summaries import Fact, Summarised, milliseconds
from explorer.units import format_bytes, shown

SCHEMA = 1
_MOST_ROUNDING_BYTES = 2**30
_MOST_MS = 1e12  # thirty years: sums, and what solvers make of them, stay finite


@dataclass(frozen=True, slots=True)
class Cost:
    """What one call of an implementation costs.

    Attributes:
        time_ms: its duration, calibrated so that the sum over a step is the step's.
        workspace_bytes: memory beyond its inputs and outputs, at its worst moment (MONeT's c_i).
    """

    time_ms: float
    workspace_bytes: int

    def __post_init__(self) -> None:
        """Raises ValueError for figures that there cannot be."""
        if not 0 <= self.time_ms <= _MOST_MS:
            raise ValueError(f"time_ms is {self.time_ms}; it must be 0 or more, and at most {_MOST_MS:g}")
        if not 0 <= self.workspace_bytes <= MOST_BYTES:
            raise ValueError(f"workspace_bytes is {shown(self.workspace_bytes)}; it must be from 0 to {MOST_BYTES}")


@dataclass(frozen=True, slots=True)
class Device:
    """Where the costs come from.

    Attributes:
        name: as the system calls it (``"NVIDIA A100-SXM4-80GB"``, ``"x86_64, 2 threads"``).
        kind: ``"cpu"`` or ``"cuda"``.
        torch_version: that measured or estimated them.
        rounding_bytes: the allocator rounds each allocation up to a multiple of this.
        persistent_workspace_bytes: what libraries keep allocated throughout (cuBLAS on CUDA).
        memory_bytes: how much the device has, or None where unknown.
        estimated: computed from a data sheet, not measured.
        note: what else may matter: versions of libraries, clock, temperature.
    """

    name: str
    kind: str
    torch_version: str
    rounding_bytes: int = 1
    persistent_workspace_bytes: int = 0
    memory_bytes: int | None = None
    estimated: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for amounts of memory that there cannot be."""
        a_whole_number(self.rounding_bytes, "rounding_bytes", least=1, most=_MOST_ROUNDING_BYTES)
        a_whole_number(self.persistent_workspace_bytes, "persistent_workspace_bytes", least=0, most=MOST_BYTES)
        if self.memory_bytes is not None:
            a_whole_number(self.memory_bytes, "memory_bytes", least=0, most=MOST_BYTES)

    @property
    def label(self) -> str:
        """Its name, marked where nothing was measured."""
        return f"{self.name} (estimated)" if self.estimated else self.name


@dataclass(frozen=True, repr=False)
class Profile(Summarised):
    """A training graph with the cost of everything in it: all that a solver needs.

    Attributes:
        graph: the operators and storages.
        costs: by ``Implementation.cost``.
        device: where the costs hold.
        eager_time_ms: one plain PyTorch step (forward and backward), measured; None where it was not run.
        eager_peak_bytes: its measured peak; None where it was not run.
        calibration: factor already applied to every ``time_ms``, step over sum of operators.
        optimizer_state_bytes: held throughout on top of the model, if an optimizer was named.
        optimizer: its name; None: none.
    """

    graph: TrainingGraph
    costs: dict[str, Cost]
    device: Device
    eager_time_ms: float | None = None
    eager_peak_bytes: int | None = None
    calibration: float = 1.0
    optimizer_state_bytes: int = 0
    optimizer: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if an implementation has no cost, or a figure is none that there can be."""
        a_whole_number(self.optimizer_state_bytes, "optimizer_state_bytes", least=0, most=MOST_BYTES)
        for name in ("eager_time_ms", "calibration"):
            amount = getattr(self, name)
            if amount is not None and not 0 <= amount <= _MOST_MS:
                raise ValueError(f"{name} is {amount}; it must be 0 or more, and at most {_MOST_MS:g}")
        if self.eager_peak_bytes is not None:
            a_whole_number(self.eager_peak_bytes, "eager_peak_bytes", least=0, most=MOST_BYTES)
        for operator in self.graph.operators:
            for implementation in operator.implementations:
                if implementation.cost not in self.costs:
                    raise ValueError(f"{operator.name!r} has no cost for {implementation.cost!r}")

    def facts(self) -> Iterator[Fact]:
        """Of what and where it is."""
        yield "model", self.graph.model
        yield "device", self.device.label
        if self.graph.autocast is not None and self.graph.autocast.dtype is not None:
            yield "autocast", f"{self.graph.autocast}"
        yield "operators", f"{len(self.graph.operators)}"
        yield "model and batch", format_bytes(self.fixed_bytes)
        if self.eager_time_ms is not None:
            yield "plain PyTorch's step", milliseconds(self.eager_time_ms)
        if self.eager_peak_bytes is not None:
            yield "its peak", format_bytes(self.eager_peak_bytes)
        if self.optimizer is not None:
            yield "optimizer", self.optimizer
        if self.graph.iteration != STEP_ALONE:
            yield "iteration", str(self.graph.iteration)

    def cost(self, implementation: Implementation) -> Cost:
        """Its cost on this profile's device."""
        return self.costs[implementation.cost]

    def allocated_bytes(self, storage: Storage) -> int:
        """What the device's allocator takes for ``storage``."""
        return round_up(storage.bytes, self.device.rounding_bytes)

    def workspace_bytes(self, implementation: Implementation) -> int:
        """The implementation's workspace, as the allocator takes it."""
        return round_up(self.cost(implementation).workspace_bytes, self.device.rounding_bytes)

    @cached_property
    def fixed_bytes(self) -> int:
        """Allocated throughout, whatever the schedule: model, batch, optimizer state, library workspace."""
        persistent = sum(self.allocated_bytes(self.graph.storages[i]) for i in self.graph.persistent)
        return persistent + self.optimizer_state_bytes + self.device.persistent_workspace_bytes

    def in_iteration(self, iteration: Iteration) -> Profile:
        """The same passes in another iteration, whose costs are known.

        Raises:
            ValueError: they are not, or there is no such optimizer.
        """
        if iteration == self.graph.iteration:
            return self
        try:
            return replace(self, graph=in_iteration(self.graph, iteration))
        except ValueError as error:
            raise ValueError(f"this profile knows no iteration {str(iteration)!r}: {error}") from error

    @cached_property
    def can_update_within(self) -> bool:
        """Are updates within the backward pass known, whenever they are in this iteration?"""
        iteration = self.graph.iteration
        if iteration.optimizer is None:
            return False
        try:
            self.in_iteration(replace(iteration, within=True))
        except ValueError:  # gradients are accumulated or averaged, or the optimizer works on all of them together
            return False
        return True

    @cached_property
    def digest(self) -> str:
        """Hash of the content, equal for equal profiles; keys caches."""
        content = to_plain(self)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def save(self, path: str | Path) -> None:
        """Write the profile as JSON, with a schema version and a checksum."""
        storage_format.write(a_path(path), self, schema=SCHEMA)


def round_up(amount_bytes: int, multiple: int) -> int:
    """``amount_bytes`` rounded up to a multiple."""
    return -(-amount_bytes // multiple) * multiple
