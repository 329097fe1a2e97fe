"""Every panel and button in a real JupyterLab, by mouse and by keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from tests.ui.lab import Lab, complaints, fresh_page
from tests.ui.reading import faint, unnamed, walk
from tests.ui.test_explore import LONG, SOLVED, Widget, opening, write_notebook
from tests.widgets.trained import Trained

pytestmark = pytest.mark.ui

_SETTLED = re.compile("^(Optimal|Solved|Added|Cancelled|Measured)")
_MOST_BYTES = 12e6


class Panels(Widget):
    """One explorer on a page, panel by panel."""

    def tab(self, name: str) -> None:
        """Open a tab."""
        self.box.get_by_role("tab", name=name).click()

    def plot(self, name: str) -> Locator:
        return self.box.locator(f".schedule-explorer-{name}")

    def names(self, plot: str) -> list[str]:
        """Of the traces that the page has drawn."""
        return self.plot(plot).evaluate("x => (x.data ?? []).map(trace => trace.name)")

    @property
    def layer(self) -> Locator:
        return self.box.get_by_label("Layer", exact=True)


@pytest.fixture(scope="module")
def seen(lab: Lab, context: BrowserContext, trained: Trained) -> Iterator[tuple[Page, list[str], list[int]]]:
    """A page with an explorer of a model, what it complained about, and the sizes of what was sent to it."""
    trained.profile.save(lab.root / "panels.json")
    write_notebook(
        lab,
        "panels.ipynb",
        f"{opening('panels.json')}ended = []\nview.observe(lambda change: ended.append(view.message), 'message')\nview",
    )
    sizes: list[int] = []
    with fresh_page(context) as page:
        page.set_viewport_size({"width": 1440, "height": 1700})
        errors = complaints(page)
        page.on("websocket", lambda socket: socket.on("framereceived", lambda data: sizes.append(len(data))))
        lab.open(page, "panels.ipynb")
        lab.run_all(page)
        expect(Panels(page).status).to_have_text(SOLVED, timeout=LONG)
        yield page, errors, sizes


@pytest.fixture
def page(seen: tuple[Page, list[str], list[int]]) -> Page:
    return seen[0]


@pytest.fixture
def panels(page: Page) -> Panels:
    return Panels(page)


@pytest.fixture(autouse=True)
def _quiet(seen: tuple[Page, list[str], list[int]]) -> Iterator[None]:
    """No test here may make the page complain."""
    yield
    assert seen[1] == []


def test_opening_sends_little(seen: tuple[Page, list[str], list[int]], panels: Panels, shots: Path) -> None:
    expect(panels.plot("timeline")).to_have_attribute("data-drawn", re.compile("[1-9]"))
    assert 1e6 < sum(seen[2]) < _MOST_BYTES
    panels.box.screenshot(path=shots / "panels.png")


def test_presets_percentages_and_units_choose_a_budget(panels: Panels) -> None:
    presets = panels.box.get_by_label("Budget presets")
    presets.select_option(index=1)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)
    expect(panels.box.locator(".share")).to_have_text("100 % of PyTorch's peak")
    for typed, share in (("90 %", "90 %"), ("900 KiB", "% of")):
        panels.readout.fill(typed)
        panels.readout.press("Enter")
        expect(panels.box.locator(".share")).to_contain_text(share)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)  # which would take the place of what is said next
    panels.readout.fill("a lot")
    panels.readout.press("Enter")
    expect(panels.status).to_have_text(re.compile("'a lot' is not a number.*'80 %'"))
    panels.slider.press("End")
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)


def test_play_sweeps_and_cancel_stops_it(panels: Panels, shots: Path) -> None:
    panels.button("Sweep").click()
    expect(panels.status).to_have_text(re.compile("^(Solving|Solved|Optimal)"))
    first = panels.readout.input_value()
    expect(panels.readout).not_to_have_value(first, timeout=LONG)
    panels.box.screenshot(path=shots / "playing.png")
    panels.button("Cancel").first.click()
    expect(panels.button("Sweep")).to_be_enabled(timeout=LONG)
    left = panels.readout.input_value()
    expect(panels.status).to_have_text(_SETTLED, timeout=LONG)
    panels.status.page.wait_for_timeout(1000)  # more than one of the sweep's budgets is shown for
    assert panels.readout.input_value() == left


def test_run_says_at_once_what_to_do_where_nothing_can_run(panels: Panels) -> None:
    panels.button("Measure").click()
    expect(panels.status).to_have_text(re.compile("^Running failed: only a profile is open.*explore\\(model, batch\\)"))
    expect(panels.button("Measure")).to_be_enabled()


def test_forty_keys_lead_to_one_solve(lab: Lab, page: Page, panels: Panels) -> None:
    panels.to_the_end()
    said = panels.status.inner_text()
    count = "sum(x.startswith(('Optimal', 'Solved', 'No', 'Cancelled')) for x in ended)"
    before = int(lab.ask(page, count))
    panels.slider.focus()
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    expect(panels.status).not_to_have_text(said)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)
    # One, unless the machine was too busy for the keys to be fast.
    assert 1 <= int(lab.ask(page, count)) - before <= 4
    assert int(lab.ask(page, "view.budget_bytes")) == int(panels.slider.input_value())


def _marked(panels: Panels, *, there: bool = True) -> None:
    """Wait until the timeline marks where the selected layer runs, or marks nothing."""
    marks = panels.plot("timeline").locator("rect.run")
    if there:
        expect(marks.first).to_be_attached()
    else:
        expect(marks).to_have_count(0)


def test_a_click_on_a_bar_a_row_a_band_or_the_timeline_selects_the_layer(
    page: Page, panels: Panels, shots: Path
) -> None:
    panels.tab("Layers")
    bars = [x.bounding_box() for x in panels.plot("layers").locator(".barlayer .point path").all()]
    bar = max((x for x in bars if x is not None), key=lambda x: x["height"])
    target = panels.plot("timeline").locator("svg.step").bounding_box()
    band = panels.plot("timeline").locator("[data-layer='blocks.1.0'], [data-layer='stem']").first
    assert target is not None
    for x, y, tip in (
        (bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2, ".hoverlayer .hovertext"),
        (target["x"] + target["width"] * 0.3, target["y"] + 250, ".schedule-explorer-tip:visible"),
    ):
        panels.layer.select_option("none")
        _marked(panels, there=False)
        page.mouse.move(x - 2, y)
        page.mouse.move(x, y)
        expect(panels.box.locator(tip).first).to_be_visible()
        page.mouse.click(x, y)
        _marked(panels)
        assert panels.layer.input_value() != "none"
    panels.layer.select_option("none")
    _marked(panels, there=False)
    band.click()
    _marked(panels)
    panels.layer.select_option("stem.0")
    panels.tab("Implementations")
    _unfold_all(page, panels)
    row = panels.box.get_by_role("button", name="blocks.1.0: convolution", exact=True)
    row.focus()
    row.press("Enter")
    expect(row).to_have_attribute("aria-pressed", "true")
    expect(panels.layer).to_have_value("blocks.1.0")
    _marked(panels)
    panels.box.screenshot(path=shots / "panel-implementations.png")
    panels.tab("Schedule matrix")
    assert "selected layer" in _until(panels, "matrix", "selected layer")
    panels.box.get_by_label("Only the selected layer").check()
    _until(panels, "matrix", "selected layer", there=False)
    panels.box.get_by_label("Only the selected layer").uncheck()
    panels.box.screenshot(path=shots / "panel-matrix.png")
    panels.layer.select_option("none")
    _marked(panels, there=False)


def _unfold_all(page: Page, panels: Panels) -> None:
    """By keyboard; equal blocks are one row, and which are equal is the schedule's business."""
    expect(panels.box.locator(".widget-tab-contents tbody tr:visible").first).to_be_visible()  # it is drawn only now
    folded = panels.box.locator(".widget-tab-contents button.unfold[aria-expanded='false']:visible")
    while folded.count():
        folded.first.focus()
        page.keyboard.press("Enter")
        expect(panels.box.locator("button.unfold:focus")).to_have_attribute("aria-expanded", "true")


