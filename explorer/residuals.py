"""Why a measured peak is not the predicted one: what a step's memory is made of, and where each operator differs."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.arguments import several
from explorer.device_profile import Profile
from explorer.measurement import Measurement, RunMeasurement
from explorer.schedule import Schedule
from explorer.simulation import CATEGORIES, Category, simulate
from explorer.units import shown


@dataclass(frozen=True, slots=True)
class Residual:
    """A measured peak in parts; they add up to ``reserved_bytes`` where that is known, else to ``allocated_bytes``.

    Attributes:
        storages_bytes: tensors alive at the predicted peak, as large as they were asked for.
        rounding_bytes: what the allocator's rounding adds to them.
        workspace_bytes: predicted for the operator at the peak, and kept by libraries throughout.
        unexplained_bytes: measured and not predicted; below zero where less was allocated.
        cache_bytes: held by the allocator beyond what is allocated: fragments, and blocks kept for later. None on CPU.
        allocated_bytes: the measured peak.
        reserved_bytes: the most that the allocator held; None on CPU.
    """

    storages_bytes: int
    rounding_bytes: int
    workspace_bytes: int
    unexplained_bytes: int
    cache_bytes: int | None
    allocated_bytes: int
    reserved_bytes: int | None


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


def residual(profile: Profile, schedule: Schedule, measurement: Measurement) -> Residual:
    """Split a measured peak into what was predicted, by kind, and what was not.

    Args:
        profile: that the schedule was made for.
        schedule: that was run.
        measurement: from ``explorer.measure``.

    Raises:
        ValueError: the schedule does not belong to the profile.
    """
    if not isinstance(measurement, Measurement):
        raise ValueError(f"measurement is {shown(measurement)}; explorer.measure(module, batch) makes one")
    timeline = simulate(profile, schedule)
    peak = timeline.peak_run
    workspace_bytes = int(timeline.bytes[peak, CATEGORIES.index(Category.WORKSPACE)])
    graph = profile.graph
    alive = [*(x.storage for x in timeline.alive_at(peak)), *graph.persistent]
    rounding_bytes = sum(profile.allocated_bytes(graph.storages[x]) - graph.storages[x].bytes for x in alive)
    reserved = measurement.reserved_peak_bytes
    return Residual(
        storages_bytes=timeline.peak_bytes - workspace_bytes - rounding_bytes,
        rounding_bytes=rounding_bytes,
        workspace_bytes=workspace_bytes,
        unexplained_bytes=measurement.peak_bytes - timeline.peak_bytes,
        cache_bytes=None if reserved is None else reserved - measurement.peak_bytes,
        allocated_bytes=measurement.peak_bytes,
        reserved_bytes=reserved,
    )


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
    timeline = simulate(profile, schedule)
    if len(measured) != len(timeline.operators):
        raise ValueError(f"{len(measured)} runs were measured; the schedule has {len(timeline.operators)}")
    return tuple(
        RunResidual(profile.graph.operators[operator].name, implementation, int(predicted), seen.peak_bytes)
        for operator, implementation, predicted, seen in zip(
            timeline.operators, timeline.implementations, timeline.total_bytes, measured, strict=True
        )
    )
