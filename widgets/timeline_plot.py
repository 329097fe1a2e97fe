"""Memory over one training step: what is allocated at each run, and for what."""

from __future__ import annotations

import html

import numpy as np
import plotly.graph_objects as go

from explorer.device_profile import Profile
from explorer.measurement import Measurement
from explorer.simulation import CATEGORIES, Stage, Timeline
from explorer.units import format_bytes
from widgets import style
from widgets.figures import Figure, axis, base_layout
from widgets.layers import segments

_STAGE_NAMES = {Stage.FORWARD: "forward", Stage.RECOMPUTE: "recompute", Stage.BACKWARD: "backward"}


class TimelinePlot:
    """Stacked areas by category over the runs of the step, with the budget, the peak and what was measured."""

    def __init__(self) -> None:
        self.figure = Figure(data=[*_stage_traces(), *_category_traces(), *_line_traces()], layout=_layout())
        self._trace = {trace.name: trace for trace in self.figure.data}

    def show(self, profile: Profile, timeline: Timeline, *, budget_bytes: int | None, ceiling_bytes: int) -> None:
        """Draw a prediction; forgets what was measured for another schedule.

        Args:
            profile: of the timeline.
            timeline: to draw.
            budget_bytes: where the budget's line runs, None for no line.
            ceiling_bytes: the axis reaches at least this, so that moving the budget does not rescale it.
        """
        runs = len(timeline.operators)
        edges = np.arange(runs + 1)
        total = style.to_gib(timeline.total_bytes)
        top = float(style.to_gib(max(ceiling_bytes, timeline.peak_bytes, budget_bytes or 0))) * 1.12
        ticks = segments(profile.graph, timeline)
        with self.figure.redraw():
            for column, category in enumerate(CATEGORIES):
                trace, amounts = self._trace[category.value], style.to_gib(timeline.bytes[:, column])
                trace.update(x=edges, y=_closed(amounts), showlegend=bool(amounts.any()))
            for stage in Stage:
                inside = np.array([top if x is stage else 0.0 for x in timeline.stages])
                self._trace[_STAGE_NAMES[stage]].update(x=edges, y=_closed(inside), showlegend=bool(inside.any()))
            self._trace["total"].update(x=edges[:-1] + 0.5, y=total, text=_hover(profile, timeline))
            self._trace["peak"].update(
                x=[timeline.peak_run + 0.5],
                y=[total[timeline.peak_run]],
                text=[f"peak {style.to_gib(timeline.peak_bytes):.3f} GiB"],
                textposition=_side(timeline.peak_run, runs),
            )
            budget = [] if budget_bytes is None else [float(style.to_gib(budget_bytes))] * 2
            self._trace["budget"].update(x=[0, runs] if budget else [], y=budget, showlegend=bool(budget))
            self._trace["measured"].update(x=[], y=[], showlegend=False)
            self.figure.layout.xaxis.update(
                range=[0, runs],
                tickvals=[(segment.start + segment.end) / 2 for segment in ticks],
                ticktext=[html.escape(segment.label) for segment in ticks],
            )
            self.figure.layout.yaxis.range = [0, top]

    def overlay(self, timeline: Timeline, measurement: Measurement) -> None:
        """Draw what was measured over the prediction.

        A measurement knows times, not operators: its time is stretched to the predicted step, then read as runs.
        """
        ends = np.cumsum(timeline.times_ms)
        observed = np.asarray(measurement.times_ms, dtype=np.float64)
        if not len(observed) or ends[-1] <= 0 or observed[-1] <= 0:
            return
        stretched = observed * (ends[-1] / observed[-1])
        runs = np.interp(stretched, np.concatenate([[0.0], ends]), np.arange(len(ends) + 1))
        keep = _envelope(runs, measurement.allocated_bytes)
        with self.figure.redraw():
            memory = style.to_gib(measurement.allocated_bytes[keep])
            self._trace["measured"].update(x=runs[keep], y=memory, showlegend=True)
            top = max(self.figure.layout.yaxis.range[1], float(memory.max()) * 1.12)
            self.figure.layout.yaxis.range = [0, top]