def _until(panels: Panels, plot: str, name: str, *, there: bool = True) -> list[str]:
    """Wait until a plot has a trace of this name, or has none."""
    panels.plot(plot).page.wait_for_function(
        "([plot, name, there]) => document.querySelector(`.schedule-explorer-${plot}`)"
        ".data?.some(trace => trace.name === name) === there",
        arg=[plot, name, there],
    )
    return panels.names(plot)


def test_a_click_on_the_curve_chooses_its_budget(page: Page, panels: Panels) -> None:
    panels.to_the_end()
    before = panels.readout.input_value()
    points = panels.plot("trade_off").locator("[data-budget]")
    points.first.scroll_into_view_if_needed()
    for number in (2, 1, 2):  # the curve may be drawn anew, with another point there, between a look and the click
        point = points.nth(number).bounding_box()
        assert point is not None
        page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
        page.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
        page.wait_for_timeout(500)
        if panels.readout.input_value() != before:
            break
    expect(panels.readout).not_to_have_value(before)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)


def test_points_of_the_curve_are_reached_by_keyboard(page: Page, panels: Panels) -> None:
    panels.to_the_end()
    before = panels.readout.input_value()
    panels.plot("trade_off").locator("[data-budget][tabindex='0']").focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    expect(panels.plot("trade_off").locator(".schedule-explorer-tip")).to_contain_text("at the peak")
    page.keyboard.press("Enter")
    expect(panels.readout).not_to_have_value(before)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)


