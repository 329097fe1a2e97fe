"""Where in a schedule the moments of an observed step are put."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import explorer
from explorer.analysis.aligning import aligned_runs, runs_of
from explorer.measurement import Measurement
from explorer.simulation import simulate
from tests.execution.models import branches, shared, tied_attention

_ROUNDING_BYTES = 128


@pytest.mark.parametrize("slower", [1.0, 3.0, 20.0])
def test_what_was_measured_under_load_stands_at_its_runs(slower: float) -> None:
    """Whatever took longer than was profiled: the bytes say where in the step a moment is."""
    profile = explorer.load_profile("resnet50-small-cpu")
    timeline = simulate(profile, explorer.keep_all(profile.graph))
    runs = len(timeline.operators)
    # The second third of the step ran beside something else.
    times = timeline.times_ms * np.where((np.arange(runs) > runs / 3) & (np.arange(runs) < 2 * runs / 3), slower, 1.0)
    measured = Measurement(
        "cpu", "events", timeline.peak_bytes, None, times.sum(), np.cumsum(times) - times / 2, timeline.total_bytes
    )
    off = np.abs(aligned_runs(timeline, measured) - (np.arange(runs) + 0.5))
    by_time = np.abs(runs_of(timeline, measured.times_ms) - (np.arange(runs) + 0.5))
    assert np.quantile(off, 0.9) <= 0.02 * runs
    assert slower == 1.0 or off.mean() < 0.2 * by_time.mean()
    assert (np.diff(aligned_runs(timeline, measured)) >= 0).all()


def test_a_step_without_events_has_no_moments() -> None:
    profile = explorer.load_profile("resnet50-small-cpu")
    timeline = simulate(profile, explorer.keep_all(profile.graph))
    nothing = Measurement("cpu", "events", 1, None, 1.0, np.zeros(0), np.zeros(0, dtype=np.int64))
    assert len(aligned_runs(timeline, nothing)) == 0


@pytest.mark.parametrize("make", [branches, shared, tied_attention], ids=lambda x: x.__name__)
@pytest.mark.parametrize("share", ["100 %", "75 %"])
def test_every_run_of_a_real_step_has_its_own_peak(make: Callable[[], Any], share: str) -> None:
    """As measuring run by run says, of which the alignment knows nothing."""
    model, batch, loss = make()
    profile = explorer.profile(model, batch, loss=loss)
    schedule = explorer.solve(profile, budget=share, time_limit=1).schedule or explorer.keep_all(profile.graph)
    module = explorer.apply(model, schedule, batch, loss=loss)
    timeline, measured = simulate(profile, schedule), explorer.measure(module, batch, steps=1)
    tops = np.zeros(len(timeline.operators), dtype=np.int64)
    np.maximum.at(tops, aligned_runs(timeline, measured).astype(np.int64), measured.allocated_bytes)
    around = np.maximum(timeline.resting_bytes[:-1], timeline.resting_bytes[1:])
    own = timeline.total_bytes > around + _ROUNDING_BYTES
    found = np.abs(tops - timeline.total_bytes)[own] <= _ROUNDING_BYTES
    assert own.sum() >= 4
    assert found.mean() >= 0.8


def test_what_rests_between_runs_is_what_was_there_before() -> None:
    profile = explorer.load_profile("resnet50-small-cpu")
    timeline = simulate(profile, explorer.keep_all(profile.graph))
    alive = np.array([sum(x.allocated_bytes for x in timeline.alive_at(run)) for run in range(len(timeline.operators))])
    always = profile.fixed_bytes
    assert timeline.resting_bytes[0] == always
    assert (timeline.resting_bytes[1:] <= always + alive).all()
    assert timeline.resting_bytes[-1] == always
