"""A page that shows a schedule to people without Python: self-contained, it works offline."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go
import plotly.offline

from explorer.analysis.explaining import Fate, explain_all
from explorer.harmless import in_html, in_script
from explorer.schedule import SCHEMA
from explorer.storage import storage_format
from explorer.units import format_bytes
from widgets import text
from widgets.animation import moving_picture
from widgets.elements.frontend_file import frontend_file
from widgets.panels.figures import figures
from widgets.plots.figure import Figure
from widgets.plots.shown import NO_SHARING
from widgets.scene.scene import Scene
from widgets.snippet import snippet

_INK = "#222222"  # of text on white
_STYLE = """
body { max-width: 1100px; margin: 24px auto; padding: 0 16px; color: #222; font: 15px/1.5 system-ui, sans-serif; }
table { border-collapse: collapse; } th, td { padding: 2px 14px 2px 0; text-align: left; }
body { --jp-content-font-color1: #222; --jp-content-font-color2: #555; --jp-layout-color0: #fff; }
pre { padding: 8px; overflow: auto; background: #f4f4f4; }
"""


def report(scene: Scene, *, file: str, bundled: str | None) -> str:
    """The whole page; the schedule itself lies in it as JSON.

    Args:
        scene: what to show.
        file: name of the schedule's file, for the program that the page shows.
        bundled: as in ``snippet``.

    Raises:
        ValueError: there is no schedule yet.
    """
    solution = scene.solution
    if solution is None or solution.schedule is None:
        raise ValueError("there is no schedule to report yet; wait for the solver, or choose a larger budget")
    title = text.heading(scene.profile)
    table = text.figures(scene)
    content = in_script(storage_format.text_of(solution.schedule, schema=SCHEMA))
    program = snippet(scene.profile, solution, file=file, bundled=bundled, of=scene.keep_all.peak_bytes)
    parts = [
        f"<h1>{in_html(title)}</h1>",
        f"<p>{in_html(text.outcome(solution, scene.keep_all, timeline=scene.timeline))}</p>",
        table,
        f"<section class='schedule-explorer'>{moving_picture(scene)}</section>",
        *_plots({name: figure for name, figure in figures(scene).items() if name != "timeline"}),
        f"<h2>Tensors</h2>{_tensors(scene)}",
        f"<h2>To train with it</h2><pre>{in_html(program)}</pre>",
        f"<script type='application/json' id='schedule'>{content}</script>",
    ]
    return (
        "<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'>"
        f"<title>{in_html(title)}</title><style>{frontend_file('style.css')}{_STYLE}</style>"
        f"<script>{plotly.offline.get_plotlyjs()}</script></head><body><main>{''.join(parts)}</main></body></html>"
    )


def _plots(found: Mapping[str, Figure]) -> list[str]:
    """Each as a figure with its description."""
    made = []
    for name, figure in found.items():
        described = in_html(str(figure.layout.get("meta", name)))
        page = go.Figure(figure.to_dict()).update_layout(font_color=_INK)
        drawn = page.to_html(full_html=False, include_plotlyjs=False, div_id=f"plot-{name}", config=NO_SHARING)
        made.append(f"<figure role='img' aria-label=\"{described}\" style='margin: 24px 0'>{drawn}</figure>")
    return made


def _tensors(scene: Scene) -> str:
    """How many, and how many bytes, for each fate."""
    assert scene.solution is not None, "asked before"
    assert scene.solution.schedule is not None, "asked before"
    found = explain_all(scene.profile, scene.solution.schedule)
    lines = []
    for fate in Fate:
        those = [x for x in found if x.fate is fate]
        if those:
            size = format_bytes(sum(x.allocated_bytes for x in those))
            lines.append(f"<tr><th scope='row'>{fate.value}</th><td>{len(those)}</td><td>{size}</td></tr>")
    head = "<tr><th scope='col'>what becomes of them</th><th scope='col'>tensors</th><th scope='col'>bytes</th></tr>"
    return f"<table><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table>"
