"""The site names every page, its reference every public name, and its check finds links that lead nowhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest

import explorer

ROOT = Path(__file__).parents[1]
SITE = ROOT / "docs" / "site"
INDEX = (SITE / "index.md").read_text(encoding="utf-8")


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The scripts of the site, which are no package."""
    monkeypatch.syspath_prepend(str(SITE))
    names = ("links", "executing", "build")
    try:
        return {x: __import__(x) for x in names}
    finally:
        for x in names:
            sys.modules.pop(x, None)


def test_every_page_is_named():
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "notebooks").rglob("*.ipynb")]
    named = set(re.findall(r"^(?:[\w ]+<)?([\w./-]+\.(?:md|ipynb))>?$", INDEX, re.MULTILINE))
    assert {str(x.relative_to(ROOT)) for x in pages} <= named
    assert all((ROOT / x).exists() for x in named - {"api/index.md"})


def test_the_reference_has_every_public_name(modules: dict[str, ModuleType]):
    named = [x for names in modules["build"].SECTIONS.values() for x in names]
    assert sorted(named) == sorted(explorer.__all__)


def test_links_that_lead_nowhere_are_found(modules: dict[str, ModuleType], tmp_path: Path):
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">x</a><a href="#here">y</a><img src="c.png">')
    (tmp_path / "b.html").write_text('<p id="elsewhere"><a href="https://example.org/x">x</a><a href="a.html">y</a>')
    assert modules["links"].broken(tmp_path) == [
        "a.html: b.html#there: there is no such place on that page",
        "a.html: c.png: there is no such file",
    ]


def test_outputs_need_neither_kernel_nor_network(modules: dict[str, ModuleType]):
    executing = modules["executing"]
    figure = {"data": [{"type": "scatter", "y": [1, 2]}], "layout": {}, "frames": [{"name": "0", "data": []}]}
    drawn = nbformat.v4.new_output("display_data", {executing.FIGURE: figure, "text/plain": "Figure"})
    shown = executing._still(drawn).data
    assert executing.FIGURE not in shown
    drawing = re.findall(r"<script[^>]*>(.*?)</script>", shown["text/html"], re.DOTALL)[-1]
    assert drawing.startswith("document.addEventListener(")
    assert "Plotly.newPlot" in drawing
    assert "addFrames" in shown["text/html"]
    assert not re.search(r"<script[^>]+src=", shown["text/html"])
    widget = nbformat.v4.new_output("display_data", {executing.WIDGET: {"model_id": "1"}, "text/plain": "GameView()"})
    assert "run it to play" in executing._still(widget).data["text/html"]
