"""Memory of two schedules over the time of the step."""

from __future__ import annotations

import numpy as np

from explorer.timeline import Timeline
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, scatter
from widgets.scene.compare import Held


def compare_figure(reference: Held, other: Held) -> Figure:
    """Memory of both over the time of the step."""
    title = "Memory over the step: reference and this schedule"
    layout = dict(
        **base_layout(290, title),
        title={"text": title, "font": {"size": 13}, "x": 0, "y": 0.985, "pad": {"l": 4}},
        legend={"x": 1, "y": 1.12, "xanchor": "right", "yanchor": "top", "orientation": "h"},
        xaxis=axis("time (ms)"),
        yaxis=axis("memory (GiB)", rangemode="tozero"),
        hovermode="x unified",
    )
    drawn = (
        (reference, style.ORANGE, "dash", f"reference: {reference.label}"),
        (other, style.BLUE, "solid", f"this: {other.label}"),
    )
    return Figure([_line(held.timeline, colour, dash, name) for held, colour, dash, name in drawn], layout)


def _line(timeline: Timeline, colour: str, dash: str, name: str) -> Trace:
    starts = np.concatenate([[0.0], np.cumsum(timeline.times_ms)])
    total = style.to_gib(timeline.total_bytes)
    return scatter(
        name=name,
        x=starts,
        y=np.append(total, total[-1:]),
        mode="lines",
        line={"color": colour, "dash": dash, "width": 1.6, "shape": "hv"},
        hovertemplate="%{y:.3f} GiB",
    )
