"""Before anything is open: what the controls look like then."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.ui.alone import mounted
from widgets.elements.controls import Controls

_SLIDER = ("budget_bytes", "minimum_bytes", "maximum_bytes", "step_bytes", "plain_bytes", "marks", "disabled")
pytestmark = pytest.mark.ui


@pytest.fixture
def controls() -> Iterator[Controls]:
    """Of a visitor's page, as they are at first."""
    made = Controls(on_typed=lambda _: None, on_drop=lambda _: None, on_wanted=lambda _: None)
    yield made
    made.box.close_all()


def test_a_download_that_is_not_there_yet_looks_so(alone: Page, controls: Controls) -> None:
    assert controls.download is not None
    state = {"groups": controls.download.groups, "disabled": controls.download.disabled}
    button = mounted(alone, "downloads.js", state=state).get_by_role("button")
    expect(button).to_be_disabled()
    assert float(button.evaluate("x => getComputedStyle(x).opacity")) < 0.8
    alone.evaluate("change({ disabled: false })")
    assert float(button.evaluate("x => getComputedStyle(x).opacity")) == 1


def test_a_budget_that_is_not_known_yet_is_no_budget_of_nothing(alone: Page, controls: Controls) -> None:
    state = {name: getattr(controls.slider, name) for name in _SLIDER}
    slider = mounted(alone, "drawing.js", "budget_slider.js", state=state)
    expect(slider.get_by_role("textbox")).to_have_value("")
    expect(slider.locator(".entry")).to_have_text("")
    expect(slider.get_by_role("slider")).to_have_attribute("aria-valuetext", "not known yet")
    known = {"plain_bytes": 2**21, "minimum_bytes": 2**20, "maximum_bytes": 2**21, "step_bytes": 2**13}
    alone.evaluate("more => change(more)", {**known, "budget_bytes": 3 * 2**19, "disabled": False})
    expect(slider.get_by_role("textbox")).to_have_value("1.500")
    expect(slider.locator(".entry")).to_have_text("MiB75 % of PyTorch's peak")
