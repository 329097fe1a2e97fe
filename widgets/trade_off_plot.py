"""Overhead against memory: where the schedule stands among those that other budgets allow."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from explorer.solution import Solution
from widgets import style
from widgets.figures import Figure

CURVE, SOLVED, BOUND, CURRENT, KEEP_ALL, BUDGET = "instant curve", "solved", "proven bound", "current", "keep all", "limit"


class TradeOffPlot:
    """Draws into one cell of a figure; call its methods inside ``Figure.redraw``."""

    def __init__(self, figure: Figure, *, row: int, col: int) -> None:
        for trace in _traces():
            figure.add_trace(trace, row=row, col=col)
        self._trace = {trace.name: trace for trace in figure.data}
        self._keep_all_ms = 1.0
        self._solved: dict[int, tuple[float, float]] = {}

    def show_curve(self, points: Sequence[Solution], *, keep_all_ms: float, keep_all_peak_bytes: int) -> None:
        """Draw the curve known before any solve, and the plain step at its right end."""
        self._keep_all_ms = keep_all_ms
        x = [float(style.to_gib(point.peak_bytes)) for point in points if point.peak_bytes is not None]
        y = [self._overhead(point.time_ms) for point in points if point.time_ms is not None]
        self._trace[CURVE].update(x=x, y=y)
        self._trace[KEEP_ALL].update(x=[float(style.to_gib(keep_all_peak_bytes))], y=[0.0])

    def show_current(self, solution: Solution) -> None:
        """Move the current point, its budget and its bound."""
        budget = float(style.to_gib(solution.budget_bytes))
        bound = solution.bound_ms()
        self._trace[BOUND].update(
            x=[] if bound is None else [budget],
            y=[] if bound is None else [max(0.0, self._overhead(bound))],
        )
        if solution.peak_bytes is None or solution.time_ms is None:
            self._trace[CURRENT].update(x=[], y=[])
            self._trace[BUDGET].update(x=[], y=[])
            return
        overhead = self._overhead(solution.time_ms)
        peak = float(style.to_gib(solution.peak_bytes))
        self._trace[CURRENT].update(x=[peak], y=[overhead])
        self._trace[BUDGET].update(x=[peak, budget], y=[overhead, overhead])
        self._solved[solution.budget_bytes] = (peak, overhead)
        self._trace[SOLVED].update(
            x=[x for x, _ in self._solved.values()], y=[y for _, y in self._solved.values()]
        )

    def _overhead(self, time_ms: float) -> float:
        return 100 * (time_ms / self._keep_all_ms - 1)


def _traces() -> list[go.Scatter]:
    point = "%{x:.3f} GiB, %{y:+.1f} %<extra></extra>"
    return [
        go.Scatter(
            name=CURVE,
            mode="lines+markers",
            line={"color": style.SKY, "width": 2, "shape": "vh"},
            marker={"size": 5, "color": style.SKY},
            hovertemplate="instant schedule: " + point,
        ),
        go.Scatter(
            name=SOLVED,
            mode="markers",
            marker={"symbol": "circle-open", "size": 8, "color": style.BLUE, "line": {"width": 1.5}},
            hovertemplate="solved earlier: " + point,
        ),
        go.Scatter(
            name=BOUND,
            mode="markers",
            marker={"symbol": "triangle-up", "size": 9, "color": style.GREEN},
            hovertemplate="nothing below this: " + point,
        ),
        go.Scatter(
            name=BUDGET,
            mode="lines",
            line={"color": style.VERMILLION, "width": 1.5, "dash": "dash"},
            hoverinfo="skip",
            showlegend=False,
        ),
        go.Scatter(
            name=KEEP_ALL,
            mode="markers",
            marker={"symbol": "square", "size": 9, "color": style.PURPLE},
            hovertemplate="no recomputation: " + point,
        ),
        go.Scatter(
            name=CURRENT,
            mode="markers",
            marker={"symbol": "diamond", "size": 13, "color": style.VERMILLION, "line": {"width": 1, "color": "#ffffff"}},
            hovertemplate="current schedule: " + point,
        ),
    ]
