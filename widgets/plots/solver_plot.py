"""How a solve went: the best schedule and the bounds below it, and the gap between them, over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, columns, scatter, subtitle
from widgets.scene.scene import News

_BEST = "best schedule"
_TITLES = ("Step time of the best schedule, and what no schedule beats (ms)", "Gap between them (%)")


def solver_figure(news: Sequence[News]) -> Figure:
    """Incumbent, bounds and gap; a line is as long as the solve.

    Args:
        news: of one solve, oldest first.
    """
    left, right = columns((0.6, 0.4), gap=0.08)
    layout = dict(
        **base_layout(290, "; ".join(_TITLES)),
        annotations=[subtitle(text, x=sum(x) / 2) for text, x in zip(_TITLES, (left, right), strict=True)],
        hovermode="x",
        legend={"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top"},
        xaxis=axis("time since asked (s)", rangemode="tozero", domain=left, anchor="y"),
        xaxis2=axis("time since asked (s)", rangemode="tozero", domain=right, anchor="y2"),
        yaxis=axis("", anchor="x"),
        yaxis2=axis("", rangemode="tozero", anchor="x2"),
    )
    return Figure([*_traces(news), *_gaps(news)], layout, _one_below_the_other(layout))


def _one_below_the_other(layout: dict[str, Any]) -> dict[str, Any]:
    """What the layout has instead where there is no room for plots side by side."""
    changed: dict[str, Any] = {f"xaxis{which}": layout[f"xaxis{which}"] | {"domain": [0, 1]} for which in ("", "2")}
    for which, domain in (("", [0.6, 1]), ("2", [0, 0.38])):
        changed[f"yaxis{which}"] = layout[f"yaxis{which}"] | {"domain": domain}
    titles = [subtitle(text, x=0.5, y=y) for text, y in zip(_TITLES, (1, 0.38), strict=True)]
    return {"height": 520, "annotations": titles, "legend": layout["legend"] | {"y": -0.12}, **changed}


def _traces(news: Sequence[News]) -> Iterator[Trace]:
    looks: tuple[tuple[str, Callable[[News], float | None], dict], ...] = (
        (_BEST, lambda x: x.time_ms, {"color": style.VERMILLION, "width": 2}),
        ("bound for all schedules", lambda x: x.bound_ms, {"color": style.GREEN, "width": 2, "dash": "dash"}),
        ("bound for the grouping", lambda x: x.grouping_ms, {"color": style.PURPLE, "width": 2, "dash": "dot"}),
    )
    for name, value, line in looks:
        known = [(x.elapsed_s, found) for x in news if (found := value(x)) is not None]
        trace = _line(name, known, line, "%{y:,.1f} ms")
        if name == _BEST:
            finders = [x.finder.value if x.finder else "" for x in news if x.time_ms is not None]
            trace |= {"text": finders, "hovertemplate": f"{name} %{{y:,.1f}} ms, %{{text}}<extra></extra>"}
        yield trace


def _gaps(news: Sequence[News]) -> Iterator[Trace]:
    known = [
        (x.elapsed_s, 100 * max(0.0, 1 - x.bound_ms / x.time_ms)) for x in news if x.time_ms and x.bound_ms is not None
    ]
    yield _line("gap", known, {"color": style.BLUE, "width": 2}, "%{y:.2f} %") | {"xaxis": "x2", "yaxis": "y2"}


def _line(name: str, known: Sequence[tuple[float, float]], line: dict, hover: str) -> Trace:
    return scatter(
        name=name,
        x=[x for x, _ in known],
        y=[y for _, y in known],
        mode="lines+markers",
        line=line | {"shape": "hv"},
        marker={"size": 5},
        hovertemplate=f"{name} {hover}<extra></extra>",
        cliponaxis=False,
    )
