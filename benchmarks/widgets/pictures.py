"""Pictures of the widget for the documentation: the whole of it, and what is behind each tab.

    python -m benchmarks.widgets.pictures resnet50 docs

With the test requirements installed. Whoever changes the widget makes them again.
"""

from __future__ import annotations

import argparse
import json
from io import BytesIO
from pathlib import Path

import nbformat
from PIL import Image
from playwright.sync_api import Page

from benchmarks.provenance import record
from benchmarks.widgets.jupyterlab_and_browser import lab_and_browser
from tests.ui.lab import Lab

_LONG_MS = 180_000
_FRAMES, _FRAME_MS = 40, 140
_LINGERS, _LINGER_MS = 14, 700
_COLOURS = 40
_SETTLED = """() => {
  const said = document.querySelector('.schedule-explorer [role=status]')?.textContent ?? "";
  if (said.startsWith("Opening failed")) throw new Error(said);
  return /^(Optimal|Solved)/.test(said);
}"""
_DRAWN = "() => Number(document.querySelector('.schedule-explorer-{}')?.dataset.drawn ?? 0) > {}"
TABS = {
    "Layers": "layers",
    "Graph": "graph",
    "Implementations": "implementations",
    "Schedule matrix": "matrix",
    "Addresses": "addresses",
    "Solver": "solver",
    "Explain and pin": None,
    "Compare": None,
    "Export": None,
}


def main() -> None:
    """Write ``explore.png`` and ``panel-….png`` into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", help="name of a bundled profile")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dark", action="store_true", help="in JupyterLab's dark theme, as …-dark.png")
    arguments = parser.parse_args()
    record(arguments, seeds=())
    with lab_and_browser() as (lab, browser):
        page = browser.new_page(viewport={"width": 1440, "height": 2000})
        opened(lab, page, arguments.profile, dark=arguments.dark)
        _shoot(lab, page, arguments.folder, suffix="-dark" if arguments.dark else "")


def opened(lab: Lab, page: Page, profile: str, *, dark: bool) -> None:
    """An explorer that has solved for its first budget."""
    opening = f"import explorer\n\nview = explorer.explore({profile!r})\nview"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(opening)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.root / "pictures.ipynb")
    lab.open(page, "pictures.ipynb")
    theme = f"JupyterLab {'Dark' if dark else 'Light'}"
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
    page.locator(f"body[data-jp-theme-light='{str(not dark).lower()}']").wait_for(state="attached")
    lab.run_all(page)
    page.wait_for_function(_SETTLED, timeout=_LONG_MS)
    lab.ask(page, "view.wait(200)")
    page.wait_for_function(_DRAWN.format("layers", 0), timeout=_LONG_MS)


def _shoot(lab: Lab, page: Page, folder: Path, *, suffix: str) -> None:
    """The first screen, the widget with its first tab, then every tab by itself, and moments of a walk."""
    box = page.locator(".schedule-explorer").first
    page.set_viewport_size({"width": 1440, "height": 900})
    page.wait_for_timeout(500)
    page.screenshot(path=folder / f"first-screen{suffix}.png")
    if not suffix:
        _walk(lab, page, folder)
    page.set_viewport_size({"width": 1440, "height": 2000})
    page.wait_for_timeout(500)
    box.screenshot(path=folder / f"explore{suffix}.png")
    for title, plot in TABS.items():
        box.get_by_role("tab", name=title).click()
        if title == "Compare":
            box.get_by_role("button", name="Hold as reference").click()
            lab.ask(page, "setattr(view, 'budget_bytes', int(0.8 * view.budget_bytes))")
            lab.ask(page, "view.wait(200)")
        if plot is not None:
            page.wait_for_function(_DRAWN.format(plot, 0), timeout=_LONG_MS)
        page.wait_for_timeout(500)
        tab = page.locator(".schedule-explorer .widget-tab").first
        tab.screenshot(path=folder / f"panel-{title.split()[0].lower()}{suffix}.png")
        if title == "Compare":
            box.locator(".schedule-explorer-main").screenshot(path=folder / f"panel-compare-step{suffix}.png")
        if title == "Addresses":
            box.get_by_role("button", name="Caching allocator").click()
            box.get_by_text("lies idle between").wait_for(timeout=_LONG_MS)
            page.wait_for_timeout(1500)
            tab.screenshot(path=folder / f"panel-addresses-caching{suffix}.png")


def _walk(lab: Lab, page: Page, folder: Path) -> None:
    """The step walked through, as a picture that moves; it lingers where something is computed again."""
    box = page.locator(".schedule-explorer").first
    place = box.locator(".schedule-explorer-timeline")
    again = json.loads(lab.ask(page, "[x.value == 'recompute' for x in view._display.scene.drawn.stages]").lower())
    starts = [run for run, found in enumerate(again) if found and not again[run - 1]]
    runs = sorted({*range(0, len(again), max(1, len(again) // _FRAMES)), *starts[:_LINGERS], len(again) - 1})
    box.get_by_role("button", name="Walk through the step").click()
    box.get_by_role("button", name="Pause the walk").click()
    page.locator("svg.step").first.focus()
    page.keyboard.press("Home")
    at, frames = 0, []
    for run in runs:
        for _ in range(run - at):
            page.keyboard.press("ArrowRight")
        at = run
        frames.append(Image.open(BytesIO(place.screenshot())).convert("RGB"))
    size = max(x.width for x in frames), max(x.height for x in frames)
    palette = _padded(frames[len(frames) // 2], size).quantize(colors=_COLOURS)
    drawn = [_padded(x, size).quantize(palette=palette, dither=Image.Dither.NONE) for x in frames]
    took = [_LINGER_MS if again[run] else _FRAME_MS for run in runs]
    drawn[0].save(folder / "walk.gif", save_all=True, append_images=drawn[1:], duration=took, loop=0, optimize=True)
    page.keyboard.press("Escape")


def _padded(frame: Image.Image, size: tuple[int, int]) -> Image.Image:
    """As large as the largest: what is told has more lines at some runs than at others."""
    made = Image.new("RGB", size, "white")
    made.paste(frame)
    return made


if __name__ == "__main__":
    main()
