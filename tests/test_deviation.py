"""Differences between prediction and measurement are taken apart without a remainder."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.deviation import deviation_of
from explorer.measurement import Measurement
from explorer.schedule import keep_all
from explorer.simulation import Timeline, simulate
from tests.schedules import random_schedule
from tests.solvers.graphs import chain


@pytest.fixture
def plain() -> Timeline:
    profile = chain(6)
    return simulate(profile, keep_all(profile.graph))


@pytest.fixture
def timeline() -> Timeline:
    profile = chain(6)
    return simulate(profile, random_schedule(profile.graph, 1, keep=0.3))


def seen(timeline: Timeline, *, more_bytes: int = 0, slower: float = 1.0, reserved: int | None = None) -> Measurement:
    """As predicted, but for what is said."""
    ends = np.cumsum(timeline.times_ms) * slower
    bytes_ = timeline.total_bytes + more_bytes
    return Measurement("cpu", "events", int(bytes_.max()), reserved, float(ends[-1]), ends - 1e-6, bytes_)


def test_nothing_differs(timeline: Timeline, plain: Timeline) -> None:
    found = deviation_of(timeline, seen(timeline), plain=plain, plain_step_time_ms=plain.time_ms)
    assert (found.peak_bytes, found.held_bytes) == (0, None)
    assert found.time_ms == pytest.approx(0)
    assert found.machine_ms == pytest.approx(0)
    assert found.own_ms == pytest.approx(0)
    before_ms = float(timeline.times_ms[: timeline.peak_run + 1].sum())
    assert found.peak_share == pytest.approx(before_ms / timeline.time_ms, rel=1e-3)


def test_a_slow_machine_is_not_the_schedules_fault(timeline: Timeline, plain: Timeline) -> None:
    found = deviation_of(timeline, seen(timeline, slower=1.5), plain=plain, plain_step_time_ms=1.5 * plain.time_ms)
    assert found.machine_ms == pytest.approx(0.5 * timeline.time_ms)
    assert found.own_ms == pytest.approx(0, abs=1e-9)
    alone = deviation_of(timeline, seen(timeline, slower=1.5), plain=plain, plain_step_time_ms=None)
    assert alone.machine_ms is alone.own_ms is None
    assert alone.time_ms == pytest.approx(0.5 * timeline.time_ms)


def test_unforeseen_memory_and_what_the_allocator_holds_are_told(timeline: Timeline, plain: Timeline) -> None:
    measurement = seen(timeline, more_bytes=1000, reserved=timeline.peak_bytes + 5000)
    found = deviation_of(timeline, measurement, plain=plain, plain_step_time_ms=None)
    assert found.peak_bytes == 1000
    assert found.held_bytes == 4000
    nothing = Measurement("cuda", "statistics", 10, None, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64))
    assert deviation_of(timeline, nothing, plain=plain, plain_step_time_ms=None).peak_share is None
