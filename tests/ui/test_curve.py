"""The curve of budgets by itself: its texts lie apart, and the keyboard leads through what can be seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from playwright.sync_api import Locator, Page, expect
from torch import nn

import explorer
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Solution, Status
from tests.ui.alone import mounted
from tests.ui.reading import covered
from widgets.scene.curve import curve_table
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff

pytestmark = pytest.mark.ui

_ALONE: list[tuple[float, float]] = [(1.0, 0.0)]
_FLAT = [(0.69, 18.4), (0.70, 17.7), (1.0, 0.0)]
_STEEP = [(0.313, 103.1), (0.336, 53.0), (0.35, 40.2), (0.401, 28.0), (0.49, 15.0), (0.64, 6.0), (0.97, 0.0)]
_BEYOND = [(0.19, 188.0), *_STEEP[3:]]
_STRUCK = """box => {
  const line = box.querySelector("line.budget");
  const [x1, y1] = ["x1", "y1"].map((name) => Number(line.getAttribute(name)));
  return [...box.querySelectorAll("text")].filter((x) => {
    const { x: left, y, width, height } = x.getBBox();
    return y + 2 < y1 && y1 < y + height - 3 && left + width > x1;
  }).map((x) => x.textContent);
}"""

_CROSSED = """box => {
  const lines = [...box.querySelectorAll("path.line")];
  const shares = Array.from({ length: 400 }, (_, i) => i / 399);
  const points = lines.flatMap((line) => shares.map((x) => line.getPointAtLength(x * line.getTotalLength())));
  return [...box.querySelectorAll("text.name")].filter((name) => {
    const { x, y, width, height } = name.getBBox();
    return points.some((p) => p.x > x && p.x < x + width && p.y > y + 3 && p.y < y + height - 3);
  }).map((x) => x.textContent);
}"""


@pytest.fixture(scope="module")
def plain() -> Scene:
    """A step that no schedule is known for yet."""
    with torch.device("meta"):
        model, batch = nn.Sequential(*(nn.Linear(256, 256) for _ in range(8))), torch.empty(1024, 256)
    profile = explorer.estimate(model, batch, device="A100-40GB")
    timeline = simulate(profile, keep_all(profile.graph))
    return Scene(profile, timeline, TradeOff(timeline, ()))


def table(plain: Scene, points: Sequence[tuple[float, float]], *, budget: float, other: bool) -> dict[str, Any]:
    """A curve of these shares of the plain step's peak, with extra time in per cent, at a budget of such a share."""
    timeline = plain.keep_all

    def solution(share: float, extra: float, budget: float | None = None) -> Solution:
        peak = int(share * timeline.peak_bytes)
        return Solution(
            status=Status.FEASIBLE,
            budget_bytes=int((budget or share) * timeline.peak_bytes),
            schedule=keep_all(plain.profile.graph),
            peak_bytes=peak,
            time_ms=timeline.time_ms * (1 + extra / 100),
        )

    known = tuple(solution(*x) for x in points)
    fits = [x for x in points if x[0] <= budget]
    current = solution(*(fits[-1] if fits else points[0]), budget)
    others = (("checkpointing alone", tuple(solution(share, 1.3 * extra) for share, extra in points)),) if other else ()
    trade_off = TradeOff(timeline, known, current=current, others=others)
    return curve_table(Scene(plain.profile, timeline, trade_off, solution=current))


def drawn(page: Page, told: dict[str, Any], *, width: int = 360) -> Locator:
    made = mounted(page, "drawing.js", "curve.js", state={"known": packed_json(told)}, width=width)
    expect(made.locator("line.budget")).to_be_attached()  # it is drawn when its size is known
    return made.locator("svg.curve")


@pytest.mark.parametrize("points", [_ALONE, _FLAT, _STEEP, _BEYOND], ids=["one", "flat", "steep", "beyond"])
@pytest.mark.parametrize("other", [False, True], ids=["alone", "beside another"])
def test_no_text_of_the_curve_lies_over_another_or_is_struck_through(
    alone: Page, plain: Scene, points: list[tuple[float, float]], *, other: bool
) -> None:
    for width in (300, 360, 520):
        for budget in (1.0, 0.97, 0.84, 0.7, 0.5, 0.35, 0.2, 0.1, 0.03):
            curve = drawn(alone, table(plain, points, budget=budget, other=other), width=width)
            assert covered(curve) == [], (width, budget)
            assert curve.evaluate(_STRUCK) == [], (width, budget)
            expect(curve.get_by_text("plain PyTorch")).to_have_count(1)


def test_names_stand_beside_lines_that_fill_the_right_half(alone: Page, plain: Scene) -> None:
    for budget in (0.95, 0.84, 0.72):
        curve = drawn(alone, table(plain, _FLAT, budget=budget, other=True))
        assert curve.evaluate(_CROSSED) == [], budget


def test_the_keyboard_begins_at_the_schedule_shown_and_leads_through_what_is_seen(alone: Page, plain: Scene) -> None:
    told = table(plain, _BEYOND, budget=0.5, other=True)
    curve = drawn(alone, told)
    stop = curve.locator("[tabindex='0']")
    expect(stop).to_have_count(1)
    assert int(stop.get_attribute("data-budget") or 0) == told["current"][0]
    stop.focus()
    seen = []
    for _ in range(2):  # as many as there are below it
        seen.append(told_and_inside(curve))
        alone.keyboard.press("ArrowDown")
    seen.append(told_and_inside(curve))
    assert [said for said, _ in seen] == ["+15.0", "+28.0", "+188.0"]
    assert all(inside for _, inside in seen)
    alone.keyboard.press("Enter")
    assert alone.evaluate("sent") == [{"budget": told["smallest"]}]


def told_and_inside(curve: Locator) -> tuple[str, bool]:
    """The extra time of the point that has the focus, and whether it is to be seen."""
    at = curve.locator(":focus")
    found = re.search(r"(\S+) % time", at.get_attribute("aria-label") or "")
    box, frame = at.bounding_box(), curve.bounding_box()
    assert found is not None
    assert box is not None
    assert frame is not None
    return found[1], frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"]


def test_what_lies_beyond_the_axis_is_told_at_its_edge(alone: Page, plain: Scene) -> None:
    curve = drawn(alone, table(plain, _BEYOND, budget=0.5, other=True))
    expect(curve.get_by_text(re.compile(r"^to [\d.]+ MiB, \+188 %$"))).to_have_count(1)
    expect(curve.locator(".beyond path")).to_have_count(2)
    curve = drawn(alone, table(plain, _FLAT, budget=0.84, other=False))
    expect(curve.locator(".beyond")).to_have_count(0)