def test_checkpointing_alone_is_compared_with_unless_it_is_removed(panels: Panels, shots: Path) -> None:
    line = panels.plot("trade_off").locator("[data-name='checkpointing alone']")
    expect(line).to_have_count(1, timeout=LONG)
    panels.plot("trade_off").screenshot(path=shots / "panel-trade-off.png")
    panels.box.get_by_label("Compare with").select_option("remove all")
    expect(line).to_have_count(0)
    panels.box.get_by_label("Compare with").select_option("checkpointing alone")
    expect(line).to_have_count(1, timeout=LONG)


def test_what_is_alive_at_the_peak_unfolds_by_keyboard(page: Page, panels: Panels, shots: Path) -> None:
    summary = panels.box.locator("summary").first
    summary.focus()
    page.keyboard.press("Enter")
    table = panels.box.locator("details table").first
    expect(table).to_contain_text("all parameters")
    expect(table).to_contain_text("float32")
    panels.box.screenshot(path=shots / "panel-timeline.png")
    page.keyboard.press("Enter")


def test_the_solver_solves_without_an_optimization(panels: Panels, shots: Path) -> None:
    panels.tab("Solver")
    panels.box.get_by_label("In place").uncheck()
    expect(panels.status).to_have_text(re.compile("^(Opening|Finding|Solving)"))
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)
    expect(panels.box.get_by_role("log", name="Solver log")).to_contain_text("ended: ")
    expect(panels.plot("solver")).to_have_attribute("data-drawn", re.compile("[1-9]"))
    panels.box.screenshot(path=shots / "panel-solver.png")
    panels.box.get_by_label("In place").check()
    expect(panels.status).to_have_text(re.compile("^(Opening|Finding|Solving)"))
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)


def test_keys_on_a_control_are_no_commands_of_the_notebook(page: Page, panels: Panels) -> None:
    panels.layer.select_option("none")
    panels.layer.focus()
    page.keyboard.press("ArrowDown")
    expect(panels.layer).not_to_have_value("none")
    panels.tab("Schedule matrix")
    only = panels.box.get_by_label("Only the selected layer")
    expect(only).to_be_enabled()  # the kernel has heard of the layer
    only.focus()
    page.keyboard.press("x")  # would cut the cell
    page.keyboard.press("Space")
    expect(only).to_be_checked()
    page.keyboard.press("Space")
    expect(only).not_to_be_checked()
    panels.layer.select_option("none")
    panels.tab("Solver")
    panels.box.get_by_role("log", name="Solver log").focus()
    page.keyboard.press("x")
    expect(panels.status).to_be_visible()


