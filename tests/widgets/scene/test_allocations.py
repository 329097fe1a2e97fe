"""What is listed as alive is all that is alive."""

from __future__ import annotations

import pytest

import explorer
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.schedules import random_schedule
from tests.widgets.trained import Trained
from widgets.panels.timeline import allocation_rows
from widgets.scene.allocations import allocations
from widgets.scene.blocks import blocks_of


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
    rows = allocation_rows(found, blocks_of(trained.profile.graph), most=3)
    assert len(rows) == 4
    assert rows[-1].key == ""
    shown = sum(len(row.folded) or 1 for row in rows[:-1])
    assert f"{len(found) - shown} smaller" in rows[-1].cells[1]


def test_equal_tensors_of_repeated_blocks_are_one_row() -> None:
    profile = explorer.load_profile("gpt2")
    timeline = simulate(profile, keep_all(profile.graph))
    found = allocations(profile, timeline, timeline.peak_run)
    rows = allocation_rows(found, blocks_of(profile.graph))
    (row,) = [row for row in rows if row.cells[0] == "blocks.0-11.mlp.0"]
    assert [x.key for x in row.folded] == [f"blocks.{i}.mlp.0" for i in range(12)]
    assert "(12 × 96.00 MiB)" in row.cells[-1]
