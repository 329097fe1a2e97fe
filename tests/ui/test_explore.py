"""What a person does with the widget: look, move the budget, run, save, reload the page, break the solver."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.ui.lab import REPOSITORY, Lab, complaints, fresh_page
from tests.widgets.trained import Trained
from widgets import style

pytestmark = pytest.mark.ui

SOLVED = re.compile(r"^(Optimal|Solved) for")
SEARCHED_ONCE = "from explorer.solvers import curves\n\ncurves._CURVE_EFFORTS = curves._CURVE_EFFORTS[:1]\n"
LONG = 240_000  # solvers leave the processor to whatever else runs
_STOP_WORKERS = """
def stop(start=view._work.answers.solver._session._worker_now, **how):
    import os, signal
    worker = start(**how)
    os.kill(worker.process.pid, signal.SIGSTOP)
    return worker
view._work.answers.solver._session._worker_now = stop
"""
"""For the kernel: it stops every worker that it starts, at once."""


class Widget:
    """One explorer on a page."""

    def __init__(self, page: Page, index: int = 0) -> None:
        self.box = page.locator(".schedule-explorer").nth(index)
        self.status = self.box.locator(".schedule-explorer-status").get_by_role("status")
        self.slider = self.box.get_by_role("slider", name="Memory budget")
        self.readout = self.box.get_by_label(re.compile("^Memory budget in"))
        self.figures = self.box.locator("table.figures")

    def button(self, name: str) -> Locator:
        return self.box.get_by_role("button", name=name)

    def to_the_end(self) -> None:
        """The memory of plain PyTorch, and wait for the answer: no recomputation is needed then."""
        most_bytes = self.slider.get_attribute("max")
        if self.slider.input_value() == most_bytes:
            self.slider.press("ArrowLeft")  # no other answer would come
        self.slider.press("End")
        most = style.format_memory(int(most_bytes or 0))
        end = re.compile(rf"^(Optimal|Solved) for {re.escape(most)}.*(\+0\.0 % extra|% less) time")
        expect(self.status).to_have_text(end, timeout=LONG)

    def areas(self) -> list[str | None]:
        """Outlines of the stacked areas."""
        paths = self.box.locator(".schedule-explorer-timeline path.area:not([d=''])")
        return [path.get_attribute("d") for path in paths.all()]

    def diamond(self) -> str | None:
        """Where the trade-off plot has the current schedule."""
        return self.box.locator(".schedule-explorer-trade_off path.diamond").get_attribute("d")


def opening(profile: str) -> str:
    """Code that opens a profile. None of these tests is about how good answers are: solves and curves end at once."""
    return f"import explorer\n{SEARCHED_ONCE}view = explorer.explore({profile!r}, time_limit=0.2)\n"


def write_notebook(lab: Lab, name: str, *cells: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.root / name)


@pytest.fixture(scope="session")
def tiny(lab: Lab, trained: Trained) -> str:
    """A notebook that opens a small profile."""
    trained.profile.save(lab.root / "tiny.json")
    write_notebook(lab, "tiny.ipynb", opening("tiny.json") + "view")
    return "tiny.ipynb"


@pytest.fixture
def errors(page: Page) -> list[str]:
    """What the page complained about."""
    return complaints(page)


def write_newcomer(lab: Lab, cache: Path) -> None:
    """The notebook as it is, for someone who has a cache, in which a check of a step is remembered, and no patience."""
    notebook = nbformat.read(REPOSITORY / "notebooks" / "explore.ipynb", as_version=4)
    code = [x for x in notebook.cells if x.cell_type == "code"]
    assert "time_limit=5" in code[0].source
    code[0].source = code[0].source.replace("time_limit=5", "time_limit=0.2")
    before = f"import os\n\nos.environ['SCHEDULE_EXPLORER_CACHE'] = {str(cache)!r}\n{SEARCHED_ONCE}"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(before))
    nbformat.write(notebook, lab.root / "explore.ipynb")


@pytest.mark.timeout(600)
def test_the_notebook_for_a_newcomer(lab: Lab, page: Page, shots: Path, errors: list[str], tmp_path: Path) -> None:
    write_newcomer(lab, tmp_path)
    lab.open(page, "explore.ipynb")
    lab.run_all(page)
    widget = Widget(page)
    expect(widget.status).to_have_text(re.compile("^(Measured|Saved)"), timeout=LONG)
    expect(page.locator(".jp-OutputArea", has_text="step 2: loss")).to_have_count(1, timeout=LONG)
    widget.box.scroll_into_view_if_needed()
    expect(widget.figures).to_contain_text("this schedule, measured")
    expect(widget.box.locator(".schedule-explorer-timeline .schedule-explorer-legend")).to_contain_text("measured")
    expect(widget.box.locator("svg.step path.measured")).to_have_count(1)
    expect(widget.figures).to_contain_text("plain PyTorch, measured now")
    page.screenshot(path=shots / "notebook-after-run.png")

    before, areas, diamond = widget.figures.inner_text(), widget.areas(), widget.diamond()
    widget.slider.focus()
    for _ in range(12):
        widget.slider.press("ArrowRight")
    expect(widget.status).to_have_text(SOLVED, timeout=LONG)
    assert widget.figures.inner_text() != before
    assert widget.areas() != areas
    assert widget.diamond() != diamond
    expect(widget.figures).not_to_contain_text("measured")
    page.screenshot(path=shots / "notebook-after-keys.png")
    assert errors == []


@pytest.fixture(scope="class")
def opened(lab: Lab, context: BrowserContext, tiny: str) -> Iterator[tuple[Page, list[str]]]:
    """A page with an explorer that has solved for its first budget, and what it complained about."""
    with fresh_page(context) as page:
        found = complaints(page)
        lab.open(page, tiny)
        lab.run_all(page)
        expect(Widget(page).status).to_have_text(SOLVED, timeout=LONG)
        yield page, found


class TestOneWidgetInOneKernel:
    """Each begins at the slider's end, whatever the one before has left."""

    @pytest.fixture
    def page(self, opened: tuple[Page, list[str]]) -> Page:
        return opened[0]

    @pytest.fixture
    def errors(self, opened: tuple[Page, list[str]]) -> list[str]:
        return opened[1]

    @pytest.fixture
    def widget(self, page: Page) -> Widget:
        found = Widget(page)
        said = found.status.inner_text()
        found.slider.focus()
        # There and back: where it is at the end already the slider starts nothing, and the status stays.
        found.slider.press("Home")
        found.slider.press("ArrowRight")
        expect(found.status).not_to_have_text(said)
        found.to_the_end()
        return found

    def test_keyboard_mouse_and_typing_choose_the_budget(
        self, page: Page, widget: Widget, shots: Path, errors: list[str]
    ) -> None:
        page.screenshot(path=shots / "before.png")

        first, areas = widget.status.inner_text(), widget.areas()
        for _ in range(30):
            widget.slider.press("ArrowLeft")
        expect(widget.status).not_to_have_text(first)
        expect(widget.status).to_have_text(SOLVED, timeout=LONG)
        assert widget.status.inner_text() != first
        assert widget.areas() != areas
        assert widget.slider.get_attribute("aria-valuetext") == f"{widget.readout.input_value()} MiB"
        page.screenshot(path=shots / "after-keys.png")

        widget.to_the_end()
        said = widget.status.inner_text()
        box = widget.slider.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] / 2, steps=8)
        page.mouse.up()
        expect(widget.status).not_to_have_text(said)
        expect(widget.status).to_have_text(SOLVED, timeout=LONG)
        expect(widget.figures).to_contain_text("operators recomputed")
        page.screenshot(path=shots / "after-drag.png")

        widget.readout.fill("0.0001")
        widget.readout.press("Enter")
        expect(widget.status).to_have_text(re.compile("^No schedule fits.*smallest feasible budget"), timeout=LONG)
        expect(widget.button("Save schedule")).to_be_disabled()
        page.screenshot(path=shots / "infeasible.png")
        assert errors == []

    def test_save_names_the_file(self, lab: Lab, widget: Widget) -> None:
        name = widget.box.get_by_placeholder(re.compile("MiB.json$"))
        name.fill("mine.json")
        name.press("Tab")
        widget.button("Save schedule").click()
        expect(widget.status).to_have_text(f"Saved the schedule to {lab.root / 'mine.json'}")
        assert (lab.root / "mine.json").exists()
        name.fill("no/such/folder.json")
        name.press("Tab")
        widget.button("Save schedule").click()
        expect(widget.status).to_have_text(re.compile("^Could not save"))

    def test_a_reloaded_page_shows_the_same(self, lab: Lab, page: Page, widget: Widget, tiny: str, shots: Path) -> None:
        said, areas, value = widget.status.inner_text(), widget.areas(), widget.readout.input_value()
        page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
        again = Widget(page)
        lab.come_back(page, tiny, again.box)
        expect(again.status).to_have_text(said, timeout=LONG)
        expect(again.readout).to_have_value(value)
        expect(again.box.locator(".js-plotly-plot")).to_have_count(1)
        assert len(again.areas()) == len(areas)
        again.slider.focus()
        for _ in range(20):
            again.slider.press("ArrowLeft")
        expect(again.status).not_to_have_text(said)
        expect(again.status).to_have_text(SOLVED, timeout=LONG)
        assert again.figures.inner_text().count("MiB") == 2
        page.screenshot(path=shots / "after-reload.png")

    def test_a_killed_solver_is_replaced_and_after_a_second_death_the_next_move_recovers(
        self, lab: Lab, page: Page, widget: Widget, shots: Path
    ) -> None:
        def move_and_kill() -> psutil.Process:
            """The worker after the one killed."""
            (worker,) = lab.processes("explorer.solvers.service.worker")
            worker.suspend()  # so that it cannot be done before it is killed
            said = widget.status.inner_text()
            for _ in range(4):
                widget.slider.press("ArrowLeft")
            expect(widget.status).not_to_have_text(said)
            expect(widget.status).to_have_text(re.compile("^Solving"))
            worker.kill()
            deadline = time.monotonic() + LONG / 1000
            while not (others := [x for x in lab.processes("explorer.solvers.service.worker") if x != worker]):
                assert time.monotonic() < deadline, "nothing took its place"
                time.sleep(0.01)
            return others[0]

        another = move_and_kill()
        expect(widget.status).to_have_text(SOLVED, timeout=LONG)
        assert another.is_running()
        lab.ask(page, f"exec({_STOP_WORKERS!r})")  # so that the next one cannot answer before it is killed
        move_and_kill().kill()
        given_up, deadline, killed = re.compile("died.*Move the slider"), time.monotonic() + LONG / 1000, 0
        while not given_up.search(widget.status.inner_text()):
            assert time.monotonic() < deadline, "it was not given up"
            # A press of the key that came after the first death is a request of its own, and is tried twice itself.
            for worker in lab.processes("explorer.solvers.service.worker"):
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
                killed += 1
            time.sleep(0.5)
        assert killed <= 2 * 4
        lab.ask(page, "delattr(view._work.answers.solver._session, '_worker_now')")
        for late in lab.processes("explorer.solvers.service.worker"):
            late.resume()  # where the last press of the key came after both deaths
        page.screenshot(path=shots / "solver-died.png")
        widget.slider.press("End")
        expect(widget.status).to_have_text(SOLVED, timeout=LONG)


