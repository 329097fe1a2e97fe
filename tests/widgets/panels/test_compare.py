"""A schedule held as reference, and the next ones against it."""

from __future__ import annotations

import threading

import pytest

from explorer.simulation import simulate
from tests.widgets.checking import checked, panel_of
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.panels.compare import ComparePanel
from widgets.plots.compare_plot import compare_figure
from widgets.scene.compare import Held, changes, differences


def test_a_reference_is_not_forgotten_amid_a_comparison(tight: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of(tight, "compare")
    assert isinstance(panel, ComparePanel)
    panel.hold_now()
    forgetting = threading.Thread(target=panel.forget)

    def interrupted(*held: Held) -> object:
        forgetting.start()
        forgetting.join(0.2)
        return differences(*held)

    monkeypatch.setattr("widgets.panels.compare.differences", interrupted)
    assert tight._display.scene is not None
    panel.show(tight._display.scene)
    forgetting.join(10)
    assert panel.reference is None


def test_the_next_schedule_stands_against_the_reference(tight: Explorer, trained: Trained) -> None:
    panel = panel_of(tight, "compare")
    assert isinstance(panel, ComparePanel)
    panel.hold.click()
    assert panel.reference is not None
    before = panel.reference
    assert panel.changed.rows == []
    assert panel.changed.layout.display == "none"
    assert "every tensor alike" in panel.said.value
    tight.budget_bytes = tight._display.scene.keep_all.peak_bytes if tight._display.scene else None
    tight.wait(60)
    panel_of(tight, "compare")
    assert panel.reference is before
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
    figure = checked(compare_figure(before, other))
    assert [max(trace.y) * 2**30 for trace in figure.data] == [before.timeline.peak_bytes, line.peak_bytes]
    panel.drop.click()
    assert panel.reference is None
