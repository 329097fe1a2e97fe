"""A page that comes back while the kernel goes on: what is told between its question and its listening."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.ui.lab import Lab
from tests.ui.test_explore import LONG, SOLVED, Widget, opening, write_notebook
from tests.widgets.trained import Trained

pytestmark = pytest.mark.ui

# A busy kernel does not tell all states within the four seconds that JupyterLab gives it. Each widget is asked by
# itself then, and none hears anything before the last has answered.
_TOLD_MEANWHILE = """
from ipywidgets import Widget

controls = view._view.controls
def be_busy():
    Widget._handle_control_comm_msg = lambda message: None
    controls.status.send_state = answer_and_go_on
def answer_and_go_on(*asked, answer=controls.status.send_state):
    answer(*asked)
    if not asked:
        del controls.status.send_state
        controls.status.text = "Told while nobody listened"
        controls.figures.value = "<p>figures of then</p>"
"""


def test_a_page_that_comes_back_shows_what_the_kernel_told_meanwhile(
    lab: Lab, page: Page, trained: Trained, shots: Path
) -> None:
    trained.profile.save(lab.root / "returning.json")
    write_notebook(lab, "returning.ipynb", opening("returning.json") + "view", _TOLD_MEANWHILE)
    lab.open(page, "returning.ipynb")
    lab.run_all(page)
    widget = Widget(page)
    expect(widget.status).to_have_text(SOLVED, timeout=LONG)
    page.evaluate("() => window.jupyterapp.commands.execute('docmanager:save')")
    lab.ask(page, "be_busy()")
    lab.open(page, "returning.ipynb", fresh=False)
    expect(widget.box).to_be_visible(timeout=LONG)
    lab.ask_until(page, "controls.status.text", "Told while nobody listened")
    expect(widget.status).to_have_text("Told while nobody listened")
    expect(widget.box.get_by_text("figures of then")).to_be_visible()
    page.screenshot(path=shots / "returning.png")
