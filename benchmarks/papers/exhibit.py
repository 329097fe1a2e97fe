"""What a cell of ``notebooks/papers/`` shows: a figure or a table made anew, beside what was published."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from benchmarks.provenance import read_results

RESULTS = Path(__file__).parents[1] / "results"
STORED = RESULTS / "papers"
Row = dict[str, Any]


class Label(StrEnum):
    """How far a figure or table made anew can be held against the published one."""

    EXACT = "exact"
    """Follows from definitions: the published number has to come out, or a cause is named."""
    SIMULATED = "simulated from published costs"
    """Our schedules, the costs that the authors measured."""
    ESTIMATED = "estimated"
    """Costs from a device's data sheet; bytes are exact."""
    MEASURED = "measured"
    """By us, on another device than the authors had."""
    NEEDS_A_GPU = "needs a GPU"
    """Nothing here stands for what was measured there."""
    NOT_NUMERIC = "not numeric"
    """A sketch, an algorithm, a list of names."""


@dataclass(frozen=True)
class Table:
    """Rows of text.

    Attributes:
        head: names of the columns.
        rows: as many cells each; numbers are formatted already.
        title: above it.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""

    def html(self) -> str:
        """For notebooks and pages."""
        head = "".join(f"<th>{escape(x)}</th>" for x in self.head)
        body = "".join("<tr>" + "".join(f"<td>{escape(str(x))}</td>" for x in row) + "</tr>" for row in self.rows)
        title = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __str__(self) -> str:
        """In columns."""
        lines = [[*map(str, self.head)], *([*map(str, row)] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        told = ["  ".join(x.ljust(w) for x, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        return "\n".join(([self.title] if self.title else []) + told)


@dataclass(frozen=True)
class Exhibit:
    """One figure or table of a paper, made anew.

    Attributes:
        name: ``"MONeT, Table 7"``.
        labels: of its parts, strongest first.
        tables: ours beside theirs.
        figures: by plotly.
        note: what agrees, what does not, and why.
        sources: where stored results come from.
    """

    name: str
    labels: tuple[Label, ...]
    tables: tuple[Table, ...] = ()
    figures: tuple[go.Figure, ...] = ()
    note: str = ""
    sources: tuple[str, ...] = field(default=())

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, display

        display(HTML(f"<b>{escape(self.name)}</b> · {escape(', '.join(self.labels))}"))
        for figure in self.figures:
            figure.show(config={"showSendToCloud": False})  # nothing leaves the page
        for table in self.tables:
            display(HTML(table.html()))
        paragraphs = [f"<p>{escape(x)}</p>" for x in self.note.split("\n\n") if x]
        if self.sources:
            paragraphs.append(f"<p><small>{'<br>'.join(map(escape, self.sources))}</small></p>")
        if paragraphs:
            display(HTML("".join(paragraphs)))

    def __str__(self) -> str:
        """Its tables and its note, for a terminal."""
        return "\n".join((f"{self.name}: {', '.join(self.labels)}", *map(str, self.tables), self.note, *self.sources))


def stored(name: str) -> Any:
    """Full results of ``benchmarks.papers.full``, or of another benchmark (``"../published"``)."""
    return read_results(STORED / f"{name}.json")


def is_stored(name: str) -> bool:
    """Are there such results?"""
    return (STORED / f"{name}.json").exists()


def source(name: str) -> str:
    """Where they come from: benchmark, commit, date, processor."""
    path = STORED / f"{name}.json"
    runs = json.loads(path.read_text(encoding="utf-8"))["provenance"]
    told = dict.fromkeys(_told(x) for x in runs)
    first, *rest = told
    more = f", and {len(rest)} earlier or later runs" if rest else ""
    return f"Stored: benchmarks/results/{path.resolve().relative_to(RESULTS)}; {first}{more}."


def _told(run: dict[str, Any]) -> str:
    if "note" in run:
        return str(run["note"])
    return f"{run['benchmark']} at {run['commit'][:10]}, {run['date'][:10]}, {run['cores']} × {run['processor']}"


def figure(*, title: str, x: str, y: str, height: int = 380, **layout: Any) -> go.Figure:
    """An empty figure in the look that all of them share."""
    made = go.Figure()
    made.update_layout(
        title=title,
        xaxis={"title": x},
        yaxis={"title": y},
        template="plotly_white",
        height=height,
        margin={"l": 60, "r": 10, "t": 50, "b": 50},
        **layout,
    )
    return made


def lines(made: go.Figure, series: Iterable[tuple[str, Sequence[float], Sequence[float]]], **options: Any) -> go.Figure:
    """Add a line with markers for each (name, x, y)."""
    for name, x, y in series:
        made.add_scatter(x=list(x), y=list(y), name=name, mode="lines+markers", **options)
    return made


def grid(
    panels: Sequence[tuple[str, Sequence[tuple[str, Sequence[float], Sequence[float]]]]], **options: Any
) -> go.Figure:
    """Small plots side by side, a line of the same name in the same colour.

    Args:
        panels: title and series of each.
        **options: ``x`` and ``y`` titles, ``columns``, ``title``, and ``height`` of a row.
    """
    from plotly.colors import qualitative
    from plotly.subplots import make_subplots

    columns = min(len(panels), options.get("columns", 3)) or 1
    rows = -(-len(panels) // columns) or 1
    made = make_subplots(rows=rows, cols=columns, subplot_titles=[title for title, _ in panels])
    names = list(dict.fromkeys(name for _, series in panels for name, *_ in series))
    shown: set[str] = set()
    for number, (_, series) in enumerate(panels):
        for name, x, y in series:
            colour = qualitative.D3[names.index(name) % len(qualitative.D3)]
            made.add_scatter(
                x=list(x),
                y=list(y),
                name=name,
                legendgroup=name,
                showlegend=name not in shown,
                mode="markers" if len(x) == 1 else "lines+markers",
                line={"color": colour},
                marker={"color": colour},
                row=number // columns + 1,
                col=number % columns + 1,
            )
            shown.add(name)
    made.update_xaxes(title=options.get("x", ""), title_font_size=11)
    made.update_yaxes(title=options.get("y", ""), title_font_size=11)
    made.update_layout(
        title=options.get("title", ""),
        template="plotly_white",
        height=80 + options.get("height", 280) * rows,
        margin={"l": 60, "r": 10, "t": 70, "b": 50},
    )
    return made
