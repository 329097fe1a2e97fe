"""Hostile names through every way out; ``tests.attack.names`` draws more of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ipywidgets
import pytest

import explorer
from explorer import harmless
from tests.attack import names
from tests.attack.holding import CONTROL, check_figure, check_html
from widgets import Explorer
from widgets.background import KINDS
from widgets.elements.plot import Plot
from widgets.panels.explain import ExplainPanel
from widgets.panels.export import ExportPanel
from widgets.view import _all

_DRAWN = 30
_PATIENCE_S = 120
_WORST = "[/x]<!--<script>\x1b]0;t\x07\ud800\u202e\"'\n%{x}<img src=x onerror=run()>"


@pytest.mark.parametrize("way", names.WAYS)
def test_names_are_harmless_on_every_way_out(way: str) -> None:
    for seed in range(_DRAWN):
        assert names.WAYS[way](random.Random(f"{way} {seed}")).partition(":")[0] in {"held", "refused"}


def test_an_attack_is_counted_by_its_seed() -> None:
    assert names.attack(1) == names.attack(1)


_PLOTS = 4


@pytest.fixture(scope="module", params=[3, 8])
def opened(request: pytest.FixtureRequest) -> Iterator[Explorer]:
    """An explorer of a hostile profile, every panel of which was drawn."""
    profile = names.hostile_profile(random.Random(request.param))
    with explorer.explore(profile, budget="100 %", time_limit=0.5) as made:
        _solved(made)
        tabs = made._view._tabs
        for index in range(len(tabs.children)):
            tabs.selected_index = index
        explain = made._view.panels["explain"]
        assert isinstance(explain, ExplainPanel)
        made.pin({profile.graph.operators[0].name: profile.graph.operators[0].implementations[0].name})
        _solved(made)
        deadline = time.monotonic() + _PATIENCE_S
        while len(_plots(made)) <= _PLOTS:  # panels draw one after the other
            assert time.monotonic() < deadline, made.message
            time.sleep(0.05)
        yield made


def _solved(made: Explorer) -> None:
    """Not ``wait``: the curve of the trade-off is not needed."""
    deadline = time.monotonic() + _PATIENCE_S
    while made.solution is None or made.status in KINDS:
        assert time.monotonic() < deadline, made.message
        time.sleep(0.05)


def _plots(made: Explorer) -> list[str]:
    return [x.figure for x in _all(made._view.box) if isinstance(x, Plot) and x.figure]


def test_the_widget_shows_names_as_text(opened: Explorer) -> None:
    shown = [x for x in _all(opened._view.box) if not isinstance(x, ipywidgets.Layout)]
    pages = [x.value for x in shown if isinstance(x, ipywidgets.HTML)]
    plots = _plots(opened)
    assert len(pages) > 5
    for page in pages:
        check_html(page, scripts=0)
    for figure in plots:
        check_figure(json.loads(figure))
    check_html(opened._pictured()["text/html"], scripts=0)


def test_a_file_of_the_widget_stays_where_it_belongs(
    opened: Explorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    export, named = opened._view.panels["export"], opened._view.controls.file_name
    assert isinstance(export, ExportPanel)
    assert named is not None
    export.save("<img src=x onerror=run()>.png")
    check_html(export.said.value, scripts=0)
    for payload in names.PAYLOADS:
        before = {path.name for path in tmp_path.parent.iterdir()}
        named.value = payload
        opened._save_clicked()
        assert opened.message.startswith(("Saved the schedule to", "Could not save the schedule")), payload
        assert "Traceback" not in opened.message
        assert {path.name for path in tmp_path.parent.iterdir()} == before
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or explorer.load_schedule(path)
    named.value = ""


@pytest.mark.parametrize("command", [["simulate", "BAD", "BAD"], ["BAD"], ["methods", "--BAD"], ["--BAD"]])
def test_a_terminal_is_not_steered(command: list[str], tmp_path: Path) -> None:
    """By a real process, whose arguments may be no text at all."""
    bad = os.fsencode(_WORST.replace("\ud800", "")) + b"\xff\xfe"
    arguments = [x.encode().replace(b"BAD", bad) for x in command]
    answer = subprocess.run(
        [sys.executable, "-c", "from explorer.command_line.commands import main; main()", *arguments],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    said = (answer.stdout + answer.stderr).decode()
    assert answer.returncode == 2, said
    assert "Traceback" not in said
    assert not CONTROL.search(said), said


def test_what_is_harmless_already_stays() -> None:
    for text in ("layer1.0.conv2", "名前", "x float32[8, 3]", "é"):
        assert harmless.in_html(text) == harmless.in_figure(text) == harmless.in_terminal(text) == text
        assert harmless.one_line(text) == text
    assert harmless.file_stem("resnet50-small-cpu") == "resnet50-small-cpu"


def test_a_long_name_is_cut_where_it_would_fill_the_page() -> None:
    assert len(harmless.in_figure("x" * 10_000)) == len(harmless.one_line("x" * 10_000)) == 200
