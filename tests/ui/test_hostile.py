"""A report of hostile names, in a real browser."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, expect

from explorer.storage import storage_format
from tests.attack import names
from widgets.report import report

pytestmark = pytest.mark.ui
_LISTEN = "window.ran = []; window.run = () => window.ran.push(1); window.alert = window.run;"


@pytest.mark.timeout(300)
@pytest.mark.thorough("2", "3", "4", "5")
@pytest.mark.parametrize("seed", range(6))
def test_a_report_runs_nothing_links_nowhere_and_can_be_read(
    seed: int, context: BrowserContext, tmp_path: Path
) -> None:
    profile = names.hostile_profile(random.Random(seed))
    scene = names.scene_of(profile)
    path = tmp_path / "report.html"
    path.write_text(report(scene, file="x.json", bundled=None), encoding="utf-8")
    page = context.new_page()
    page.add_init_script(_LISTEN)
    failed: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(path.as_uri())
    expect(page.locator(".plotly-graph-div .main-svg").first).to_be_visible()
    page.wait_for_function("() => document.querySelectorAll('.plotly-graph-div .main-svg').length >= 10")
    for plot in page.locator(".plotly-graph-div .nsewdrag").all():  # what is told of a point is drawn now
        plot.hover(force=True)
    links = page.evaluate("() => [...document.querySelectorAll('a')].map((x) => x.outerHTML)")
    assert [x for x in links if "evil" in x or "javascript" in x] == []
    assert page.locator("iframe, img, form").count() == 0
    assert page.evaluate("() => window.ran") == []
    assert failed == []
    read = page.evaluate("() => JSON.parse(document.getElementById('schedule').textContent)")
    assert scene.solution is not None
    assert read["checksum"] == json.loads(storage_format.text_of(scene.solution.schedule, schema=1))["checksum"]
    page.close()
