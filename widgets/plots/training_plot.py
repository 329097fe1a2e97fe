"""Loss, and the peak of measured iterations under the budget, as a model is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, scatter

_HEIGHT = 380
_LOSS, _MEMORY = (0.56, 1.0), (0.0, 0.44)  # of the figure's height
_LINES = ((style.VERMILLION, "dash"), (style.PURPLE, "dot"), (style.GREEN, "dashdot"))


def training_figure(
    losses: Sequence[float], peaks: Mapping[int, int], *, levels: Mapping[str, int], iterations: int
) -> Figure:
    """What is known after so many iterations.

    Args:
        losses: of each iteration so far.
        peaks: number of an iteration, from 0, to its measured peak in bytes; of those that were measured.
        levels: name to bytes of what the peaks are compared with, such as a budget; at most three.
        iterations: how many there will be: the end of the axis.
    """
    title = "Loss and peak memory of each iteration"
    layout = dict(
        **base_layout(_HEIGHT, title),
        xaxis=axis("iteration", range=[0, iterations], anchor="y2"),
        yaxis=axis("loss", domain=list(_LOSS), rangemode="tozero"),
        yaxis2=axis("peak memory (GiB)", domain=list(_MEMORY), rangemode="tozero"),
        legend={"x": 1, "y": _MEMORY[1], "xanchor": "right", "yanchor": "bottom", "orientation": "h"},
    )
    loss = scatter(
        name="loss",
        x=list(range(1, len(losses) + 1)),
        y=list(losses),
        mode="lines",
        line={"color": style.BLUE, "width": 2},
        hovertemplate="iteration %{x}: %{y:.3f}<extra></extra>",
        showlegend=False,
    )
    measured = scatter(
        name="measured peak",
        x=[number + 1 for number in peaks],
        y=style.to_gib(np.array(list(peaks.values()))),
        yaxis="y2",
        mode="markers",
        marker={"color": style.BLUE, "size": 7},
        hovertemplate="iteration %{x}: %{y:.4f} GiB<extra></extra>",
    )
    return Figure([loss, *_levels(levels, iterations), measured], layout)


def _levels(levels: Mapping[str, int], iterations: int) -> list[Trace]:
    """A line across the plot of memory for each."""
    return [
        scatter(
            name=name,
            x=[0, iterations],
            y=style.to_gib(np.full(2, amount_bytes)),
            yaxis="y2",
            mode="lines",
            line={"color": colour, "dash": dash, "width": 1.5},
            hovertemplate=f"{name}: %{{y:.4f}} GiB<extra></extra>",
        )
        for (name, amount_bytes), (colour, dash) in zip(levels.items(), _LINES, strict=False)
    ]
