"""A page that loads the scripts of its widgets late, as a busy machine does."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.ui.lab import Lab, complaints
from tests.ui.test_explore import LONG, SOLVED, Widget, opening, write_notebook
from tests.widgets.trained import Trained

pytestmark = pytest.mark.ui

# The two seconds after which anywidget gives a script up, and hears the kernel no more, are over at once.
_AT_ONCE = """
const timeout = AbortSignal.timeout.bind(AbortSignal);
AbortSignal.timeout = (ms) => timeout(ms === 2000 ? 0 : ms);
window.givenUp = 0;
addEventListener("unhandledrejection", ({ reason }) => {
  if (String(reason).includes("Failed to initialize model")) window.givenUp += 1;
});
"""


def test_an_explorer_hears_the_kernel_however_late_its_scripts_are(
    lab: Lab, page: Page, trained: Trained, shots: Path
) -> None:
    trained.profile.save(lab.root / "late.json")
    write_notebook(lab, "late.ipynb", opening("late.json") + "view")
    page.add_init_script(_AT_ONCE)
    found = complaints(page)
    lab.open(page, "late.ipynb")
    lab.run_all(page)
    widget = Widget(page)
    expect(widget.status).to_have_text(SOLVED, timeout=LONG)
    page.screenshot(path=shots / "late.png")
    assert page.evaluate("() => window.givenUp") > 0, "anywidget gave none up: what is looked for here is not there"
    figures, areas, diamond = widget.figures.inner_text(), widget.areas(), widget.diamond()
    widget.to_the_end()
    for _ in range(12):
        widget.slider.press("ArrowLeft")
    expect(widget.figures).not_to_have_text(figures, timeout=LONG)
    expect(widget.status).to_have_text(SOLVED, timeout=LONG)
    assert widget.areas() != areas
    assert widget.diamond() != diamond
    assert found == []
