"""Why a measured step is not as predicted: its memory in parts, its time by cause, and the peak of every operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from explorer.arguments import a_number, several
from explorer.device_profile import Profile
from explorer.graph import Phase, Role
from explorer.measurement import Measurement, RunMeasurement
from explorer.schedule import Schedule, keep_all
from explorer.simulation import profile_for, simulate
from explorer.timeline import CATEGORIES, Category, Timeline
from explorer.units import shown


@dataclass(frozen=True, slots=True)
class Residual:
    """A measured step in parts, and what it took beyond its prediction.

    The parts of the peak add up to ``reserved_bytes`` where that is known, else to ``allocated_bytes``.

    Attributes:
        storages_bytes: tensors alive at the predicted peak, as large as they were asked for.
        rounding_bytes: what the allocator's rounding adds to them.
        workspace_bytes: predicted for the operator at the peak, and kept by libraries throughout.
        unexplained_bytes: measured and not predicted; below zero where less was allocated.
        cache_bytes: held by the allocator beyond what is allocated: fragments, and blocks kept for later. None on CPU.
        allocated_bytes: the measured peak.
        reserved_bytes: the most that the allocator held; None on CPU.
        peak_share: how far into the observed step the measured peak was, from 0 to 1; None where no event was seen.
        unexplained_ms: measured time less the predicted one.
        machine_ms: of that, what a plain step shows as well: the machine is slower now than when it was profiled; None
            where no plain step was timed.
        paced_ms: the predicted time at the pace of plain steps now; None where no plain step was timed.
        unsplit_bytes: of the peak, what blocks have beyond what was asked for and its rounding: the caching allocator
            splits large ones only where more than 1 MiB would be left. None where that is not known.
        buffer_bytes: of a step in one buffer, which is held throughout: its size. Tensors, rounding and workspace are
            then of what is there between two steps. None of any other step.
        beside_bytes: of such a step: what lies beside the buffer by the plan, gradients of parameters, results and an
            update's scratch memory, as far as so much was there at the peak. None of any other.
    """

    storages_bytes: int
    rounding_bytes: int
    workspace_bytes: int
    unexplained_bytes: int
    cache_bytes: int | None
    allocated_bytes: int
    reserved_bytes: int | None
    peak_share: float | None
    unexplained_ms: float
    machine_ms: float | None
    unsplit_bytes: int | None = None
    paced_ms: float | None = None
    buffer_bytes: int | None = None
    beside_bytes: int | None = None

    @property
    def own_ms(self) -> float | None:
        """The rest of the time: what is the schedule's own, on the machine as slow as it is now."""
        return None if self.machine_ms is None else self.unexplained_ms - self.machine_ms

    @property
    def own_share(self) -> float | None:
        """Of the time that the schedule would take at the pace of plain steps now: what it takes beyond that."""
        return None if self.own_ms is None or not self.paced_ms else self.own_ms / self.paced_ms


@dataclass(frozen=True, slots=True)
class RunResidual:
    """One run of an operator.

    Attributes:
        operator: its name.
        implementation: how it was run.
        predicted_bytes: memory at its worst moment.
        measured_bytes: likewise.
    """

    operator: str
    implementation: str
    predicted_bytes: int
    measured_bytes: int

    @property
    def unexplained_bytes(self) -> int:
        """Measured and not predicted."""
        return self.measured_bytes - self.predicted_bytes


def residual(
    profile: Profile, schedule: Schedule, measurement: Measurement, *, plain_step_time_ms: float | None = None
) -> Residual:
    """Split a measured step into what was predicted, by kind, and what was not.

    Args:
        profile: that the schedule was made for.
        schedule: that was run.
        measurement: from ``explorer.measure``.
        plain_step_time_ms: of a step without recomputation, measured on the same occasion; None if it was not.

    Raises:
        ValueError: the schedule does not belong to the profile, or the time is none.
    """
    if not isinstance(measurement, Measurement):
        raise ValueError(f"measurement is {shown(measurement)}; explorer.measure(module, batch) makes one")
    profile = profile_for(schedule, profile=profile)
    timeline = simulate(profile, schedule)
    machine_ms = None
    if plain_step_time_ms is not None:
        a_number(plain_step_time_ms, "plain_step_time_ms", above=0, what="a number of milliseconds above 0, or None")
        plain_ms = simulate(profile, keep_all(profile.graph)).time_ms
        machine_ms = timeline.time_ms * (plain_step_time_ms / plain_ms - 1) if plain_ms > 0 else None
    parts = _parts if measurement.buffer is None else _around
    reserved = measurement.reserved_peak_bytes
    return Residual(
        **parts(profile, timeline, measurement),
        cache_bytes=None if reserved is None else reserved - measurement.peak_bytes,
        allocated_bytes=measurement.peak_bytes,
        reserved_bytes=reserved,
        peak_share=_peak_share(measurement),
        unexplained_ms=measurement.step_time_ms - timeline.time_ms,
        machine_ms=machine_ms,
        paced_ms=None if machine_ms is None else timeline.time_ms + machine_ms,
    )