def test_a_log_is_read_while_more_comes(lab: Lab, page: Page, panels: Panels, shots: Path) -> None:
    panels.tab("Solver")
    log = panels.box.get_by_role("log", name="Solver log")
    _write_lines(lab, page, 50)
    expect(log).to_contain_text("line 49")
    top, most = log.evaluate("x => [x.scrollTop, x.scrollHeight - x.clientHeight]")
    assert most > 0
    assert top == pytest.approx(most, abs=2)
    panels.box.screenshot(path=shots / "panel-solver-log.png")
    log.focus()
    page.keyboard.press("Home")
    page.wait_for_function("() => document.activeElement.scrollTop === 0")
    _write_lines(lab, page, 60)
    expect(log).to_contain_text("line 59")
    expect(log).to_be_focused()
    assert log.evaluate("x => x.scrollTop") == 0


def _write_lines(lab: Lab, page: Page, count: int) -> None:
    """As a solve that goes on."""
    lines = f"'\\n'.join(f'line {{x}} of a solve' for x in range({count}))"
    lab.ask(page, f"setattr(view._view.panels['solver'].log, 'text', {lines})")


def test_tabs_are_reached_by_keyboard(page: Page, panels: Panels) -> None:
    panels.tab("Implementations")
    panels.box.get_by_role("tab", name="Implementations").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(panels.box.get_by_role("tab", name="Schedule matrix")).to_have_attribute("aria-selected", "true")


@pytest.mark.parametrize("name", ["Implementations", "Schedule matrix", "Solver", "Explain and pin", "Export"])
def test_tab_leads_to_every_control_and_shows_where_it_is(panels: Panels, name: str) -> None:
    panels.tab(name)
    panels.slider.focus()
    missed, unseen = walk(panels.box)
    assert missed == []
    assert unseen == []


def test_schedules_are_compared_by_keyboard_alone(page: Page, panels: Panels, shots: Path) -> None:
    panels.tab("Export")
    panels.box.get_by_role("tab", name="Export").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(panels.box.get_by_role("tab", name="Compare")).to_have_attribute("aria-selected", "true")
    expect(panels.button("Hold as reference")).to_be_enabled()
    _tab_to(page, panels.button("Hold as reference"))
    page.keyboard.press("Enter")
    expect(panels.box.get_by_text(re.compile("^Reference: "))).to_be_visible()
    said = panels.status.inner_text()
    _tab_to(page, panels.slider, back=True)
    for _ in range(60):
        page.keyboard.press("ArrowLeft")
    expect(panels.status).not_to_have_text(said)
    expect(panels.status).to_have_text(SOLVED, timeout=LONG)
    expect(panels.box.get_by_role("table", name="Both schedules")).to_contain_text("peak")
    expect(panels.box.locator(".schedule-explorer-timeline .schedule-explorer-legend")).to_contain_text(
        "more than the reference"
    )
    missed, unseen = walk(panels.box)
    assert missed == []
    assert unseen == []
    panels.box.screenshot(path=shots / "panel-compare-by-keyboard.png")
    _tab_to(page, panels.button("Forget the reference"), back=True)
    page.keyboard.press("Enter")
    expect(panels.box.get_by_role("table", name="Both schedules")).to_be_hidden()
    expect(panels.box.locator(".schedule-explorer-timeline .schedule-explorer-legend")).not_to_contain_text("reference")
    expect(panels.button("Forget the reference")).to_be_disabled()


def _tab_to(page: Page, control: Locator, *, back: bool = False, most: int = 300) -> None:
    """Press Tab until the focus is there."""
    for _ in range(most):
        if control.evaluate("x => x === document.activeElement"):
            return
        page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError(f"{most} times Tab did not lead to {control}")


def _pick_a_tensor(page: Page, plot: Locator) -> None:
    """Click on the longest of those on the ground: whatever comes from above, there is something that it hits."""
    bars = plot.locator(".barlayer .point path")
    expect(bars.first).to_be_attached(timeout=LONG)
    plot.scroll_into_view_if_needed()
    boxes = [x for x in (y.bounding_box() for y in bars.all()) if x is not None]
    ground = max(x["y"] + x["height"] for x in boxes)
    bar = max((x for x in boxes if ground - x["y"] - x["height"] < 2), key=lambda x: x["width"])
    x, y = bar["x"] + bar["width"] / 2, bar["y"] + bar["height"] / 2
    page.mouse.move(x - 2, y)
    page.mouse.move(x, y)
    expect(plot.locator(".hoverlayer .hovertext").first).to_be_visible()
    page.mouse.click(x, y)