def test_other_cells_run_while_it_solves(lab: Lab, page: Page, trained: Trained) -> None:
    trained.profile.save(lab.root / "tiny.json")
    write_notebook(
        lab,
        "busy.ipynb",
        opening("tiny.json") + "view",
        "view.wait()\nview.budget_bytes = view.budget_bytes - 4096\nview.status",
        "sum(range(10))",
    )
    lab.open(page, "busy.ipynb")
    lab.run_all(page)
    expect(page.locator(".jp-OutputArea-output", has_text="'solving'")).to_have_count(1, timeout=LONG)
    expect(page.locator(".jp-OutputArea-output pre", has_text="45")).to_have_count(1)
    expect(Widget(page).status).to_have_text(SOLVED, timeout=LONG)


def test_a_tab_says_that_the_kernel_is_busy(lab: Lab, page: Page, trained: Trained) -> None:
    trained.profile.save(lab.root / "tiny.json")
    write_notebook(
        lab,
        "busy.ipynb",
        opening("tiny.json") + "view",
        "import pathlib, time\nview.wait()\nwhile not pathlib.Path('go').exists():\n    time.sleep(0.05)\n'awake'",
    )
    lab.open(page, "busy.ipynb")
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    expect(Widget(page).status).to_have_text(SOLVED, timeout=LONG)
    page.get_by_role("tab", name="Graph").click()
    graph = page.locator(".schedule-explorer-waiting:visible")
    expect(graph).to_have_count(1)
    said = "x => [getComputedStyle(x, '::after').content, getComputedStyle(x, '::after').visibility]"
    assert graph.evaluate(said)[1] == "hidden", "the answer mostly comes at once"
    page.wait_for_timeout(2000)
    assert graph.evaluate(said) == ['"The kernel draws this as soon as it is free."', "visible"]
    (lab.root / "go").touch()
    expect(page.locator(".jp-OutputArea-output pre", has_text="awake")).to_have_count(1)
    expect(page.locator("svg.modules .module").first).to_be_visible()
    expect(graph).to_have_count(0)


