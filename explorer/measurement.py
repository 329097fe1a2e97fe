"""What a real step was seen to take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from explorer.summaries import Fact, Summarised, milliseconds
from explorer.units import format_bytes


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
    """

    device: str
    method: str
    peak_bytes: int
    reserved_peak_bytes: int | None
    step_time_ms: float
    times_ms: np.ndarray
    allocated_bytes: np.ndarray

    def facts(self) -> Iterator[Fact]:
        """What was seen, and how."""
        yield "peak", format_bytes(self.peak_bytes)
        if self.reserved_peak_bytes is not None:
            yield "reserved", format_bytes(self.reserved_peak_bytes)
        yield "step", milliseconds(self.step_time_ms)
        yield "on", self.device
        yield "by", self.method


@dataclass(frozen=True, slots=True)
class RunMeasurement:
    """One run of an operator.

    Attributes:
        peak_bytes: highest allocated bytes while it ran, model and batch included.
    """

    peak_bytes: int
