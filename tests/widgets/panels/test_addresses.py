"""The addresses panel by itself: a placement that is none, one for other sizes, and addresses that are none."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import explorer
from explorer.device_profile import Profile
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from tests.widgets.trained import Trained
from widgets.panels.addresses import AddressesPanel
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff


def shown(profile: Profile, schedule: Schedule) -> AddressesPanel:
    """The panel, once it no longer looks for anything."""
    panel = AddressesPanel(SimpleNamespace(select=lambda _: None))  # pyright: ignore[reportArgumentType]
    line = simulate(profile, keep_all(profile.graph))
    found = Solution(Status.FEASIBLE, line.peak_bytes, schedule, line.time_ms, line.peak_bytes)
    panel.show(Scene(profile, line, TradeOff(line, (), current=found), solution=found, timeline=line))
    until = time.monotonic() + 60
    while "Looking for" in panel.told.value:
        assert time.monotonic() < until
        time.sleep(0.01)
    return panel


def test_a_placement_of_something_else_is_told_and_nobody_waits(trained: Trained) -> None:
    schedule = keep_all(trained.profile.graph)
    placement = explorer.place(trained.profile, schedule)
    blocks = tuple(replace(x, storages=(99999,)) if x.storages else x for x in placement.blocks)
    panel: Any = shown(trained.profile, schedule.with_placement(replace(placement, blocks=blocks)))
    assert "There is nothing to show: the placement has storage 99999" in panel.told.value
    assert panel.plot.layout.display == "none" and panel.offset.disabled


def test_addresses_for_other_sizes_are_found_anew(trained: Trained) -> None:
    schedule = keep_all(trained.profile.graph)
    own = schedule.with_placement(explorer.place(trained.profile, schedule))
    assert "placed anew" not in shown(trained.profile, own).told.value
    costs = {x: replace(y, workspace_bytes=4096 + y.workspace_bytes) for x, y in trained.profile.costs.items()}
    panel = shown(replace(trained.profile, costs=costs), own)
    assert "other sizes than this profile" in panel.told.value
    assert "holds all that the step makes" in panel.told.value


def test_an_address_that_is_none_is_refused_and_one_far_above_is_the_highest_of_use(trained: Trained) -> None:
    panel: Any = shown(trained.profile, keep_all(trained.profile.graph))
    planned = panel._shown
    own = max((x for x in planned.rectangles if x.layer), key=lambda x: x.bytes)
    panel._pick((own.block, ""))
    before = panel.offset.value
    for act in (lambda x: setattr(panel.offset, "value", x), panel._drag):
        act(math.nan)
        assert "An address is a number, not nan" in panel.told.value
        assert panel.offset.value == before
        assert panel._shown is planned
    panel._drag(math.inf)
    assert "not inf" in panel.told.value
    highest_bytes = planned.highest_end_beside(own.block)
    for act in (lambda x: setattr(panel.offset, "value", x), panel._drag):
        act(1e300)
        assert "Nothing collides" in panel.told.value
        assert panel._shown.of(own.block)[0].offset_bytes == highest_bytes
        assert panel._shown.buffer_bytes == highest_bytes + own.bytes
        panel._undo()
        assert panel.offset.value == before
