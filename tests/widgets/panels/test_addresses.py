"""The addresses panel by itself: a placement that is none, one for other sizes, and addresses that are none."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

import explorer
from explorer.device_profile import Profile
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from explorer.timeline import Category
from tests.widgets.trained import Trained
from widgets.panels.addresses import AddressesPanel
from widgets.plots.addresses_plot import unit_of
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff


def shown(profile: Profile, schedule: Schedule) -> AddressesPanel:
    """The panel, once it no longer looks for anything."""
    panel = AddressesPanel(SimpleNamespace(select=lambda _: None))  # pyright: ignore[reportArgumentType]
    line = simulate(profile, keep_all(profile.graph))
    found = Solution(Status.FEASIBLE, line.peak_bytes, schedule, line.time_ms, line.peak_bytes)
    show(panel, Scene(profile, line, TradeOff(line, (), current=found), solution=found, timeline=line))
    return panel


def show(panel: AddressesPanel, scene: Scene) -> None:
    """Until it no longer looks for anything."""
    panel.show(scene)
    until = time.monotonic() + 60
    while "Looking for" in panel.told.value:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_a_placement_of_something_else_is_told_and_nobody_waits(trained: Trained) -> None:
    schedule = keep_all(trained.profile.graph)
    placement = explorer.place(trained.profile, schedule)
    blocks = tuple(replace(x, storages=(99999,)) if x.storages else x for x in placement.blocks)
    panel: Any = shown(trained.profile, schedule.with_placement(replace(placement, blocks=blocks)))
    assert "There is nothing to show: the placement has storage 99999" in panel.told.value
    assert panel.plot.layout.display == "none" and panel.offset.layout.visibility == "hidden"


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


def test_where_no_schedule_fits_the_plain_step_is_shown_and_said_to_be_that(trained: Trained) -> None:
    panel: Any = shown(trained.profile, keep_all(trained.profile.graph))
    assert "plain step" not in panel.told.value
    plain = simulate(trained.profile, keep_all(trained.profile.graph))
    none = Solution(Status.INFEASIBLE, 1024)
    for solution, said in ((none, "No schedule fits this budget"), (None, "No schedule is known for this budget")):
        show(panel, Scene(trained.profile, plain, TradeOff(plain, ()), solution=solution))
        assert panel.told.value.startswith(f"<p>{said}: this is the plain step. One buffer of ")


def test_an_address_that_is_typed_is_that_and_one_that_is_dragged_to_is_an_edge_nearby(trained: Trained) -> None:
    panel: Any = shown(trained.profile, keep_all(trained.profile.graph))
    planned = panel._shown
    own = max((x for x in planned.rectangles if x.layer), key=lambda x: x.bytes)
    assert panel.offset.layout.visibility == "hidden", "nothing is chosen, so there is no address"
    panel._pick((own.block, ""))
    assert panel.offset.layout.visibility is None
    unit, _ = unit_of(planned.buffer_bytes)
    beside = planned.near(own.block, at_bytes=planned.buffer_bytes / 2) + planned.buffer_bytes // 300
    for bytes_ in (4097, round(beside)):
        panel.offset.value = bytes_ / unit
        assert panel._shown.of(own.block)[0].offset_bytes == bytes_
    panel._undo()
    panel._drag((planned.buffer_bytes // 300 - own.offset_bytes) / unit)
    assert panel._shown.of(own.block)[0].offset_bytes == 0
    panel._pick((own.block, ""))
    assert panel.offset.layout.visibility == "hidden"


def test_whose_workspace_is_in_the_way_is_told(trained: Trained) -> None:
    costs = {x: replace(y, workspace_bytes=2**20) for x, y in trained.profile.costs.items()}
    profile = replace(trained.profile, costs=costs)
    panel: Any = shown(profile, keep_all(profile.graph))
    planned = panel._shown
    space = next(x for x in planned.rectangles if x.category is Category.WORKSPACE)
    own = next(x for x in planned.rectangles if x.block != space.block and x.meets(space))
    panel._pick((own.block, ""))
    panel._move(space.offset_bytes)
    user = profile.graph.operators[simulate(profile, keep_all(profile.graph)).operators[space.first]]
    assert f"workspace of {user.name} (1" in panel.told.value


def test_how_many_rectangles_are_too_small_to_be_drawn_is_told(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel: Any = shown(trained.profile, keep_all(trained.profile.graph))
    many = len(panel._shown.rectangles)
    assert "not drawn" not in panel.told.value
    monkeypatch.setattr("widgets.panels.addresses.MOST_DRAWN", many - 3)
    panel._redraw()
    assert f"The 3 smallest of {many:,} rectangles are not drawn." in panel.told.value
