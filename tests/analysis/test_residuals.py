"""Differences between prediction and measurement are taken apart without a remainder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from explorer.analysis.residuals import residual
from explorer.device_profile import Profile
from explorer.graph import Role
from explorer.measurement import BufferUse, Measurement
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.timeline import Timeline
from tests.schedules import random_schedule
from tests.solvers.graphs import chain


@pytest.fixture
def profile() -> Profile:
    return chain(6)


@pytest.fixture
def schedule(profile: Profile) -> Schedule:
    return random_schedule(profile.graph, 1, keep=0.3)


@pytest.fixture
def timeline(profile: Profile, schedule: Schedule) -> Timeline:
    return simulate(profile, schedule)


@pytest.fixture
def plain_ms(profile: Profile) -> float:
    return simulate(profile, keep_all(profile.graph)).time_ms


def seen(timeline: Timeline, *, more_bytes: int = 0, slower: float = 1.0, reserved: int | None = None) -> Measurement:
    """As predicted, but for what is said."""
    ends = np.cumsum(timeline.times_ms) * slower
    bytes_ = timeline.total_bytes + more_bytes
    return Measurement("cpu", "events", int(bytes_.max()), reserved, float(ends[-1]), ends - 1e-6, bytes_)


def test_nothing_differs(profile: Profile, schedule: Schedule, timeline: Timeline, plain_ms: float) -> None:
    found = residual(profile, schedule, seen(timeline), plain_step_time_ms=plain_ms)
    assert (found.unexplained_bytes, found.cache_bytes) == (0, None)
    assert found.unexplained_ms == pytest.approx(0)
    assert found.machine_ms == pytest.approx(0)
    assert found.own_ms == pytest.approx(0)
    before_ms = float(timeline.times_ms[: timeline.peak_run + 1].sum())
    assert found.peak_share == pytest.approx(before_ms / timeline.time_ms, rel=1e-3)


def test_a_slow_machine_is_not_the_schedules_fault(
    profile: Profile, schedule: Schedule, timeline: Timeline, plain_ms: float
) -> None:
    found = residual(profile, schedule, seen(timeline, slower=1.5), plain_step_time_ms=1.5 * plain_ms)
    assert found.machine_ms == pytest.approx(0.5 * timeline.time_ms)
    assert found.own_ms == pytest.approx(0, abs=1e-9)
    alone = residual(profile, schedule, seen(timeline, slower=1.5))
    assert alone.machine_ms is alone.own_ms is None
    assert alone.unexplained_ms == pytest.approx(0.5 * timeline.time_ms)


def test_unforeseen_memory_and_what_the_allocator_holds_are_told(
    profile: Profile, schedule: Schedule, timeline: Timeline
) -> None:
    measurement = seen(timeline, more_bytes=1000, reserved=timeline.peak_bytes + 5000)
    found = residual(profile, schedule, measurement)
    assert found.unexplained_bytes == 1000
    assert found.cache_bytes == 4000
    # The allocator's blocks are larger than what was asked for, and rounding is not all of that.
    peak = timeline.peak_bytes + 1000
    known = residual(profile, schedule, replace(measurement, requested_peak_bytes=peak - 900))
    assert (known.unsplit_bytes, known.unexplained_bytes) == (900, 100)
    assert found.unsplit_bytes is None
    nothing = Measurement("cuda", "statistics", 10, None, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64))
    assert residual(profile, schedule, nothing).peak_share is None


def test_a_plain_step_takes_time(profile: Profile, schedule: Schedule, timeline: Timeline) -> None:
    with pytest.raises(ValueError, match=r"plain_step_time_ms is 0; it must be a number of milliseconds above 0"):
        residual(profile, schedule, seen(timeline), plain_step_time_ms=0)


def test_a_step_in_a_buffer_is_what_is_there_between_steps_the_buffer_and_what_outlives_it(
    profile: Profile, schedule: Schedule, timeline: Timeline
) -> None:
    last = len(timeline.operators) - 1
    gradients = [x.storage for x in timeline.alive_at(last) if x.end == last]
    outliving = [profile.graph.storages[x] for x in gradients]
    planned = sum(x.bytes for x in outliving if x.held or x.role is Role.PARAMETER_GRADIENT)
    assert planned
    use = BufferUse(buffer_bytes=1000, load_bytes=900, served=9, misses=0)
    for beside, unexplained in ((0, 0), (planned, 0), (planned + 7, 7), (-3, -3)):
        whole = replace(seen(timeline), buffer=use, peak_bytes=profile.fixed_bytes + 1000 + beside)
        found = residual(profile, schedule, whole)
        assert found.buffer_bytes == 1000
        assert found.unexplained_bytes == unexplained
        assert found.beside_bytes == beside - unexplained
        there = found.storages_bytes + found.rounding_bytes + found.workspace_bytes
        assert there + 1000 + beside == found.allocated_bytes
