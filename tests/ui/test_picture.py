"""The picture of the step in a real JupyterLab: walked through, led by a hand, in every width, and taken away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.ui.lab import Lab, complaints, fresh_page
from tests.ui.reading import clipped, covered
from tests.ui.test_explore import LONG, SOLVED, opening, write_notebook
from tests.ui.test_panels import Panels
from tests.widgets.trained import Trained

pytestmark = pytest.mark.ui

_WIDTHS = (800, 1024, 1280, 1440, 1920)


@pytest.fixture(scope="module")
def seen(lab: Lab, context: BrowserContext, trained: Trained) -> Iterator[tuple[Page, list[str]]]:
    """A page with an explorer at half of its range, its curve known; and what it complained about."""
    trained.profile.save(lab.root / "picture.json")
    write_notebook(lab, "picture.ipynb", opening("picture.json") + "view")
    with fresh_page(context) as page:
        page.set_viewport_size({"width": 1440, "height": 900})
        errors = complaints(page)
        lab.open(page, "picture.ipynb")
        lab.run_all(page)
        expect(Panels(page).status).to_have_text(SOLVED, timeout=LONG)
        lab.ask(page, "view.wait(240)")
        yield page, errors


@pytest.fixture
def page(seen: tuple[Page, list[str]]) -> Page:
    return seen[0]


@pytest.fixture
def panels(page: Page) -> Panels:
    return Panels(page)


@pytest.fixture(autouse=True)
def _quiet(seen: tuple[Page, list[str]]) -> Iterator[None]:
    """No test here may make the page complain."""
    yield
    assert seen[1] == []


def test_the_first_screen_has_budget_answer_timeline_and_curve(page: Page, panels: Panels, shots: Path) -> None:
    """At 1440 by 900, without scrolling."""
    page.screenshot(path=shots / "first-screen.png")
    for shown in (
        panels.slider,
        panels.box.locator(".schedule-explorer-headline .big"),
        panels.plot("timeline").locator("svg.step"),
        panels.plot("trade_off").locator("svg.curve"),
        panels.button("Walk through the step"),
    ):
        box = shown.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 900 - 24, "above JupyterLab's status bar"
    expect(panels.box.locator(".schedule-explorer-headline")).to_contain_text(
        re.compile(r"^−\d+ % memory for .*\d % time.*(proven|nothing proven)")
    )
    expect(panels.plot("timeline").locator("path.outline")).to_have_count(1)
    assert "plain PyTorch" in panels.plot("timeline").inner_text()


def test_a_walk_tells_what_comes_and_goes(lab: Lab, page: Page, panels: Panels, shots: Path) -> None:
    card = panels.box.locator(".schedule-explorer-walk .card")
    expect(card).to_be_hidden()
    panels.button("Walk through the step").click()
    expect(panels.box.locator(".where")).to_contain_text(re.compile(r"run ([3-9]|\d\d) of"))
    panels.button("Pause the walk").click()
    expect(card).to_contain_text("appears")
    panels.plot("timeline").locator("svg.step").focus()
    page.keyboard.press("Home")
    runs = int(lab.ask(page, "len(view._display.scene.drawn.operators)"))
    again = [i for i in range(runs) if lab.ask(page, f"view._display.scene.drawn.stages[{i}].value") == "recompute"]
    assert again, "at this budget something is computed again"
    for _ in range(again[0]):
        page.keyboard.press("ArrowRight")
    expect(panels.box.locator(".where")).to_contain_text(f"run {again[0] + 1} of {runs}")
    expect(card).to_contain_text(re.compile(r"recomputes \S+.* for \S+.*: kept would have been .*, made again .* ms"))
    expect(card).to_contain_text("returns")
    panels.box.screenshot(path=shots / "walk.png")
    page.keyboard.press("Shift+ArrowRight")
    expect(card).to_contain_text("alive all along")
    lab.ask_until(page, "view.selected_runs", f"({again[0]}, {again[0] + 1})")
    for _ in range(3):  # past where it was begun
        page.keyboard.press("Shift+ArrowLeft")
    lab.ask_until(page, "view.selected_runs", f"({again[0] - 2}, {again[0]})")
    page.keyboard.press("Shift+ArrowRight")
    lab.ask_until(page, "view.selected_runs", f"({again[0] - 1}, {again[0]})")
    panels.box.get_by_label("Axis of the timeline").select_option("by time")
    expect(panels.plot("timeline")).to_contain_text(re.compile(r"\d % time"))
    panels.box.get_by_label("Axis of the timeline").select_option("by operator")
    panels.plot("timeline").locator("svg.step").focus()
    page.keyboard.press("Escape")
    expect(card).to_be_hidden()


def test_while_the_slider_moves_what_is_known_is_shown(page: Page, panels: Panels, shots: Path) -> None:
    headline, before = panels.box.locator(".schedule-explorer-headline"), panels.areas()
    said, figures = panels.status.inner_text(), panels.figures.inner_text()
    box = panels.slider.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2, steps=5)
    expect(headline).to_contain_text("nearest schedule known")
    page.wait_for_function("() => document.querySelector('svg.step .bands.stale')")
    assert panels.areas() != before
    assert panels.box.locator("path.diamond.known").count() == 1
    # Nothing was asked yet.
    assert (panels.status.inner_text(), panels.figures.inner_text()) == (said, figures)
    panels.box.screenshot(path=shots / "moving.png")
    page.mouse.up()
    expect(headline).not_to_contain_text("nearest schedule known", timeout=LONG)
    expect(panels.status).not_to_have_text(said)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)
    expect(panels.box.locator("path.diamond.known")).to_have_count(0)


@pytest.mark.parametrize("what", ["svg.step line.budget", "svg.curve path.diamond"])
def test_budget_line_and_diamond_are_dragged(page: Page, panels: Panels, what: str) -> None:
    before = panels.readout.input_value()
    mark = panels.box.locator(what)
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    assert box is not None
    x, y = box["x"] + min(60, box["width"] / 2), box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 12, steps=4)
    expect(panels.box.locator(".schedule-explorer-headline")).to_contain_text("known")
    page.mouse.up()
    expect(panels.readout).not_to_have_value(before)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)
    budget = panels.box.locator("svg.step line.budget").get_attribute("y1")
    assert budget == panels.box.locator("svg.curve line.budget").get_attribute("y1"), "one axis for both"


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_nothing_is_clipped_or_covered_in_any_width(page: Page, panels: Panels, shots: Path, theme: str) -> None:
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    for width in _WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(
            "() => new Promise((go) => requestAnimationFrame(() => setTimeout(() => go(true), 300)))"
        )
        panels.box.screenshot(path=shots / f"width-{width}-{'dark' if 'Dark' in theme else 'light'}.png")
        assert clipped(panels.box) == [], width
        assert covered(panels.box.locator("svg.step")) == [], width
        assert covered(panels.box.locator("svg.curve")) == [], width
    page.set_viewport_size({"width": 1440, "height": 900})


def test_the_animation_plays_without_a_kernel_and_without_a_network(
    page: Page, panels: Panels, context: BrowserContext, shots: Path, tmp_path: Path
) -> None:
    panels.tab("Export")
    with page.expect_download(timeout=LONG) as download:
        panels.button("Save a page that walks through the step by itself").click()
    download.value.save_as(tmp_path / "walk.html")
    alone, asked = context.new_page(), list[str]()
    errors = complaints(alone)
    alone.on("request", lambda request: asked.append(request.url))
    alone.goto((tmp_path / "walk.html").as_uri())
    expect(alone.locator(".where")).to_contain_text(re.compile(r"run ([3-9]|\d\d) of"))
    expect(alone.locator("path.area").first).to_be_attached()
    alone.screenshot(path=shots / "animation.png")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert errors == []
    alone.close()