def _parts(profile: Profile, timeline: Timeline, measurement: Measurement) -> dict[str, Any]:
    """Of a peak that is made of what the schedule has at its own."""
    peak, graph = timeline.peak_run, profile.graph
    workspace_bytes = int(timeline.bytes[peak, CATEGORIES.index(Category.WORKSPACE)])
    alive = [*(x.storage for x in timeline.alive_at(peak)), *graph.persistent]
    rounding_bytes = sum(profile.allocated_bytes(graph.storages[x]) - graph.storages[x].bytes for x in alive)
    unsplit_bytes = None
    if measurement.requested_peak_bytes is not None:
        # Model and batch are as allocated in both.
        within = [graph.storages[x.storage] for x in timeline.alive_at(peak)]
        rounded_bytes = sum(profile.allocated_bytes(x) - x.bytes for x in within)
        unsplit_bytes = max(0, measurement.peak_bytes - measurement.requested_peak_bytes - rounded_bytes)
    return {
        "storages_bytes": timeline.peak_bytes - workspace_bytes - rounding_bytes,
        "rounding_bytes": rounding_bytes,
        "workspace_bytes": workspace_bytes,
        "unexplained_bytes": measurement.peak_bytes - timeline.peak_bytes - (unsplit_bytes or 0),
        "unsplit_bytes": unsplit_bytes,
    }


def _around(profile: Profile, timeline: Timeline, measurement: Measurement) -> dict[str, Any]:
    """Of a step in one buffer: that is held throughout, and what outlives the step is never in it."""
    assert measurement.buffer is not None
    graph, workspace_bytes = profile.graph, profile.device.persistent_workspace_bytes
    rounding_bytes = sum(profile.allocated_bytes(graph.storages[x]) - graph.storages[x].bytes for x in graph.persistent)
    last = len(timeline.operators) - 1
    ending = [graph.storages[x.storage] for x in timeline.alive_at(last)]
    outliving = [x for x in ending if x.held or x.role is Role.PARAMETER_GRADIENT]
    planned_bytes = sum(map(profile.allocated_bytes, outliving))
    if graph.operators[timeline.operators[last]].phase is Phase.UPDATE:
        planned_bytes += int(timeline.bytes[last, CATEGORIES.index(Category.WORKSPACE)]) - workspace_bytes
    beside_bytes = measurement.peak_bytes - profile.fixed_bytes - measurement.buffer.buffer_bytes
    explained_bytes = min(max(beside_bytes, 0), planned_bytes)
    return {
        "storages_bytes": profile.fixed_bytes - workspace_bytes - rounding_bytes,
        "rounding_bytes": rounding_bytes,
        "workspace_bytes": workspace_bytes,
        "unexplained_bytes": beside_bytes - explained_bytes,
        "buffer_bytes": measurement.buffer.buffer_bytes,
        "beside_bytes": explained_bytes,
    }


def residual_by_run(
    profile: Profile, schedule: Schedule, measured: tuple[RunMeasurement, ...]
) -> tuple[RunResidual, ...]:
    """Predicted and measured memory of every run of an operator, in order.

    Args:
        profile: that the schedule was made for.
        schedule: that was run.
        measured: from ``explorer.measure_runs``.

    Raises:
        ValueError: the schedule does not belong to the profile, or something else was measured.
    """
    runs = several(measured, "measured", such_as="what explorer.measure_runs(module, batch) returns")
    if others := [x for x in runs if not isinstance(x, RunMeasurement)]:
        raise ValueError(f"measured has {shown(others[0])}; explorer.measure_runs(module, batch) makes it")
    profile = profile_for(schedule, profile=profile)
    timeline = simulate(profile, schedule)
    if len(measured) != len(timeline.operators):
        raise ValueError(f"{len(measured)} runs were measured; the schedule has {len(timeline.operators)}")
    return tuple(
        RunResidual(profile.graph.operators[operator].name, implementation, int(predicted), seen.peak_bytes)
        for operator, implementation, predicted, seen in zip(
            timeline.operators, timeline.implementations, timeline.total_bytes, measured, strict=True
        )
    )


def _peak_share(measurement: Measurement) -> float | None:
    times_ms = measurement.times_ms
    if len(times_ms) == 0 or times_ms[-1] <= 0:
        return None
    return float(times_ms[int(np.argmax(measurement.allocated_bytes))] / times_ms[-1])
