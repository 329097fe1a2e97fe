"""The explorer as a page, served by Voila as ``make app`` does, and in JupyterLab: explain, pin, compare, export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

import explorer
from tests.ui.lab import REPOSITORY, Lab, complaints
from tests.ui.served import served
from tests.ui.test_explore import LONG, SOLVED, Widget, opening, write_notebook
from tests.widgets.trained import Trained

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server of the app."""
    with served(tmp_path_factory.mktemp("voila")) as server:
        yield server.url


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).first.click()


@pytest.mark.timeout(600)
def test_the_app_solves_compares_and_exports(app: str, context: BrowserContext, shots: Path, tmp_path: Path) -> None:
    page = context.new_page()
    found = complaints(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(app)
    widget = Widget(page)
    cancel_when_there_is_one(widget)
    expect(page.locator(".schedule-explorer-timeline[data-drawn]")).to_have_count(1, timeout=LONG)
    page.screenshot(path=shots / "app.png", full_page=True)
    # No code: a page for people who want the answer.
    assert page.get_by_text("import explorer").count() == 0
    # No network: the icons, too, come from here.
    assert [url for url in asked if not url.startswith((app, "data:", "blob:", app.replace("http", "ws")))] == []
    # The picture for where no widget is alive.
    expect(page.get_by_text("run this cell to explore on")).to_be_hidden()

    tab(page, "Compare")
    widget.button("Hold as reference").click()
    said = widget.status.inner_text()
    widget.slider.focus()
    for _ in range(10):
        widget.slider.press("ArrowRight")
    expect(widget.status).not_to_have_text(said)
    cancel_when_there_is_one(widget)
    expect(page.locator(".schedule-explorer-timeline .schedule-explorer-legend")).to_contain_text(
        "more than the reference", timeout=LONG
    )
    page.screenshot(path=shots / "app-compare.png", full_page=True)

    check_saved(page, widget, tmp_path)
    tab(page, "Export")
    with page.expect_download(timeout=LONG) as download:
        widget.button("Save a report that works without Python and without a network").click()
    report = tmp_path / "report.html"
    download.value.save_as(report)
    assert found == []
    check_report(context, report, shots)
    page.close()


@pytest.mark.timeout(600)
def test_visitors_choose_what_is_explored(
    app: str, context: BrowserContext, trained: Trained, shots: Path, tmp_path: Path
) -> None:
    page = context.new_page()
    page.goto(app)
    heading = page.locator(".schedule-explorer-heading")
    expect(heading).to_contain_text("ResNet", timeout=LONG)
    page.get_by_label("Model", exact=True).select_option("mobilenet_v2")
    page.get_by_label("Device", exact=True).select_option("a100-80gb")
    page.get_by_role("button", name="Explore", exact=True).click()
    expect(heading).to_contain_text("MobileNet", timeout=LONG)
    expect(page.locator(".schedule-explorer")).to_have_count(1)
    trained.profile.save(tmp_path / "own.json")
    upload(page, tmp_path / "own.json")
    expect(heading).to_contain_text("ConvNet", timeout=LONG)
    (tmp_path / "broken.json").write_text("{")
    upload(page, tmp_path / "broken.json")
    expect(page.get_by_role("alert")).to_be_visible(timeout=LONG)
    expect(heading).to_contain_text("ConvNet")
    page.screenshot(path=shots / "app-chosen.png", full_page=True)
    page.close()


def upload(page: Page, path: Path) -> None:
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Profile of yours").click()
    chooser.value.set_files(path)


def check_saved(page: Page, widget: Widget, folder: Path) -> None:
    """A visitor gets the schedule as a download, and can name no file of the server's."""
    assert page.get_by_placeholder(re.compile("json")).count() == 0
    before = files_of_the_server()
    with page.expect_download(timeout=LONG) as download:
        widget.button("Save schedule").click()
    download.value.save_as(folder / "saved.json")
    assert explorer.load_schedule(folder / "saved.json").identity.model == "ResNet"
    assert re.fullmatch(r"resnet50-small-cpu-[\d.]+mib\.json", download.value.suggested_filename.lower())
    assert files_of_the_server() == before


def files_of_the_server() -> set[Path]:
    """Where its kernels work."""
    return set((REPOSITORY / "notebooks").iterdir()) | set(REPOSITORY.iterdir())


def cancel_when_there_is_one(widget: Widget) -> None:
    """Nothing here is about how good a schedule is: the first will do."""
    expect(widget.status).to_have_text(re.compile("^(Solving|Solved|Optimal).* a step"), timeout=LONG)
    cancel = widget.button("Cancel").first
    if cancel.is_enabled():
        cancel.click()
    expect(widget.status).to_have_text(re.compile("^(Cancelled for .* stays|Solved|Optimal)"), timeout=LONG)


def check_report(context: BrowserContext, report: Path, shots: Path) -> None:
    """Opened as a file, without a network, it shows its plots."""
    page = context.new_page()
    found, asked = complaints(page), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    expect(page.locator(".plotly-graph-div .main-svg").first).to_be_visible(timeout=LONG)
    assert page.locator(".plotly-graph-div").count() >= 4
    page.screenshot(path=shots / "report.png", full_page=True)
    assert found == []
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()


@pytest.mark.timeout(600)
def test_explain_pin_and_export_in_jupyterlab(
    lab: Lab, page: Page, trained: Trained, shots: Path, tmp_path: Path
) -> None:
    trained.profile.save(lab.root / "tiny.json")
    write_notebook(lab, "take.ipynb", opening("tiny.json") + "view", "view")
    downloads: list[str] = []
    page.on("download", lambda download: downloads.append(download.suggested_filename))
    lab.open(page, "take.ipynb")
    lab.run_all(page)
    widget = Widget(page)
    expect(widget.status).to_have_text(SOLVED, timeout=LONG)
    expect(page.locator(".schedule-explorer")).to_have_count(2)

    tab(page, "Explain and pin")
    # There are other tables in sight, one of them folded.
    tensors = widget.box.locator(".schedule-explorer-table").filter(has_text="making it again")
    rows = tensors.locator("tbody tr button")
    name = rows.nth(1).inner_text()
    rows.nth(1).press("Enter")
    expect(widget.box.get_by_text(f"'{name}' (")).to_be_visible()
    widget.box.get_by_label("Tensor", exact=True).select_option(label="recompute it")
    expect(widget.button("Pin and solve")).to_be_enabled()
    widget.button("Pin and solve").press("Enter")
    check_pinned(lab, page, widget, name)
    # The pin is listed before the status line leaves the answer of the solve before.
    lab.ask_until(page, "view.choice.pins.broken_by(view._display.scene.profile.graph, view.schedule)", "()")
    expect(widget.status).to_have_text(SOLVED, timeout=LONG)
    page.screenshot(path=shots / "explain-and-pin.png")

    tab(page, "Export")
    for label in (
        "Save the schedule as JSON",
        "Save the Python program that trains with the schedule",
        "Save the plot Timeline as PNG",
        "Save the plot Trade-off as SVG",
    ):
        expect(widget.button(label)).to_be_enabled()
        with page.expect_download(timeout=LONG) as download:
            widget.button(label).press("Enter")
        download.value.save_as(tmp_path / download.value.suggested_filename)
    page.screenshot(path=shots / "export.png")
    page.wait_for_timeout(500)  # in which the other view would save them, too
    assert len(downloads) == 4
    saved = {path.suffix: path for path in tmp_path.iterdir()}
    assert saved.keys() == {".json", ".py", ".png", ".svg"}
    assert json.loads(saved[".json"].read_text())["kind"] == "Schedule"
    assert explorer.load_schedule(saved[".json"]).identity == trained.profile.graph.identity
    assert saved[".png"].read_bytes().startswith(b"\x89PNG")
    assert saved[".svg"].read_text().startswith("<svg")
    compile(saved[".py"].read_text(), "program", "exec")


def check_pinned(lab: Lab, page: Page, widget: Widget, tensor: str) -> None:
    """The panel lists the pin; else say how far it came, which the page alone does not show."""
    try:
        expect(widget.box.get_by_text(f"{tensor}: recompute")).to_be_visible()
    except AssertionError:
        panel = "view._view.panels['explain']"
        asked = (f"{panel}._chosen", f"{panel}.stay.value", "view.choice.pins", "view.message")
        told = {expression: lab.ask(page, expression) for expression in asked}
        focus = page.evaluate("() => document.activeElement?.outerHTML.slice(0, 200)")
        raise AssertionError(f"{tensor} is not pinned: {told}; the focus is on {focus}") from None
