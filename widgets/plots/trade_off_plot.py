"""Memory against overhead, as beside the timeline: where the schedule stands among those that other budgets allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from explorer.solution import Solution
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, scatter
from widgets.scene.curve import OURS
from widgets.scene.trade_off import TradeOff

_POINT = "%{{y:.4~r}} {unit}, %{{x:+.1f}} %<extra></extra>"
_LOOKS = (
    (style.ORANGE, "dash", "x"),
    (style.GREEN, "dot", "cross"),
    (style.PURPLE, "dashdot", "star"),
    (style.SKY, "longdash", "triangle-down"),
    (style.VERMILLION, "longdashdot", "hexagon"),
)


def trade_off_figure(known: TradeOff) -> Figure:
    """Extra time against peak memory; each point's ``customdata`` is the budget that leads to it, in bytes."""
    title = "Extra time against memory"
    layout = dict(
        **base_layout(310, title),
        title={"text": title, "font": {"size": 13}, "x": 0, "y": 0.985, "pad": {"l": 4}},
        legend={"x": 1, "y": 1, "xanchor": "right", "yanchor": "top"},
        xaxis=axis("extra time (%)", rangemode="tozero"),
        yaxis=axis(f"peak memory ({_unit(known)})"),
        hovermode="closest",
    )
    return Figure(list(_traces(known)), layout)


def _traces(known: TradeOff) -> Iterator[Trace]:
    """The curve, the plain step, the current schedule and the bound below it."""
    yield _trace(
        known,
        OURS,
        _points(known, known.best),
        f"{OURS}: ",
        mode="lines+markers",
        line={"color": style.BLUE, "width": 2, "shape": "vh"},
        marker={"size": 5, "color": style.BLUE},
    )
    for number, (title, solutions) in enumerate(known.others):
        colour, dash, symbol = _LOOKS[number % len(_LOOKS)]
        yield _trace(
            known,
            title,
            sorted(_points(known, solutions)),
            f"{title}: ",
            mode="lines+markers",
            line={"color": colour, "width": 1.5, "shape": "vh", "dash": dash},
            marker={"size": 6, "color": colour, "symbol": symbol},
        )
    current = known.current if known.current is not None and known.current.schedule is not None else None
    bound_ms = None if current is None else current.bound_ms()
    if current is not None and bound_ms is not None:
        yield _trace(
            known,
            "proven bound",
            [(current.budget_bytes, known.overhead(bound_ms))],
            "no schedule takes less: ",
            marker={"symbol": "triangle-up", "size": 9, "color": style.GREEN},
        )
    yield _trace(
        known,
        "plain PyTorch",
        [(known.keep_all.peak_bytes, 0.0)],
        "plain PyTorch: ",
        marker={"symbol": "square", "size": 9, "color": style.PURPLE},
    )
    if current is not None:
        yield _trace(
            known,
            "this schedule",
            _points(known, [current]),
            "this schedule: ",
            marker={
                "symbol": "diamond",
                "size": 13,
                "color": style.VERMILLION,
                "line": {"width": 1, "color": "#ffffff"},
            },
        )


def _unit(known: TradeOff) -> str:
    return style.unit_of(known.keep_all.peak_bytes)


def _points(known: TradeOff, solutions: Iterable[Solution]) -> list[tuple[int, float]]:
    return [
        (x.peak_bytes, known.overhead(x.time_ms))
        for x in solutions
        if x.peak_bytes is not None and x.time_ms is not None
    ]


def _trace(
    known: TradeOff, name: str, points: list[tuple[int, float]], hover: str, *, mode: str = "markers", **look: Any
) -> Trace:
    return scatter(
        name=name,
        x=[overhead for _, overhead in points],
        y=[peak / style.UNITS[_unit(known)] for peak, _ in points],
        customdata=[peak for peak, _ in points],
        mode=mode,
        hovertemplate=hover + _POINT.format(unit=_unit(known)),
        cliponaxis=False,
        **look,
    )
