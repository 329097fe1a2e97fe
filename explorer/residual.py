"""Why a measured step differs from its prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from explorer.measurement import Measurement
from explorer.simulation import Timeline


@dataclass(frozen=True, slots=True)
class Residual:
    """What a run took beyond its prediction, by cause; negative where it took less.

    Attributes:
        peak_bytes: measured peak less the predicted one.
        peak_run: the run during which the measured peak was seen, told from its time; None where no event was seen.
        unforeseen_bytes: measured peak less what was predicted for that run; equal to ``peak_bytes`` without one.
        held_bytes: what the allocator held from the device beyond the measured peak; None on CPU.
        time_ms: measured time less the predicted one.
        machine_ms: of that, what a plain step shows as well: the machine is slower now than when it was profiled; None
            where no plain step was timed.
    """

    peak_bytes: int
    peak_run: int | None
    unforeseen_bytes: int
    held_bytes: int | None
    time_ms: float
    machine_ms: float | None

    @property
    def own_ms(self) -> float | None:
        """The rest of the time: what is the schedule's own."""
        return None if self.machine_ms is None else self.time_ms - self.machine_ms


def explain(
    timeline: Timeline, measurement: Measurement, *, plain: Timeline, plain_step_time_ms: float | None
) -> Residual:
    """Take the difference between measurement and prediction apart.

    Args:
        timeline: predicted.
        measurement: of the same schedule.
        plain: predicted for the step without recomputation.
        plain_step_time_ms: measured for that step on the same occasion; None if it was not.
    """
    run = _run_of_peak(timeline, measurement)
    there = timeline.peak_bytes if run is None else int(timeline.total_bytes[run])
    held = measurement.reserved_peak_bytes
    machine = None
    if plain_step_time_ms is not None and plain.time_ms > 0:
        machine = timeline.time_ms * (plain_step_time_ms / plain.time_ms - 1)
    return Residual(
        peak_bytes=measurement.peak_bytes - timeline.peak_bytes,
        peak_run=run,
        unforeseen_bytes=measurement.peak_bytes - there,
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


def _run_of_peak(timeline: Timeline, measurement: Measurement) -> int | None:
    runs = runs_of(timeline, measurement.times_ms)
    if not len(runs):
        return None
    return min(int(runs[int(np.argmax(measurement.allocated_bytes))]), len(timeline.operators) - 1)
