"""Explaining, pinning, comparing and taking away, without a browser."""

from __future__ import annotations

import json
import re
import runpy
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

import explorer
from explorer import model_source
from explorer.explaining import Fate
from explorer.simulation import simulate
from explorer.solvers.pins import parse_pins
from tests.widgets.checking import checked
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.panels.compare import ComparePanel
from widgets.panels.explain import ExplainPanel
from widgets.panels.export import ExportPanel
from widgets.plots.compare_plot import compare_figure
from widgets.scene.compare import Held, changes, differences
from widgets.snippet import snippet


@pytest.fixture
def tight(opened: Explorer) -> Explorer:
    """At a budget that needs recomputation."""
    assert opened._display.scene is not None
    low, high = opened._display.scene.known.instant[0].budget_bytes, opened._display.scene.keep_all.peak_bytes
    opened.budget_bytes = (low + high) // 2
    return opened.wait(60)


def panel_of(explorer_: Explorer, name: str) -> object:
    panel = explorer_._view.panels[name]
    assert explorer_._display.scene is not None
    panel.show(explorer_._display.scene)
    return panel


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
    assert kept.storage.name in panel.pins.value
    panel.clear.click()
    tight.wait(60)
    assert not tight.choice.pins


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


def test_a_pin_that_cannot_be_is_refused_in_the_status_line(tight: Explorer) -> None:
    before = tight.choice
    tight.pin({"nothing": "keep"})
    assert "no tensor 'nothing'" in tight.message
    assert tight.choice == before
    with pytest.raises(ValueError, match="no operator"):
        tight.configure(pins={"nothing": "aten"})


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


class Saved:
    """What an export panel sends to the page."""

    def __init__(self, panel: ExportPanel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[dict[str, str]] = []
        monkeypatch.setattr(panel.downloads, "send", self.messages.append)


def test_every_button_saves_something(tight: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of(tight, "export")
    assert isinstance(panel, ExportPanel)
    assert not panel.downloads.disabled
    saved = Saved(panel, monkeypatch)
    keys = [button["key"] for group in panel.downloads.groups for button in group["buttons"]]
    panel.save("compare.png")
    assert "hold a schedule as reference first" in panel.said.value
    compare = panel_of(tight, "compare")
    assert isinstance(compare, ComparePanel)
    compare.hold_now()
    for key in keys:
        panel.save(key)
    assert panel.said.value == ""
    assert len(saved.messages) == len(keys) == len({message["name"] for message in saved.messages})
    drawn = [json.loads(message["figure"]) for message in saved.messages if "figure" in message]
    assert all(figure["data"] for figure in drawn)
    compare.forget()


def test_only_the_view_that_asked_saves(tight: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of(tight, "export")
    assert isinstance(panel, ExportPanel)
    saved = Saved(panel, monkeypatch)
    for key, view in (("program", "0.1"), ("timeline.svg", "0.2")):
        panel.downloads._handle_custom_msg({"wanted": key, "view": view}, [])
    assert [message["view"] for message in saved.messages] == ["0.1", "0.2"]


def test_the_saved_schedule_is_the_one_shown(tight: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of(tight, "export")
    assert isinstance(panel, ExportPanel)
    saved = Saved(panel, monkeypatch)
    panel.save("schedule")
    path = tmp_path / saved.messages[0]["name"]
    path.write_text(saved.messages[0]["content"])
    assert explorer.load_schedule(path) == tight.schedule


def test_the_program_trains(
    tight: Explorer, trained: Trained, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    panel = panel_of(tight, "export")
    assert isinstance(panel, ExportPanel)
    saved = Saved(panel, monkeypatch)
    for key in ("schedule", "program"):
        panel.save(key)
        (folder / saved.messages[-1]["name"]).write_text(saved.messages[-1]["content"])
    # The only thing to fill in: where the model comes from.
    own = ModuleType("your_module")
    own.__dict__.update(make_model=lambda: trained.model, make_batch=lambda: trained.batch)
    monkeypatch.setitem(sys.modules, "your_module", own)
    program = next(folder.glob("*.py"))
    program.write_text(
        program.read_text().replace("loss = None", "from torch.nn import functional as F\n\nloss = F.cross_entropy")
    )
    runpy.run_path(str(program))
    printed = capsys.readouterr().out
    losses = re.findall(r"^\d+ (\d+\.\d+)$", printed, re.MULTILINE)
    assert len(losses) == 3
    assert f"predicted are {tight.predicted_peak}" in printed


def test_the_program_for_a_bundled_model_runs_as_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, batch, loss = model_source.bundled("resnet50", batch_size=2, image_size=64)
    profile = explorer.profile(model, batch, loss=loss)
    peak = simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    # Bit-exact: what else there is may fall back, with a warning, as the weights of such a short training come out.
    solution = explorer.solve(profile, budget=int(0.98 * peak), steps=1, exact=True)
    assert solution.schedule is not None
    solution.schedule.save(folder / "resnet50.json")
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="resnet50.json", bundled="resnet50"))
    runpy.run_path(str(program))
    assert f"predicted are {solution.peak_bytes}" in capsys.readouterr().out


def test_the_report_needs_nothing_else(tight: Explorer) -> None:
    page = tight.to_html()
    assert page.count('class="plotly-graph-div"') >= 4
    # Nothing is fetched: scripts are inside, and there are no images, styles or fonts from elsewhere.
    assert not re.search(r"<(script|img|link|iframe)[^>]+(src|href)=", page.split("</head>")[1])
    assert not re.search(r"<(script|link)[^>]+(src|href)=", page.split("<body>")[0][:2000])
    content = re.search(r"<script type='application/json' id='schedule'>(.*?)</script>", page, re.DOTALL)
    assert content is not None
    assert json.loads(content[1])["kind"] == "Schedule"


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
    comparing.hold_now()
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
    comparing.forget()


def test_without_a_schedule_there_is_nothing_to_take(opened: Explorer) -> None:
    opened.budget_bytes = 1000
    opened.wait(60)
    panel = panel_of(opened, "export")
    assert isinstance(panel, ExportPanel)
    assert panel.downloads.disabled
    panel.save("schedule")
    assert "no schedule yet" in panel.said.value
    with pytest.raises(ValueError, match="no schedule"):
        opened.to_html()
    explaining = panel_of(opened, "explain")
    assert isinstance(explaining, ExplainPanel)
    comparing = panel_of(opened, "compare")
    assert isinstance(comparing, ComparePanel)
    assert comparing.hold.disabled
