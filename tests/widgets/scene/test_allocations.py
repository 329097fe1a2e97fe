"""What is listed as alive is all that is alive."""

from __future__ import annotations

import pytest

from explorer.simulation import simulate
from tests.schedules import random_schedule
from tests.widgets.trained import Trained
from widgets.panels.timeline import allocation_rows
from widgets.scene.allocations import allocations


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_holdings_add_up_to_the_total(trained: Trained, keep: float) -> None:
    timeline = simulate(trained.profile, random_schedule(trained.profile.graph, 4, keep=keep))
    for run in (0, timeline.peak_run, len(timeline.operators) - 1):
        found = allocations(trained.profile, timeline, run)
        assert sum(x.bytes for x in found) == timeline.total_bytes[run]
        assert [x.bytes for x in found] == sorted((x.bytes for x in found), reverse=True)


def test_the_rest_is_told_in_one_row(trained: Trained) -> None:
    timeline = simulate(trained.profile, random_schedule(trained.profile.graph, 4, keep=1.0))
    found = allocations(trained.profile, timeline, timeline.peak_run)
    rows = allocation_rows(found, most=3)
    assert len(rows) == 4
    assert rows[-1].key == ""
    assert f"{len(found) - 3} smaller" in rows[-1].cells[1]
