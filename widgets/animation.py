"""A page that walks through a step by itself: for slides, and for people without Python; it works offline."""

from __future__ import annotations

from explorer.harmless import in_html, in_script
from widgets import text
from widgets.elements.frontend_file import frontend_file, together
from widgets.elements.pictures import STEP_FILES
from widgets.panels.timeline import step_of, table_of
from widgets.scene.packed import packed_json
from widgets.scene.scene import Scene

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 1100px; margin: 16px auto; padding: 0 16px; font: 15px/1.5 system-ui, sans-serif; }
body { --jp-layout-color0: Canvas; --jp-layout-color1: Canvas; --jp-content-font-color1: CanvasText; }
body { --jp-content-font-color2: color-mix(in srgb, CanvasText 65%, Canvas); }
body { --jp-layout-color2: color-mix(in srgb, CanvasText 10%, Canvas); background: Canvas; color: CanvasText; }
@media (prefers-color-scheme: dark) {
  .schedule-explorer { --se-good: #3ecf9e; --se-budget: #ff9752; --se-band: #35404a; --se-band-open: #42505c; }
}
"""


def animation(scene: Scene) -> str:
    """The whole page: the step before plain PyTorch's, or the reference, with a playhead that moves.

    Raises:
        ValueError: there is no schedule yet.
    """
    if scene.solution is None or scene.solution.schedule is None:
        raise ValueError("there is no schedule to show yet; wait for the solver, or choose a larger budget")
    title, (said, note) = text.heading(scene.profile), text.headline(scene)
    return (
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width'>"
        f"<title>{in_html(title)}</title><style>{frontend_file('style.css')}{_STYLE}</style></head>"
        "<body><main class='schedule-explorer' data-plays>"
        f"<p class='schedule-explorer-heading'>{in_html(title)}</p>"
        f"<h1 class='schedule-explorer-headline'><span class='big'>{in_html(said)}</span>"
        f"<span class='note'>{in_html(note)}</span></h1>{moving_picture(scene)}</main></body></html>"
    )


def moving_picture(scene: Scene) -> str:
    """The picture alone, for a page that has our style: it plays by itself within an element with ``data-plays``."""
    tables = {"table": table_of(scene), "step": step_of(scene)}
    data = "".join(
        f"<script type='application/json' id='{name}'>{in_script(packed_json(content))}</script>"
        for name, content in tables.items()
    )
    script = together(*STEP_FILES, "animation.js")
    return f"<div class='schedule-explorer-timeline'></div>{data}<script type='module'>{script}</script>"
