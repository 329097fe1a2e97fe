"""Texts that are cut off or lie over one another: every tab, five widths, two themes, in a real browser.

    python -m benchmarks.widgets.boxes resnet50-small-cpu unet-a100-80gb --pictures folder

With the test requirements installed. Prints what it finds; the exit code is 1 if that is anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page

from benchmarks.widgets.jupyterlab_and_browser import lab_and_browser
from benchmarks.widgets.pictures import TABS, opened
from tests.ui.reading import clipped, covered

WIDTHS = (800, 1024, 1280, 1440, 1920)
_HEIGHT = 2600  # so that all of a tab is in sight
_SETTLING_MS = 700


def main() -> None:
    """Look at every profile that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", help="names of bundled profiles")
    parser.add_argument("--pictures", type=Path, help="folder for a picture of each tab, width and theme")
    arguments = parser.parse_args()
    found = []
    with lab_and_browser() as (lab, browser):
        for profile in arguments.profiles:
            for dark in (False, True):
                page = browser.new_page(viewport={"width": 1440, "height": _HEIGHT})
                opened(lab, page, profile, dark=dark)
                theme = "dark" if dark else "light"
                for what in finds(page, arguments.pictures, name=f"{profile}-{theme}"):
                    print(f"{profile}, {theme}: {what}", flush=True)
                    found.append(what)
                page.close()
    sys.exit(bool(found))


def finds(page: Page, pictures: Path | None = None, *, name: str = "") -> Iterator[str]:
    """Of an open explorer, tab by tab and width by width.

    Args:
        page: shows one explorer, which has settled.
        pictures: folder for pictures, if any.
        name: of what is shown, for the names of pictures.
    """
    page.evaluate("() => window.jupyterapp?.shell.collapseLeft()")
    box = page.locator(".schedule-explorer").first
    for tab in TABS:
        box.get_by_role("tab", name=tab).click()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": _HEIGHT})
            page.wait_for_timeout(_SETTLING_MS)
            if pictures is not None:
                pictures.mkdir(parents=True, exist_ok=True)
                box.screenshot(path=pictures / f"{name}-{tab.split()[0].lower()}-{width}.png")
            for what in clipped(box):
                yield f"{tab}, {width}: {what!r} is clipped"
            for picture in box.locator("svg.step, svg.curve, svg.graph, .js-plotly-plot").all():
                if picture.is_visible():
                    for what in covered(picture):
                        yield f"{tab}, {width}: {what}"


if __name__ == "__main__":
    main()
