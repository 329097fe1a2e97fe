"""What the scripts of the pictures draw, without a kernel: axes, strips, columns and bands of large steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from playwright.sync_api import Browser, Page
from torch import nn

import explorer
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.widgets.scene.test_repeats import STEPS, recurrent, towers
from widgets.elements.frontend_file import together
from widgets.elements.pictures import STEP_FILES
from widgets.panels.timeline import step_of, table_of
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def scripts(browser: Browser) -> Iterator[Page]:
    """An empty page that has them."""
    page = browser.new_page()
    page.set_content("<div id='here' style='width: 700px'></div>")
    page.add_script_tag(content=together(*STEP_FILES))
    yield page
    page.close()


def test_each_label_of_an_axis_says_where_it_stands(scripts: Page) -> None:
    every = product((0, -3.1), range(10, 100), (-3, -1, 0, 1), (2, 4, 6, 9))
    ranges = [(low, low + span * 10.0**power, most) for low, span, power, most in every]
    answers = scripts.evaluate("all => all.map(x => ticks(...x)).map(({ found, digits }) => [found, digits])", ranges)
    for (low, high, most), (found, digits) in zip(ranges, answers, strict=True):
        assert len(found) <= most + 1
        labels = [float(f"{x:.{digits}f}") for x in found]
        assert all(math.isclose(x, y, abs_tol=1e-6 * (high - low)) for x, y in zip(labels, found, strict=True)), found
        assert digits == 0 or any(float(f"{x:.{digits - 1}f}") != y for x, y in zip(found, labels, strict=True)), found


DRAW = """([told, shown]) => {
  window.S = { run: null, range: null, byTime: false, open: new Set(), preview: null, moving: null };
  take(S, table(told), table(shown));
  const here = document.querySelector("#here");
  here.replaceChildren();
  window.picture = stepPicture(here, { name: () => "a step" });
  picture.draw(S);
}"""


def draw(scripts: Page, profile: Profile) -> Scene:
    """A plain step."""
    plain = simulate(profile, keep_all(profile.graph))
    scene = Scene(profile, plain, TradeOff(plain, ()))
    scripts.evaluate(DRAW, [packed_json(table_of(scene)), packed_json(step_of(scene))])
    return scene


@pytest.mark.parametrize("name", ["llama3_70b_shard-a100-80gb", "resnet50-small-cpu"])
def test_the_boxes_of_a_run_add_up_to_what_is_in_memory(scripts: Page, name: str) -> None:
    plain = draw(scripts, explorer.load_profile(name)).keep_all
    code = """run => {
      S.run = run;
      picture.walk(S);
      const boxes = [...document.querySelectorAll("svg.step .now rect.block")];
      return [boxes.reduce((sum, x) => sum + Number(x.getAttribute("height")), 0), (S.step.total[run] / S.top) * PLOT];
    }"""
    for run in range(0, len(plain.operators), len(plain.operators) // 12):
        drawn, meant = scripts.evaluate(code, run)
        assert drawn == pytest.approx(meant, abs=2.5), run


def test_parts_of_a_layer_that_are_too_narrow_stand_together(scripts: Page) -> None:
    with torch.device("meta"):
        model, batch = nn.Sequential(nn.Sequential(*(nn.Linear(8, 8) for _ in range(600)))), torch.empty(4, 8)
    draw(scripts, explorer.estimate(model, batch, device="A100-40GB"))
    code = """() => {
      const all = () => [...document.querySelectorAll("svg.step .bands .band")];
      const label = Number(document.querySelector("svg.step [data-more]").dataset.band);
      S.open.add(label);
      picture.draw(S);
      const wide = (rows) => rows.reduce((sum, x) => sum + Number(x.getAttribute("width")), 0);
      const tops = [...new Set(all().map((x) => x.getAttribute("y")))];
      const [outer, inner] = tops.map((y) => all().filter((x) => x.getAttribute("y") === y));
      const opened = outer.filter((x) => x.classList.contains("open"));
      return [wide(opened), wide(inner), inner.length];
    }"""
    outer, inner, number = scripts.evaluate(code)
    assert number > 10
    assert inner > 0.75 * outer


@pytest.mark.parametrize(
    ("make", "named"),
    [(towers, ["tower"] * 6), (recurrent, [f"embed, cell, head ×{STEPS}", f"head, cell ×{STEPS - 2}"])],
    ids=["towers", "recurrent"],
)
def test_a_module_used_time_and_again_is_one_band_for_each_use_or_for_all(
    scripts: Page, make: Callable[[], Profile], named: list[str]
) -> None:
    draw(scripts, make())
    assert scripts.locator("svg.step .bands text").all_text_contents() == named


def test_whatever_is_computed_again_is_seen_in_the_strip(scripts: Page) -> None:
    """Of many runs the highest stands for the others in the areas; a recomputation is seldom the highest."""
    runs, width = 6000, 400
    stages = [0] * 3000 + [1 if x % 50 == 7 else 2 for x in range(3000)]
    code = """([stages, width]) => {
      const total = stages.map((x, i) => (x === 1 ? 0 : 1 + i % 3));
      const step = { stages, total, ends: stages.map((_, i) => i + 1) };
      return passesOf(step, laidOut(step, { byTime: false, width, whole: stages.length }));
    }"""
    strip = scripts.evaluate(code, [stages, width])
    per = runs / len(strip)
    for i, column in enumerate(strip):
        inside = stages[round(i * per) : round((i + 1) * per)]
        assert bool(column["again"]) == (1 in inside), i
        assert column["stage"] == (0 if i < len(strip) / 2 else 2)
    assert {x["again"] for x in strip} == {0, 2}
