"""What the judge of schedules finds: memory by category at every run, times, and every stay of every storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from explorer.graph import Role
from explorer.summaries import Fact, Summarised, milliseconds
from explorer.units import format_bytes

if TYPE_CHECKING:
    from explorer.reserved import Reservation


class Category(StrEnum):
    """What the bytes of a step are for, from the bottom of the stack to its top."""

    PARAMETERS = "parameters"
    BUFFERS = "buffers"
    INPUTS = "inputs"
    OPTIMIZER_STATE = "optimizer state"
    PARAMETER_GRADIENTS = "parameter gradients"
    SAVED = "saved activations"
    RECOMPUTED = "recomputed activations"
    TEMPORARIES = "forward temporaries"
    ACTIVATION_GRADIENTS = "activation gradients"
    WORKSPACE = "workspace"


CATEGORIES = tuple(Category)
COLUMN = {category: column for column, category in enumerate(CATEGORIES)}
"""Of ``Timeline.bytes``, by category."""
ROLE_CATEGORY = {
    Role.PARAMETER: Category.PARAMETERS,
    Role.BUFFER: Category.BUFFERS,
    Role.INPUT: Category.INPUTS,
    Role.GRADIENT: Category.ACTIVATION_GRADIENTS,
    Role.PARAMETER_GRADIENT: Category.PARAMETER_GRADIENTS,
    Role.GRADIENT_BUFFER: Category.PARAMETER_GRADIENTS,
}


class Stage(StrEnum):
    """What a run is part of."""

    FORWARD = "forward"
    RECOMPUTE = "recompute"
    BACKWARD = "backward"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Lifetime:
    """One stay of a storage in memory, from run ``start`` to run ``end`` inclusive."""

    storage: int
    start: int
    end: int
    category: Category
    allocated_bytes: int


@dataclass(frozen=True, eq=False, repr=False)
class Timeline(Summarised):
    """Predicted memory and time of a schedule, one row per run.

    Attributes:
        operators: operator id of each run.
        implementations: its implementation's name.
        stages: what each run is part of.
        bytes: int64, shape (runs, categories), columns as ``CATEGORIES``, allocated bytes at each run's worst moment.
        times_ms: float64, shape (runs,).
        lifetimes: every stay of every storage that is not persistent.
        reservation: what PyTorch's caching allocator makes of it, if that was asked for.
    """

    operators: tuple[int, ...]
    implementations: tuple[str, ...]
    stages: tuple[Stage, ...]
    bytes: np.ndarray
    times_ms: np.ndarray
    lifetimes: tuple[Lifetime, ...]
    reservation: Reservation | None = None

    def facts(self) -> Iterator[Fact]:
        """What the step takes."""
        yield "peak", f"{format_bytes(self.peak_bytes)} at run {self.peak_run} of {len(self.operators)}"
        yield "step", milliseconds(self.time_ms)
        yield "recomputation", milliseconds(self.recompute_time_ms)
        if self.reservation is not None:
            yield from self.reservation.facts()

    @cached_property
    def total_bytes(self) -> np.ndarray:
        """int64, shape (runs,): all categories together."""
        return self.bytes.sum(axis=1)

    @cached_property
    def resting_bytes(self) -> np.ndarray:
        """int64, shape (runs + 1,): what is there before each run, and when all that the step made is gone."""
        runs = len(self.operators)
        if not runs:
            return np.zeros(1, np.int64)
        stays = np.array([(x.start, x.end, x.allocated_bytes) for x in self.lifetimes], np.int64).reshape(-1, 3)
        starts, ends, sizes = stays.T
        made, freed = (np.bincount(x, sizes, runs).astype(np.int64) for x in (starts, ends))
        workspace = self.bytes[:, COLUMN[Category.WORKSPACE]]
        during = self.total_bytes - workspace + workspace.min()  # what libraries keep stays
        return np.append(during - made, (during - freed)[-1:])

    @property
    def peak_bytes(self) -> int:
        """The highest total."""
        return int(self.total_bytes.max(initial=0))

    @property
    def peak_run(self) -> int:
        """The run at which the peak is first reached."""
        return int(self.total_bytes.argmax())

    @property
    def time_ms(self) -> float:
        """Duration of the whole step."""
        return float(self.times_ms.sum())

    @cached_property
    def recompute_time_ms(self) -> float:
        """Time spent on recomputations."""
        again = np.array([stage is Stage.RECOMPUTE for stage in self.stages], dtype=bool)
        return float(self.times_ms[again].sum())

    def alive_at(self, run: int) -> tuple[Lifetime, ...]:
        """What is in memory at a run, besides the persistent storages."""
        return tuple(x for x in self.lifetimes if x.start <= run <= x.end)
