"""What is taken away: files, pictures, programs that run."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import explorer
from explorer import model_source
from explorer.simulation import simulate
from tests.widgets.checking import panel_of
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.panels.compare import ComparePanel
from widgets.panels.explain import ExplainPanel
from widgets.panels.export import ExportPanel
from widgets.snippet import snippet


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
    for key in keys:
        panel.save(key)
        # Of a profile alone no file with the model's own calls can be made.
        assert ("there is no model to run" in panel.said.value) is (key == "step")
    keys.remove("step")
    assert len(saved.messages) == len(keys) == len({message["name"] for message in saved.messages})
    drawn = [json.loads(message["figure"]) for message in saved.messages if "figure" in message]
    assert all(figure["data"] for figure in drawn)


def test_the_step_is_written_as_a_file_that_trains_without_this_package(
    trained: Trained, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with explorer.explore(trained.model, trained.batch, loss=trained.loss, panels=["export"]) as opened:
        opened.wait(120)
        panel = panel_of(opened, "export")
        assert isinstance(panel, ExportPanel)
        saved = Saved(panel, monkeypatch)
        panel.save("step")
        opened.wait(120)
        assert panel.said.value == ""
        (message,) = saved.messages
        assert opened.message.startswith("Wrote the step")
    assert message["name"].endswith("-step.py")
    assert not re.search(r"^(from|import) explorer", message["content"], re.MULTILINE)
    (folder / "step.py").write_text(message["content"])
    made = runpy.run_path(str(folder / "step.py"))
    step = made["scheduled"](trained.model)
    images, classes = trained.batch
    loss = step(images, classes)
    assert torch.equal(loss, trained.loss(trained.model(images), classes))
    loss.backward()
    assert all(x.grad is not None for x in trained.model.parameters())
    trained.model.zero_grad()


def test_the_trace_has_every_run_and_its_memory(tight: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    panel = panel_of(tight, "export")
    assert isinstance(panel, ExportPanel)
    saved = Saved(panel, monkeypatch)
    panel.save("trace")
    events = json.loads(saved.messages[0]["content"])["traceEvents"]
    assert tight._display.scene is not None
    line = tight._display.scene.drawn
    runs = [x for x in events if x["ph"] == "X"]
    assert [x["args"]["memory"] for x in runs] == line.total_bytes.tolist()
    assert sum(x["dur"] for x in runs) == pytest.approx(1000 * line.time_ms)
    assert [x["tid"] == 2 for x in runs] == [x.value == "recompute" for x in line.stages]
    counters = [x for x in events if x["ph"] == "C"]
    assert [sum(x["args"].values()) for x in counters] == line.total_bytes.tolist()


def test_the_animation_needs_nothing_else(tight: Explorer) -> None:
    page = tight.animation()
    assert not re.search(r"<(script|img|link|iframe)[^>]+(src|href)=", page)
    assert not re.search(r"\b(import|fetch)\b *\(", page)
    assert "</script" not in json.dumps(tight._view.panels["timeline"].plot.step)  # type: ignore[attr-defined]
    assert len(page) < 2_000_000


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


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("resnet50", {"image_size": 64}),
        ("mobilenet_v2", {"image_size": 64}),
        ("googlenet", {"image_size": 64}),
        ("unet", {"image_size": (64, 64)}),
        ("gpt2", {"sequence_length": 16}),  # of which parameters are nearly all: at its peak
    ],
)
def test_the_program_for_a_bundled_model_runs_as_it_is(
    name: str, sizes: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a small batch: what it is at full size needs another device."""
    model, batch, loss = model_source.bundled(name, batch_size=2, **sizes)
    profile = explorer.profile(model, batch, loss=loss)
    peak = simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    # Bit-exact: what else there is may fall back, with a warning, as the weights of such a short training come out.
    solution = explorer.solve(profile, budget=peak if name == "gpt2" else int(0.98 * peak), steps=1, exact=True)
    assert solution.schedule is not None
    solution.schedule.save(folder / "bundled.json")
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="bundled.json", bundled=name))
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
    with pytest.raises(ValueError, match="no schedule"):
        opened.animation()
    comparing = panel_of(opened, "compare")
    assert isinstance(comparing, ComparePanel)
    assert comparing.hold.disabled
