"""A schedule held as reference, and the next ones against it."""

from __future__ import annotations

import json

from explorer.simulation import simulate
from tests.widgets.checking import panel_of
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.panels.compare import ComparePanel
from widgets.panels.timeline import TimelinePanel
from widgets.scene.compare import Held, changes, differences


def test_the_next_schedule_stands_against_the_reference(tight: Explorer, trained: Trained) -> None:
    panel = panel_of(tight, "compare")
    assert isinstance(panel, ComparePanel)
    panel.hold.click()
    assert tight._display.scene is not None
    before = tight._display.scene.reference
    assert before is not None
    panel_of(tight, "compare")
    assert panel.changed.rows == []
    assert panel.changed.layout.display == "none"
    assert "every tensor alike" in panel.said.value
    tight.budget_bytes = tight._display.scene.keep_all.peak_bytes if tight._display.scene else None
    tight.wait(60)
    panel_of(tight, "compare")
    assert tight._display.scene.reference is before
    assert tight.schedule is not None
    line = simulate(trained.profile, tight.schedule)
    other = Held.of(trained.profile, "now", tight.schedule, line)
    assert len(panel.changed.rows) == len(changes(before, other)) > 0
    assert [row["cells"][0] for row in panel.figures.rows][:2] == ["peak memory", "step time"]
    assert next(iter(differences(before, other)))[3].startswith("+")
    layers = {row["key"] for row in panel.changed.rows} - {""}
    assert layers <= {x.layer for x in trained.profile.graph.operators}
    layer = min(layers)
    panel.changed._handle_custom_msg({"picked": layer}, [])
    assert tight.selection == layer
    panel_of(tight, "compare")
    assert layer in panel.changed.selected
    tight.selection = ""
    timeline = panel_of(tight, "timeline")
    assert isinstance(timeline, TimelinePanel)
    drawn = json.loads(timeline.plot.step)
    assert drawn["ghost"]["label"] == "reference"
    assert drawn["ghost"]["step"]["peak"] == [before.timeline.peak_run, before.timeline.peak_bytes]
    assert drawn["step"]["peak"] == [line.peak_run, line.peak_bytes]
    panel.drop.click()
    assert tight._display.scene.reference is None
    assert json.loads(timeline.plot.step)["ghost"] is None


def test_without_a_schedule_there_is_nothing_to_hold(opened: Explorer) -> None:
    opened.budget_bytes = 1000
    opened.wait(60)
    opened.hold()
    assert opened._display.scene is not None
    assert opened._display.scene.reference is None
    assert "no schedule to hold" in opened.message