def test_a_tensor_is_dragged_to_another_address(page: Page, panels: Panels, shots: Path) -> None:
    panels.tab("Addresses")
    address = panels.box.get_by_role("spinbutton", name="Address")
    for _ in range(10):  # a better schedule may come between looking and clicking, and with it another map
        _pick_a_tensor(page, panels.plot("addresses"))
        with suppress(AssertionError):
            expect(address).to_be_enabled(timeout=5000)
            break
    expect(address).to_be_enabled()
    expect(panels.plot("addresses").locator(".shapelayer path")).to_have_count(1)
    for way, said in ((-60, "Moved by hand"), (-600, "Nothing collides")):
        box = panels.plot("addresses").locator(".shapelayer path").bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y + way, steps=4)
        page.mouse.up()
        expect(panels.box.get_by_text(said)).to_be_visible()
        panels.box.screenshot(path=shots / f"panel-addresses{way}.png")
    panels.button("As planned").click()
    expect(panels.box.get_by_text("holds all that the step makes")).to_be_visible()
    panels.button("Caching allocator").click()
    expect(panels.box.get_by_text("caching allocator, simulated, takes")).to_be_visible()
    panels.box.screenshot(path=shots / "panel-addresses-caching.png")
    panels.button("One buffer").click()
    panels.layer.select_option("none")
    _marked(panels, there=False)


def test_arrows_lead_through_the_buttons_of_a_plot(page: Page, panels: Panels, shots: Path) -> None:
    panels.tab("Layers")
    buttons = panels.plot("layers").locator(".modebar-btn")
    buttons.first.focus()
    page.keyboard.press("ArrowRight")
    expect(buttons.nth(1)).to_be_focused()
    panels.box.screenshot(path=shots / "panel-toolbar.png")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    expect(buttons.last).to_be_focused()
    assert not [x for x in buttons.all() if "Share" in (x.get_attribute("aria-label") or "")]


@pytest.mark.parametrize("theme", ["JupyterLab Dark", "JupyterLab Light"])
def test_every_control_has_a_name_and_every_text_is_readable(
    page: Page, panels: Panels, shots: Path, theme: str
) -> None:
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    light = json.dumps("Light" in theme)
    expect(page.locator(f"body[data-jp-theme-light='{light}']")).to_have_count(1)
    panels.tab("Compare")
    panels.button("Hold as reference").click()
    shade = "light" if "Light" in theme else "dark"
    shown = {
        "Layers": panels.plot("layers"),
        "Implementations": panels.plot("implementations"),
        "Schedule matrix": panels.plot("matrix"),
        "Addresses": panels.plot("addresses"),
        "Solver": panels.plot("solver"),
        "Explain and pin": panels.button("Pin and solve"),
        "Compare": panels.box.get_by_role("table", name="Both schedules"),
        "Export": panels.box.get_by_role("button", name="Save the plot Timeline as PNG"),
    }
    for name, there in shown.items():
        panels.tab(name)
        expect(there).to_be_visible()
        panels.box.screenshot(path=shots / f"{shade}-{name.split()[-1].lower()}.png")
        assert unnamed(panels.box) == []
        assert faint(panels.box) == []


def test_a_restarted_kernel_is_told(lab: Lab, page: Page, panels: Panels, shots: Path) -> None:
    """The last test of this page."""
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    expect(panels.status).to_have_text(re.compile("kernel.*run the cell again"), timeout=LONG)
    panels.box.screenshot(path=shots / "kernel-restarted.png")
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    lab.open(page, "panels.ipynb", fresh=False)
    # JupyterLab's own words for the widget; ours are above, with what was known.
    expect(page.get_by_text("this schedule, predicted")).to_be_visible()
    expect(page.get_by_text("run this cell to explore on")).to_be_visible()
    expect(page.get_by_text("model not found")).to_be_visible()
    page.screenshot(path=shots / "kernel-restarted-page-reloaded.png")
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    expect(Panels(page).status).to_have_text(SOLVED, timeout=LONG)
    expect(page.get_by_text("run this cell to explore on")).to_be_hidden()
