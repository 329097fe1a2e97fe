"""What becomes of tensors, and pins, without a browser."""

from __future__ import annotations

from dataclasses import replace

import pytest

from explorer.analysis.explaining import Fate
from explorer.solvers.problem.pins import parse_pins
from tests.widgets.checking import panel_of
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.panels.compare import ComparePanel
from widgets.panels.explain import ExplainPanel


def test_tensors_are_listed_and_explained(tight: Explorer, trained: Trained) -> None:
    panel = panel_of(tight, "explain")
    assert isinstance(panel, ExplainPanel)
    assert "memory is worth" in panel.price.value
    name = panel.table.rows[0]["key"]
    panel.choose(name)
    assert name in panel.told.value
    tight.selection = "blocks.1"
    panel = panel_of(tight, "explain")
    assert isinstance(panel, ExplainPanel)
    assert "blocks.1" in panel.table.title
    assert {row["cells"][1].split(".")[0] for row in panel.table.rows} == {"blocks"}
    tight.selection = ""
    assert trained.profile is not None


def test_a_pin_in_the_panel_solves_again_and_is_honoured(tight: Explorer, trained: Trained) -> None:
    panel = panel_of(tight, "explain")
    assert isinstance(panel, ExplainPanel)
    kept = next(x for x in panel._found.values() if x.fate is Fate.KEPT and x.recomputation is not None)
    panel.choose(kept.storage.name)
    assert panel.apply.disabled  # nothing is chosen that is not so already
    panel.stay.value = "recompute"
    assert not panel.apply.disabled
    panel.apply.click()
    tight.wait(60)
    assert panel.apply.disabled
    pins = parse_pins({kept.storage.name: "recompute"})
    assert tight.choice.pins == pins
    assert tight.schedule is not None
    assert pins.broken_by(trained.profile.graph, tight.schedule) == ()
    assert [kept.storage.name, "recompute"] in tight._view.controls.pins.items
    panel.clear.click()
    tight.wait(60)
    assert not tight.choice.pins


def test_a_pin_that_cannot_be_is_refused_in_the_status_line(tight: Explorer) -> None:
    before = tight.choice
    tight.pin({"nothing": "keep"})
    assert "no tensor 'nothing'" in tight.message
    assert tight.choice == before
    with pytest.raises(ValueError, match="no operator"):
        tight.configure(pins={"nothing": "aten"})


def test_what_is_begun_outlives_a_better_schedule(tight: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of(tight, "explain")
    assert isinstance(panel, ExplainPanel)
    scene = tight._display.scene
    assert scene is not None
    # The last of those offered that has something to choose from.
    operators = {x.name: x for x in scene.profile.graph.operators}
    name = [x for x in panel.operator.options if len(operators[x].implementations) > 1][-1]
    panel.operator.value = name
    panel.implementation.value = operators[name].implementations[-1].name
    offered = panel.operator.options
    other = next(x.id for x in scene.profile.graph.operators if x.name not in offered)
    found = {key: replace(x, readers=(*x.readers, other)) for key, x in panel._found.items()}
    monkeypatch.setattr("widgets.panels.explain.explain_all", lambda *_: tuple(found.values()))
    panel._explained = None
    panel.show(scene)
    assert panel.operator.options != offered
    assert panel.operator.value == name
    assert panel.implementation.value == operators[name].implementations[-1].name


def test_a_budget_that_nothing_fits_leaves_nothing_of_the_schedule_before(tight: Explorer) -> None:
    explaining, comparing = panel_of(tight, "explain"), panel_of(tight, "compare")
    assert isinstance(explaining, ExplainPanel)
    assert isinstance(comparing, ComparePanel)
    tight.hold()
    assert explaining.table.rows
    explaining.stay.value = "keep"
    assert not explaining.apply.disabled
    budget_bytes, tight.budget_bytes = tight.budget_bytes, 1000
    tight.wait(60)
    panel_of(tight, "explain")
    panel_of(tight, "compare")
    explaining.choose("nothing")
    assert explaining.table.rows == []
    assert explaining.price.value == ""
    assert explaining.apply.disabled
    assert "no schedule to explain for this budget" in explaining.told.value
    assert comparing._below.layout.display == "none"
    assert "Reference" in comparing.said.value
    assert "no schedule for the present budget" in comparing.said.value
    tight.budget_bytes = budget_bytes
    tight.wait(60)
    panel_of(tight, "explain")
    panel_of(tight, "compare")
    assert explaining.table.rows
    explaining.stay.value = "keep"
    assert not explaining.apply.disabled
    explaining.stay.value = ""
    assert comparing._below.layout.display == ""
    tight.release()