def _stage_traces() -> list[go.Scatter]:
    """Full-height shading of the step's stages, behind everything."""
    return [
        go.Scatter(
            name=_STAGE_NAMES[stage],
            mode="lines",
            line={"width": 0, "shape": "hv"},
            fill="tozeroy",
            fillcolor=style.STAGE_SHADE[stage],
            fillpattern={"shape": style.STAGE_HATCH[stage], "size": 6, "fgcolor": style.VERMILLION, "fgopacity": 0.5},
            hoverinfo="skip",
            legendgroup="stages",
        )
        for stage in Stage
    ]


def _category_traces() -> list[go.Scatter]:
    return [
        go.Scatter(
            name=category.value,
            mode="lines",
            line={"width": 0, "shape": "hv", "color": style.CATEGORY_COLOUR[category]},
            stackgroup="memory",
            fillcolor=style.CATEGORY_COLOUR[category],
            fillpattern={"shape": style.CATEGORY_HATCH.get(category, ""), "size": 5, "fillmode": "overlay"},
            hoverinfo="skip",
        )
        for category in CATEGORIES
    ]


def _line_traces() -> list[go.Scatter]:
    return [
        go.Scatter(
            name="total",
            mode="lines",
            line={"width": 1, "color": "rgba(60, 60, 60, 0.55)", "shape": "hvh"},
            showlegend=False,
            hovertemplate="%{text}<extra></extra>",
        ),
        go.Scatter(
            name="budget",
            mode="lines",
            line={"width": 2, "color": style.VERMILLION, "dash": "dash"},
            hovertemplate="budget %{y:.3f} GiB<extra></extra>",
        ),
        go.Scatter(
            name="measured",
            mode="lines",
            line={"width": 2, "color": style.GREEN, "shape": "hv"},
            hovertemplate="measured %{y:.3f} GiB<extra></extra>",
        ),
        go.Scatter(
            name="peak",
            mode="markers+text",
            marker={"symbol": "diamond", "size": 9, "color": "#000000", "line": {"width": 1.5, "color": "#ffffff"}},
            textfont={"size": 12},
            cliponaxis=False,
            showlegend=False,
            hoverinfo="skip",
        ),
    ]


def _layout() -> dict:
    return {
        **base_layout(330),
        "title": {"text": "Memory during one training step", "font": {"size": 13}, "x": 0, "y": 0.985, "pad": {"l": 4}},
        "hovermode": "closest",
        "hoverdistance": 40,
        "legend": {"font": {"size": 11}, "traceorder": "reversed", "itemwidth": 30, "tracegroupgap": 2},
        "xaxis": axis("", tickangle=-35, showgrid=False),
        "yaxis": axis("allocated (GiB)", rangemode="tozero"),
    }


def _closed(amounts: np.ndarray) -> np.ndarray:
    """Values of n runs for their n + 1 edges."""
    return np.append(amounts, amounts[-1:])


def _side(run: int, runs: int) -> str:
    """The peak's text stands on the side where there is room."""
    return "top right" if run < runs / 2 else "top left"


def _envelope(x: np.ndarray, y: np.ndarray, *, bins: int = 1500) -> np.ndarray:
    """Indices of a curve's lowest and highest point per bin: all that can be seen of it, in at most 2 · bins points."""
    if len(x) <= 2 * bins:
        return np.arange(len(x))
    starts = np.flatnonzero(np.diff(np.floor(x / x[-1] * bins), prepend=-1))
    ends = np.append(starts[1:], len(x))
    picked = {i for a, b in zip(starts, ends, strict=True) for i in (a + y[a:b].argmin(), a + y[a:b].argmax())}
    return np.array(sorted(picked))


def _hover(profile: Profile, timeline: Timeline) -> list[str]:
    """One text per run: layer, operator, what it does, and the bytes of each category."""
    texts = []
    for run, (operator, implementation, stage) in enumerate(
        zip(timeline.operators, timeline.implementations, timeline.stages, strict=True)
    ):
        found = profile.graph.operators[operator]
        chosen = "" if implementation == found.implementations[0].name else f" ({implementation})"
        lines = [
            f"<b>{html.escape(found.layer or found.target)}</b>",
            html.escape(f"{found.name}{chosen}, {_STAGE_NAMES[stage]}, {style.format_ms(timeline.times_ms[run])}"),
            f"total {format_bytes(int(timeline.total_bytes[run]))}",
        ]
        lines += [
            f"{category.value} {format_bytes(int(amount))}"
            for category, amount in zip(CATEGORIES, timeline.bytes[run], strict=True)
            if amount
        ]
        texts.append("<br>".join(lines))
    return texts