def test_profiling_shows_progress_and_errors_say_what_to_do(lab: Lab, page: Page, shots: Path) -> None:
    write_notebook(
        lab,
        "own.ipynb",
        "import torch\nfrom torch import nn\n\nimport explorer\n\n"
        "model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))\n"
        "view = explorer.explore(model, (torch.randn(512, 64), torch.randn(512, 1)), loss=nn.functional.mse_loss)\n"
        "view",
        "class Branch(nn.Linear):\n"
        "    def forward(self, x):\n"
        "        y = super().forward(x).sum()\n"
        "        return y if y > 0 else -y\n\n"
        "explorer.explore(Branch(3, 1), torch.ones(3))",
    )
    lab.open(page, "own.ipynb")
    lab.run_all(page)
    good, bad = Widget(page), Widget(page, 1)
    expect(bad.status).to_have_text(re.compile("^Opening failed: .*torch.where.*call explore again"), timeout=LONG)
    expect(bad.slider).to_be_disabled()
    try:
        expect(good.status).to_have_text(SOLVED, timeout=LONG)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{lab.ask(page, 'view.message')}\n{lab.threads(page)}") from None
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    good.button("Measure").click()
    # As one who closes the tab in the middle of a run, and returns.
    lab.come_back(page, "own.ipynb", good.box)
    expect(good.status).to_have_text(re.compile("^Measured: peak"), timeout=LONG)
    expect(good.figures).to_contain_text("this schedule, measured")
    expect(good.box.locator(".residual")).to_have_text(re.compile("Peak: .*Time: .* is the machine"))
    page.screenshot(path=shots / "own-model.png")
