"""What a real step was seen to take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from explorer.summaries import Fact, Summarised, milliseconds
from explorer.units import format_bytes


@dataclass(frozen=True, slots=True)
class BufferUse:
    """How a step used the buffer that its memory was planned in.

    Attributes:
        buffer_bytes: its size.
        load_bytes: most bytes of it that are in use at once, by the plan.
        served: allocations that were answered from it.
        misses: allocations that were planned otherwise or not at all, which the plain allocator answered.
    """

    buffer_bytes: int
    load_bytes: int
    served: int
    misses: int

    @property
    def fragmentation(self) -> float:
        """Share of the load that the buffer takes beyond it."""
        return self.buffer_bytes / max(self.load_bytes, 1) - 1


@dataclass(frozen=True, eq=False, repr=False)
class Measurement(Summarised):
    """Memory and time of real training steps on a device.

    Attributes:
        device: name of the device.
        method: how memory was seen (``"profiler memory events"``, ``"allocator statistics"``).
        peak_bytes: highest allocated bytes within a step, model and batch included.
        reserved_peak_bytes: highest bytes that the allocator held from the device; None on CPU.
        step_time_ms: duration of an unobserved step: the median of several.
        times_ms: float64, shape (events,): since the step began, as observed.
        allocated_bytes: int64, shape (events,): allocated right after each event.
        buffer: of a module that runs in one buffer: how its last step used it; the buffer counts as allocated
            throughout. None for any other.
        requested_peak_bytes: highest sum of what was asked for, model and batch as they are allocated: what
            ``peak_bytes`` is without rounding, and without blocks that were not split. None where no allocator tells.
    """

    device: str
    method: str
    peak_bytes: int
    reserved_peak_bytes: int | None
    step_time_ms: float
    times_ms: np.ndarray
    allocated_bytes: np.ndarray
    buffer: BufferUse | None = None
    requested_peak_bytes: int | None = None

    def facts(self) -> Iterator[Fact]:
        """What was seen, and how."""
        yield "peak", format_bytes(self.peak_bytes)
        if self.reserved_peak_bytes is not None:
            yield "reserved", format_bytes(self.reserved_peak_bytes)
        yield "step", milliseconds(self.step_time_ms)
        yield "on", self.device
        yield "by", self.method
        if self.buffer is not None:
            yield "buffer", f"{format_bytes(self.buffer.buffer_bytes)}, {self.buffer.misses} allocations beside it"


@dataclass(frozen=True, slots=True)
class RunMeasurement:
    """One run of an operator.

    Attributes:
        peak_bytes: highest allocated bytes while it ran, model and batch included.
    """

    peak_bytes: int
