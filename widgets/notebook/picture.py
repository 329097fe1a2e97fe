"""What stands in for the widget where none is alive: GitHub, nbviewer, a page reloaded after its kernel has ended."""

from __future__ import annotations

from uuid import uuid4

import ipywidgets
import numpy as np
from IPython.core.getipython import get_ipython
from IPython.display import display

from explorer.harmless import in_html
from explorer.timeline import Timeline
from widgets import style, text
from widgets.scene.scene import Scene

_WIDTH, _HEIGHT = 720, 180
_POINTS = 240


class Picture:
    """An output of its own beside the widget's, kept up to date in every cell that shows it.

    JupyterLab puts an error in place of a widget whose kernel has ended, whatever else is in the same output.

    Attributes:
        mark: class of what is in it; ``hiding`` hides that.
    """

    def __init__(self) -> None:
        """Nowhere to be seen yet."""
        self.mark = f"schedule-explorer-{uuid4().hex[:12]}"
        self._shown = False

    def show(self, bundle: dict[str, str]) -> None:
        """Add it to the present cell's outputs."""
        display(bundle, raw=True, display_id=self.mark)
        # A terminal would print it once more.
        self._shown = hasattr(get_ipython(), "kernel")

    def renew(self, bundle: dict[str, str]) -> None:
        """Replace it where it was shown."""
        if self._shown:
            display(bundle, raw=True, display_id=self.mark, update=True)


def show_widget(box: ipywidgets.Box) -> None:
    """Add a widget to the present cell's outputs, without the words that stand for it in a terminal."""
    bundle = box._repr_mimebundle_() or {}
    display({kind: content for kind, content in bundle.items() if kind != "text/plain"}, raw=True)


def render(name: str, scene: Scene | None, *, mark: str) -> str:
    """Table and picture of what is known at this moment, as HTML without scripts; of the class ``mark``."""
    again = "<p>This is a picture of the schedule explorer, not the explorer itself: run this cell to explore on.</p>"
    if scene is None:
        return f'<div class="{mark}"><p>{in_html(name)}</p>{again}</div>'
    table = text.figures(scene)
    picture = _picture(scene.keep_all, scene.timeline, scene.budget_bytes)
    return f'<div class="{mark}"><p>{in_html(text.heading(scene.profile))}</p>{table}{picture}{again}</div>'


def hiding(mark: str) -> str:
    """Hides what ``render`` made, by a rule that is part of the widget, so that it ends with it."""
    return f"<style>.{mark}, .jp-OutputArea-child:has(.{mark}) {{ display: none; }}</style>"


def _picture(keep_all: Timeline, timeline: Timeline | None, budget_bytes: int | None) -> str:
    """Memory over the step, without and with the schedule."""
    top = keep_all.peak_bytes * 1.1
    drawn = [_curve(keep_all, top, f'stroke="{style.TEXT}" stroke-dasharray="2 3"')]
    if timeline is not None:
        drawn.append(_curve(timeline, top, f'stroke="{style.BLUE}" stroke-width="2"'))
    if budget_bytes is not None:
        y = _HEIGHT * (1 - budget_bytes / top)
        drawn.append(f'<path d="M0 {y:.1f}H{_WIDTH}" stroke="{style.VERMILLION}" stroke-dasharray="6 4"/>')
    legend = "Memory over one step: dotted without recomputation, solid with this schedule, dashed the budget."
    return (
        f'<svg role="img" aria-label="{legend}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'xmlns="http://www.w3.org/2000/svg" fill="none">{"".join(drawn)}</svg><p><small>{legend}</small></p>'
    )


def _curve(timeline: Timeline, top: float, stroke: str) -> str:
    """Total memory, at most ``_POINTS`` wide; each point the highest of its runs."""
    total = timeline.total_bytes
    starts = np.unique(np.linspace(0, len(total), min(_POINTS, len(total)), endpoint=False).astype(int))
    y = _HEIGHT * (1 - np.maximum.reduceat(total, starts) / top)
    x = starts * (_WIDTH / len(total))
    path = "L".join(f"{a:.0f} {b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<path d="M{path}" {stroke}/>'
