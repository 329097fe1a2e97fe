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
    unit = style.unit_of(max([*peaks.values(), *levels.values()], default=0))
    title = "Loss and peak memory of each iteration"
    layout = dict(
        **base_layout(_HEIGHT, title),
        xaxis=axis("iteration", range=[0, iterations], anchor="y2"),
        yaxis=axis("loss", domain=list(_LOSS), rangemode="tozero"),
        yaxis2=axis(f"peak memory ({unit})", domain=list(_MEMORY), rangemode="tozero"),
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
        y=style.in_unit(np.array(list(peaks.values())), unit),
        yaxis="y2",
        mode="markers",
        marker={"color": style.BLUE, "size": 7},
        hovertemplate=f"iteration %{{x}}: %{{y:.4~r}} {unit}<extra></extra>",
    )
    return Figure([loss, *_levels(levels, iterations, unit), measured], layout)


def _levels(levels: Mapping[str, int], iterations: int, unit: str) -> list[Trace]:
    """A line across the plot of memory for each."""
    return [
        scatter(
            name=name,
            x=[0, iterations],
            y=style.in_unit(np.full(2, amount_bytes), unit),
            yaxis="y2",
            mode="lines",
            line={"color": colour, "dash": dash, "width": 1.5},
            hovertemplate=f"{name}: %{{y:.4~r}} {unit}<extra></extra>",
        )
        for (name, amount_bytes), (colour, dash) in zip(levels.items(), _LINES, strict=False)
    ]
