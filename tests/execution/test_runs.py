"""Measured memory, split by kind and by run of an operator."""

from __future__ import annotations

from dataclasses import replace

import pytest

import explorer
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.execution.models import SAMPLES
from tests.schedules import random_schedule


@pytest.mark.parametrize("name", list(SAMPLES)[:3])
def test_every_run_takes_what_was_predicted(name: str) -> None:
    model, batch, loss = SAMPLES[name]()
    profile = explorer.profile(model, batch, loss=loss)
    for schedule in (keep_all(profile.graph), random_schedule(profile.graph, 1, keep=0.5)):
        scheduled = explorer.apply(model, schedule, batch, loss=loss)
        peak = explorer.measure(scheduled, batch).peak_bytes
        program = type(scheduled).plans[0].program
        runs = explorer.residual_by_run(profile, schedule, explorer.measure_runs(scheduled, batch))
        assert [x.operator for x in runs if x.unexplained_bytes > 0.01 * x.predicted_bytes] == []
        assert (
            max(x.measured_bytes for x in runs) == peak == pytest.approx(simulate(profile, schedule).peak_bytes, abs=8)
        )
        # The probes are gone: an ordinary step follows.
        assert type(scheduled).plans[0].program is program


def test_the_parts_of_a_peak_add_up() -> None:
    model, batch, loss = SAMPLES[next(iter(SAMPLES))]()
    profile = explorer.profile(model, batch, loss=loss)
    schedule = keep_all(profile.graph)
    measured = explorer.measure(explorer.apply(model, schedule, batch, loss=loss), batch)
    # As on a GPU: rounded allocations, and an allocator that keeps more than is allocated.
    rounded = replace(profile, device=replace(profile.device, rounding_bytes=512))
    measured = replace(measured, reserved_peak_bytes=measured.peak_bytes + 4096)
    parts = explorer.residual(rounded, schedule, measured)
    assert parts.rounding_bytes > 0
    assert parts.cache_bytes == 4096
    known = parts.storages_bytes + parts.rounding_bytes + parts.workspace_bytes + parts.unexplained_bytes
    assert known == parts.allocated_bytes
    assert known + parts.cache_bytes == parts.reserved_bytes
    plain = explorer.residual(profile, schedule, replace(measured, reserved_peak_bytes=None))
    assert (plain.rounding_bytes, plain.unexplained_bytes, plain.cache_bytes) == (0, 0, None)


def test_runs_of_another_schedule_are_refused() -> None:
    model, batch, loss = SAMPLES[next(iter(SAMPLES))]()
    profile = explorer.profile(model, batch, loss=loss)
    with pytest.raises(ValueError, match="0 runs were measured"):
        explorer.residual_by_run(profile, keep_all(profile.graph), ())
