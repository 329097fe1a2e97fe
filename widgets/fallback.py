"""What stands in for the widget where no widget can run: GitHub, nbviewer, a diff."""

from __future__ import annotations

import html

import numpy as np

from explorer.simulation import Timeline
from widgets import style, text
from widgets.panel import Scene

_WIDTH, _HEIGHT = 720, 180


def render(name: str, scene: Scene | None) -> str:
    """Table and picture of what is known at this moment, as HTML without scripts."""
    if scene is None:
        return f"<p>{html.escape(name)}: run this cell in JupyterLab to explore schedules.</p>"
    table = text.figures(scene.profile, scene.keep_all, scene.solution, scene.timeline, scene.measurement)
    picture = _picture(scene.keep_all, scene.timeline, scene.budget_bytes)
    return f"<p>{html.escape(text.heading(scene.profile))}</p>{table}{picture}"


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


def _curve(timeline: Timeline, top: float, stroke: str, *, points: int = 240) -> str:
    """Total memory, at most ``points`` wide; each point the highest of its runs."""
    total = timeline.total_bytes
    starts = np.unique(np.linspace(0, len(total), min(points, len(total)), endpoint=False).astype(int))
    y = _HEIGHT * (1 - np.maximum.reduceat(total, starts) / top)
    x = starts * (_WIDTH / len(total))
    path = "L".join(f"{a:.0f} {b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<path d="M{path}" {stroke}/>'
