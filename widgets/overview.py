"""The second figure: trade-off on the left, layers on the right."""

from __future__ import annotations

from collections.abc import Sequence

from plotly.subplots import make_subplots

from explorer.device_profile import Profile
from explorer.simulation import Timeline
from explorer.solution import Solution
from widgets import style
from widgets.figures import Figure, axis, base_layout
from widgets.layers_plot import LayersPlot
from widgets.trade_off_plot import TradeOffPlot

_TITLES = ("Overhead against memory", "Recomputation per layer (ms)", "Activations kept per layer (GiB)")


class Overview:
    """Trade-off and layers in one figure."""

    def __init__(self) -> None:
        grid = make_subplots(
            rows=2,
            cols=2,
            specs=[[{"rowspan": 2}, {}], [None, {}]],
            column_widths=[0.42, 0.58],
            row_heights=[0.5, 0.5],
            horizontal_spacing=0.08,
            vertical_spacing=0.16,
            subplot_titles=_TITLES,
        )
        grid.update_annotations(font={"size": 13})
        self.figure = Figure(grid)
        self._trade_off = TradeOffPlot(self.figure, row=1, col=1)
        self._layers = LayersPlot(self.figure, rows=(1, 2), col=2)
        self.figure.update_layout(
            **base_layout(320),
            barmode="overlay",
            bargap=0.2,
            legend={"orientation": "h", "y": -0.2, "x": 0, "yanchor": "top", "font": {"size": 10}},
            xaxis=axis("peak memory (GiB)"),
            yaxis=axis("extra time (%)", rangemode="tozero"),
            xaxis2=axis("", showticklabels=False, matches="x3"),
            xaxis3=axis("", tickangle=-40, tickfont={"size": 10}, automargin=True),
            yaxis2=axis("", rangemode="tozero", nticks=4),
            yaxis3=axis("", rangemode="tozero", nticks=4),
        )

    def show_plain(self, profile: Profile, keep_all: Timeline, points: Sequence[Solution]) -> None:
        """Draw what is known before any solve."""
        with self.figure.redraw():
            self._trade_off.show_curve(points, keep_all_ms=keep_all.time_ms, keep_all_peak_bytes=keep_all.peak_bytes)
            self._layers.show_keep_all(profile, keep_all)

    def show(self, profile: Profile, solution: Solution, timeline: Timeline | None) -> None:
        """Draw a solution; ``timeline`` is its schedule's, None where it has no schedule."""
        with self.figure.redraw():
            self._trade_off.show_current(solution)
            if timeline is not None:
                self._layers.show(profile, timeline)
