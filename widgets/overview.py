"""The second figure: trade-off on the left, layers on the right."""

from __future__ import annotations

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from explorer.device_profile import Profile
from explorer.simulation import Timeline
from widgets.figures import axis, base_layout
from widgets.layers_plot import layer_traces
from widgets.trade_off_plot import TradeOff, trade_off_traces

_TITLES = (
    "Extra time against memory",
    "Recomputation per layer (ms)",
    "Activations kept per layer (GiB; grey: by a plain step)",
)


def overview_figure(profile: Profile, known: TradeOff, timeline: Timeline) -> go.Figure:
    """Trade-off and layers.

    Args:
        profile: of everything shown.
        known: for the trade-off.
        timeline: for the layers: that of the current schedule, or of a plain step where there is none.
    """
    figure = make_subplots(
        rows=2,
        cols=2,
        specs=[[{"rowspan": 2}, {}], [None, {}]],
        column_widths=[0.45, 0.55],
        horizontal_spacing=0.08,
        vertical_spacing=0.18,
        subplot_titles=_TITLES,
    )
    for trace in trade_off_traces(known):
        figure.add_trace(trace, row=1, col=1)
    for row, bars in enumerate(layer_traces(profile, known.keep_all, timeline), start=1):
        for bar in bars:
            figure.add_trace(bar, row=row, col=2)
    figure.update_annotations(font={"size": 13})
    figure.update_layout(
        **base_layout(310, "; ".join(_TITLES)),
        barmode="overlay",
        bargap=0.2,
        legend={"x": 0.41, "y": 1, "xanchor": "right", "yanchor": "top"},
        xaxis=axis("peak memory (GiB)"),
        yaxis=axis("extra time (%)", rangemode="tozero"),
        xaxis2=axis("", type="category", showticklabels=False),
        xaxis3=axis("", type="category", tickangle=-40, tickfont={"size": 10}, automargin=True, matches="x2"),
        yaxis2=axis("", rangemode="tozero", nticks=4),
        yaxis3=axis("", rangemode="tozero", nticks=4),
    )
    return figure
