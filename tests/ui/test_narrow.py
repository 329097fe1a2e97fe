"""Where there is little room: names in the picture of a step, the figures, long paths in tables."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from playwright.sync_api import Page
from torch import nn

import explorer
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.ui.alone import mounted
from tests.ui.test_drawn import DRAW
from widgets import text
from widgets.elements.frontend_file import together
from widgets.elements.pictures import STEP_FILES
from widgets.panels.timeline import step_of, table_of
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff

pytestmark = pytest.mark.ui

_WRONG = """() => {
  const line = Number(document.querySelector("svg.step line.budget").getAttribute("y1"));
  const end = Number(document.querySelector("svg.step line.budget").getAttribute("x2"));
  const names = [...document.querySelectorAll("svg.step text.halo")];
  const said = names.map((x) => [x.textContent, x.getBBox()]);
  const struck = said.filter(([, { y, height }]) => y + 3 < line && line < y + height - 3);
  const out = said.filter(([, { x, width }]) => x + width > end + 4);
  return [...struck, ...out].map(([name]) => name);
}"""


@pytest.fixture(scope="module")
def step_page(alone: Page) -> Page:
    """An empty page that can draw steps."""
    alone.add_script_tag(content=together(*STEP_FILES))
    return alone


def scene_at(profile: Profile, share: float) -> Scene:
    """A schedule that recomputes, at a budget of this share of the plain step's peak."""
    plain = simulate(profile, keep_all(profile.graph))
    found = explorer.solve(profile, budget=plain.peak_bytes, method="chen-root")
    schedule = found.schedule
    assert schedule is not None
    found = replace(found, budget_bytes=int(share * plain.peak_bytes))
    known = TradeOff(plain, (), current=found)
    return Scene(profile, plain, known, solution=found, timeline=simulate(profile, schedule))


@pytest.mark.parametrize("last", [False, True], ids=["peak in the middle", "peak at the end"])
def test_no_name_in_the_step_is_struck_through_or_runs_out_of_it(step_page: Page, *, last: bool) -> None:
    """Whatever the budget: the line moves, the names give way."""
    wide = [nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 32)] if last else []
    with torch.device("meta"):
        model = nn.Sequential(*wide, *(nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(16)))
        profile = explorer.estimate(model, torch.empty(2**17, 32), device="A100-40GB")
    for share in [0.3 + 0.05 * i for i in range(16)]:
        scene = scene_at(profile, share)
        step_page.evaluate(DRAW, [packed_json(table_of(scene)), packed_json(step_of(scene))])
        assert step_page.evaluate(_WRONG) == [], share
        names = step_page.locator("svg.step text.halo").all_text_contents()
        assert any("−" in x for x in names), f"what is saved is told at {share}: {names}"


@pytest.mark.parametrize("width", [368, 560, 900])
def test_all_figures_are_in_sight(step_page: Page, width: int) -> None:
    with torch.device("meta"):
        profile = explorer.estimate(nn.Linear(32, 32), torch.empty(4096, 32), device="A100-40GB")
    told = text.figures(scene_at(profile, 1.0))
    step_page.evaluate(
        "([told, width]) => { const box = document.querySelector('#here'); box.style.width = `${width}px`;"
        "box.innerHTML = `<div class='schedule-explorer-figures'>${told}</div>`; }",
        [told, width],
    )
    assert step_page.evaluate("document.querySelector('table.figures').offsetWidth") <= width


def test_a_long_path_does_not_push_the_last_column_out_of_sight(step_page: Page) -> None:
    path = "bert.encoder.layer.0-2.intermediate.intermediate_act_fn"
    cells = ["gelu and 2 more", path, "64.00 KiB", "recomputed", "would take 0.58 ms", "yes"]
    state = {
        "columns": ["tensor", "layer", "size", "is", "making it again", "at the peak"],
        "rows": [{"key": "gelu", "cells": cells, "folded": []}],
        "selected": [],
        "title": "Tensors of the model, the largest",
        "folded": False,
    }
    box = mounted(step_page, "table.js", state=state, width=700).locator(".schedule-explorer-table")
    assert box.evaluate("x => x.scrollWidth <= x.clientWidth")
    assert box.locator("td").first.inner_text() == path
