"""Why a measured step differs from its prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.measurement import Measurement
from explorer.simulation import Timeline


@dataclass(frozen=True, slots=True)
class Deviation:
    """What a run took beyond its prediction, by cause; negative where it took less.

    Attributes:
        peak_bytes: measured peak less the predicted one.
        peak_share: how far into the observed step the measured peak was, from 0 to 1; None where no event was seen.
        held_bytes: what the allocator held from the device beyond the measured peak; None on CPU.
        time_ms: measured time less the predicted one.
        machine_ms: of that, what a plain step shows as well: the machine is slower now than when it was profiled; None
            where no plain step was timed.
    """

    peak_bytes: int
    peak_share: float | None
    held_bytes: int | None
    time_ms: float
    machine_ms: float | None

    @property
    def own_ms(self) -> float | None:
        """The rest of the time: what is the schedule's own."""
        return None if self.machine_ms is None else self.time_ms - self.machine_ms


def deviation_of(
    timeline: Timeline, measurement: Measurement, *, plain: Timeline, plain_step_time_ms: float | None
) -> Deviation:
    """Take the difference between measurement and prediction apart.

    Args:
        timeline: predicted.
        measurement: of the same schedule.
        plain: predicted for the step without recomputation.
        plain_step_time_ms: measured for that step on the same occasion; None if it was not.
    """
    held = measurement.reserved_peak_bytes
    machine = None
    if plain_step_time_ms is not None and plain.time_ms > 0:
        machine = timeline.time_ms * (plain_step_time_ms / plain.time_ms - 1)
    return Deviation(
        peak_bytes=measurement.peak_bytes - timeline.peak_bytes,
        peak_share=_peak_share(measurement),
        held_bytes=None if held is None else held - measurement.peak_bytes,
        time_ms=measurement.step_time_ms - timeline.time_ms,
        machine_ms=machine,
    )


def runs_of(timeline: Timeline, times_ms: np.ndarray) -> np.ndarray:
    """Moments of an observed step as positions among its runs, float64.

    A measurement knows times, not operators: its time is stretched to the predicted step, then read as runs.
    """
    ends = np.cumsum(timeline.times_ms)
    observed = np.asarray(times_ms, dtype=np.float64)
    if len(observed) == 0 or observed[-1] <= 0 or ends[-1] <= 0:
        return np.zeros(0)
    return np.interp(observed * (ends[-1] / observed[-1]), np.append(0.0, ends), np.arange(len(ends) + 1))


def _peak_share(measurement: Measurement) -> float | None:
    times_ms = measurement.times_ms
    if len(times_ms) == 0 or times_ms[-1] <= 0:
        return None
    return float(times_ms[int(np.argmax(measurement.allocated_bytes))] / times_ms[-1])
