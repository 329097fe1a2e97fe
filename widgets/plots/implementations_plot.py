"""Memory against time of an operator's implementations (MONeT's Figure 7)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from explorer.harmless import in_figure
from explorer.units import format_bytes
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, columns, scatter, subtitle
from widgets.plots.labels import Named, places
from widgets.scene.implementations import Part, Way, differ_in_workspace_alone

_WIDTH = 692.0  # pixels of all plots together where they barely are side by side (760 in plot.js, less margins)
_ONE_BELOW_ANOTHER = (360.0, 520.0, 692.0)  # likewise, of one where they are not
_HEIGHT, _HEIGHT_OF_MANY, _AROUND = 180, 260, 110  # pixels of a plot, of one with many points, and around it
_BETWEEN = 75  # pixels between plots one below another
_FEW, _MANY = 4, 10  # points
_GAP = 0.05
_CHARACTER = 5.6
_NAMES = 3  # of points in one place that are written; the others are told of when pointed at
_LEFT, _ABOVE = 0.06, 1.2  # of the longest of an axis: room beside it
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
_DASHES = ("dot", "dash", "dashdot", "longdash")


def implementations_figure(label: str, ways: Sequence[Way]) -> Figure:
    """A plot for each part that there are several ways for, chosen ones marked by a filled diamond.

    What differs in a number alone ("in 4 parts", "in 16 parts") is joined by a line.

    Args:
        label: of what the ways are for.
        ways: of one operator's calls, as ``Choices.ways`` has them.
    """
    parts = [part for part in Part if sum(way.part is part for way in ways) > 1]
    ways = [way for way in ways if way.part in parts]
    quantity = "workspace" if differ_in_workspace_alone(ways) else "memory added"
    counts = [sum(way.part is part for way in ways) for part in parts]
    spans = columns([float(min(max(x, _FEW), _MANY)) for x in counts], gap=_GAP) if parts else []
    height = _HEIGHT_OF_MANY if max(counts, default=0) > _MANY else _HEIGHT
    traces: list[Trace] = []
    axes: dict[str, dict] = {}
    for number, (part, span) in enumerate(zip(parts, spans, strict=True)):
        which = str(number + 1) if number else ""
        plot = _Plot.of(
            [x for x in ways if x.part is part], quantity, width=(span[1] - span[0]) * _WIDTH, height=height
        )
        drawn = plot.traces(legend=number == 0)
        traces += (x | {"xaxis": f"x{which}", "yaxis": f"y{which}"} for x in drawn)
        # Other points may lie outside what the reader has zoomed to.
        title = f"{quantity} ({plot.unit})"
        axes[f"xaxis{which}"] = axis(
            title, range=plot.x_range, domain=span, anchor=f"y{which}", uirevision=label, nticks=int(plot.width // 40)
        )
        axes[f"yaxis{which}"] = axis(
            "" if number else "time (ms)", range=plot.y_range, anchor=f"x{which}", uirevision=label
        )
    titles = [f"{part.value}{_note(part, ways)}" for part in parts]
    layout = dict(
        **base_layout(height + _AROUND, f"{quantity.capitalize()} against time of the implementations of {label}"),
        annotations=[subtitle(title, x=sum(span) / 2) for title, span in zip(titles, spans, strict=True)],
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": -40 / height, "yanchor": "top"},
        **axes,
    )
    return Figure(traces, layout, _one_below_another(titles, height, axes) if len(parts) > 1 else {})


def _one_below_another(titles: Sequence[str], height: int, axes: dict[str, dict]) -> dict[str, Any]:
    """What the layout has instead where there is no room for plots side by side."""
    count = len(titles)
    all_pixels = count * height + (count - 1) * _BETWEEN
    tops = [1 - number * (height + _BETWEEN) / all_pixels for number in range(count)]
    changed: dict[str, Any] = {}
    for number, top in enumerate(tops):
        which = str(number + 1) if number else ""
        changed[f"xaxis{which}"] = axes[f"xaxis{which}"] | {"domain": [0, 1]}
        across = {"domain": [max(0.0, top - height / all_pixels), top], "title": axes["yaxis"]["title"]}
        changed[f"yaxis{which}"] = axes[f"yaxis{which}"] | across
    return {
        "height": all_pixels + _AROUND,
        "annotations": [subtitle(title, x=0.5, y=top) for title, top in zip(titles, tops, strict=True)],
        "legend": {"orientation": "h", "x": 0, "y": -40 / all_pixels, "yanchor": "top"},
        **changed,
    }


def _note(part: Part, ways: Sequence[Way]) -> str:
    again = any(way.runs for way in ways if way.part is Part.RECOMPUTE)
    return " (not recomputed)" if part is Part.RECOMPUTE and not again else ""


@dataclass(frozen=True)
class _Plot:
    """The ways for one part, by memory and time.

    Attributes:
        ways: to draw.
        memory: of each, in ``unit``.
        unit: of memory.
        width: of the plot, in pixels, where plots barely are side by side.
        height: of the plot, in pixels.
    """

    ways: Sequence[Way]
    memory: Sequence[float]
    unit: str
    width: float
    height: int

    @classmethod
    def of(cls, ways: Sequence[Way], quantity: str, *, width: float, height: int) -> _Plot:
        amounts = [x.workspace_bytes if quantity == "workspace" else x.added_bytes for x in ways]
        # 2,000 MiB are read more easily beside 400 MiB than 1.95 GiB.
        unit = next((name for name, size in style.UNITS.items() if max(amounts) >= 4 * size), "MiB")
        return cls(ways, [x / style.UNITS[unit] for x in amounts], unit, width, height)

    @property
    def widest(self) -> float:
        return max(self.memory) or 1.0

    @property
    def longest(self) -> float:
        return max(way.time_ms for way in self.ways) or 1.0

    @property
    def x_range(self) -> list[float]:
        return [-_LEFT * self.widest, _ABOVE * self.widest]

    @property
    def y_range(self) -> list[float]:
        return [0, _ABOVE * self.longest]

    def traces(self, *, legend: bool) -> Iterator[Trace]:
        """Lines, what was not chosen, what was; both are always listed, so that the legend is the same for all."""
        yield from self._lines()
        names = self._names()
        free = {"symbol": "circle-open", "size": 9, "color": style.BLUE, "line": {"width": 2}}
        taken = {
            "symbol": "diamond",
            "size": 13,
            "color": style.VERMILLION,
            "line": {"width": 1, "color": "#ffffff"},
        }
        for name, chosen, marker in (("to be had", False, free), ("chosen", True, taken)):
            members = [i for i, way in enumerate(self.ways) if bool(way.runs) is chosen]
            yield scatter(
                name=name,
                legendgroup=name,
                showlegend=legend,
                x=[self.memory[i] for i in members],
                y=[self.ways[i].time_ms for i in members],
                # Else plotly mistakes one for another where the number of empty names changes, and drops some.
                ids=[self.ways[i].plain_name for i in members],
                text=["<br>".join(map(in_figure, names[i][0])) if i in names else "" for i in members],
                textposition=[names[i][1] if i in names else "middle right" for i in members],
                textfont={"size": 10},
                mode="markers+text",
                marker=marker,
                hovertext=[_hover(self.ways[i]) for i in members],
                hovertemplate="%{hovertext}<extra></extra>",
                cliponaxis=False,
            )

    def _lines(self) -> Iterator[Trace]:
        for number, members in enumerate(self._series().values()):
            yield scatter(
                name="differ in a number",
                x=[self.memory[i] for i in members],
                y=[self.ways[i].time_ms for i in members],
                mode="lines",
                line={"width": 1, "color": style.TEXT, "dash": _DASHES[number % len(_DASHES)]},
                hoverinfo="skip",
                showlegend=False,
                cliponaxis=False,
            )

    def _series(self) -> dict[str, list[int]]:
        """Ways whose names are equal but for a number, by that number."""
        found: dict[str, list[int]] = {}
        for i, way in enumerate(self.ways):
            if len(_NUMBER.findall(way.plain_name)) == 1:
                found.setdefault(_NUMBER.sub("k", way.plain_name), []).append(i)
        return {
            name: sorted(members, key=lambda i: int(_NUMBER.findall(self.ways[i].plain_name)[0]))
            for name, members in found.items()
            if len(members) > 1
        }

    def _names(self) -> dict[int, tuple[list[str], str]]:
        """What is written beside points, and on which side.

        A series has its name at one point and numbers at the others; the chosen are named before all others.
        """
        short = {
            i: _NUMBER.findall(self.ways[i].plain_name)[0] for members in self._series().values() for i in members[1:]
        }
        together = self._together()
        order = sorted(together, key=lambda i: (not any(self.ways[j].runs for j in together[i]), i in short))
        longest = max(16, int(self.width / 1.8 / _CHARACTER)) if self.width < 300 else 34
        lines = {i: self._lines_of(together[i], short, longest) for i in order}
        x_low, x_high = self.x_range
        points = [
            Named(
                (self.memory[i] - x_low) / (x_high - x_low),
                (1 - self.ways[i].time_ms / self.y_range[1]) * self.height,
                tuple(lines[i]),
            )
            for i in order
        ]
        sides = places(points, widths=(self.width, *_ONE_BELOW_ANOTHER), height=self.height)
        return {i: (lines[i], side) for i, side in zip(order, sides, strict=True) if side is not None}

    def _together(self) -> dict[int, list[int]]:
        """Ways whose points cover one another, by the one that is drawn uppermost."""
        found: dict[int, list[int]] = {}
        for i in sorted(range(len(self.ways)), key=lambda i: self.ways[i].runs == 0):
            near = (
                j
                for j in found
                if abs(self.memory[j] - self.memory[i]) * self.width < 9 * self.widest
                and abs(self.ways[j].time_ms - self.ways[i].time_ms) * self.height < 9 * self.longest
            )
            found.setdefault(next(near, i), []).append(i)
        return found

    def _lines_of(self, members: Sequence[int], short: dict[int, str], longest: int) -> list[str]:
        chosen = [i for i in members if self.ways[i].runs]
        names = [short[i] if i in short and i not in chosen else self.ways[i].plain_name for i in members]
        names = list(dict.fromkeys(names))
        told = ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
        return wrap(told, longest)


def _hover(way: Way) -> str:
    lines = [f"<b>{in_figure(way.implementation)}</b>"]
    if way.both:
        lines.append("gradients of weight and input at once")
    lines.append(f"{style.format_ms(way.time_ms)}, workspace {format_bytes(way.workspace_bytes)}")
    over = f", {format_bytes(way.overwritten_bytes)} of it over what it reads" if way.overwritten_bytes else ""
    lines.append(f"makes {format_bytes(way.made_bytes)}{over}")
    if way.kept_bytes:
        lines.append(f"reads {format_bytes(way.kept_bytes)} of the forward pass")
    if way.runs:
        lines.append(f"chosen for {way.runs} run{'s' if way.runs > 1 else ''}")
    return "<br>".join(lines)
