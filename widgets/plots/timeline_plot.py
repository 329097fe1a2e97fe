"""Memory over one training step: what is allocated at each run, and for what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from explorer.analysis.aligning import aligned_runs
from explorer.device_profile import Profile
from explorer.harmless import in_figure
from explorer.measurement import Measurement
from explorer.timeline import CATEGORIES, Stage, Timeline
from explorer.units import format_bytes
from widgets import style
from widgets.plots.figure import Figure, Trace, axis, base_layout, scatter, short_path
from widgets.scene.allocations import Allocation, allocations, describe
from widgets.scene.layers import NO_MODULE, segments
from widgets.scene.step import envelope

_HEADROOM = 1.12
_TICK = 14  # characters below the axis
_BINS = 1500  # that a screen can show
_CATEGORY_NAMES = [category.value for category in CATEGORIES]
_amount = lru_cache(maxsize=8192)(format_bytes)  # the same amounts stand in run after run
_escaped = lru_cache(maxsize=8192)(in_figure)
_NAMED = 10  # tensors, where the peak is pointed at


class Captions:
    """What is told of the run that is pointed at; what is the same in every schedule is written once.

    Args:
        profile: of all timelines that are told of.
    """

    def __init__(self, profile: Profile) -> None:
        """Nothing is written yet."""
        self.profile = profile
        self._written: dict[tuple[int, str, Stage], tuple[str, str]] = {}

    def of(self, timeline: Timeline, rows: np.ndarray) -> list[str]:
        """Layer, operator, what it does, and the bytes of each category, for these runs."""
        totals, amounts = timeline.total_bytes[rows].tolist(), timeline.bytes[rows].tolist()
        told = []
        for row, total, parts in zip(rows.tolist(), totals, amounts, strict=True):
            run = timeline.operators[row], timeline.implementations[row], timeline.stages[row]
            if run not in self._written:
                self._written[run] = self._write(*run)
            head, made = self._written[run]
            named = [f"<br>{a} {_amount(b)}" for a, b in zip(_CATEGORY_NAMES, parts, strict=True) if b]
            told.append(f"{head}<br>total {_amount(total)}{made}{''.join(named)}")
        return told

    def _write(self, operator: int, implementation: str, stage: Stage) -> tuple[str, str]:
        """The lines before the total, and those after it on what is made."""
        found = self.profile.graph.operators[operator]
        chosen = found.implementation(implementation)
        other = "" if implementation == found.implementations[0].name else f" ({implementation})"
        took = style.format_ms(self.profile.cost(chosen).time_ms)
        made = []
        for storage in (self.profile.graph.storages[x] for x in chosen.writes):
            size = _amount(self.profile.allocated_bytes(storage))
            made.append("<br>" + _escaped(f"makes {storage.name} {describe(storage)}, {size}"))
        head = f"<b>{_escaped(found.layer or found.target)}</b><br>"
        return head + _escaped(f"{found.name}{other}, {stage.value}, {took}"), "".join(made)


def timeline_figure(
    profile: Profile,
    timeline: Timeline,
    *,
    budget_bytes: int | None,
    ceiling_bytes: int,
    measurement: Measurement | None = None,
    selected: frozenset[int] = frozenset(),
    captions: Captions | None = None,
) -> Figure:
    """Stacked areas by category over the runs of the step, with budget, peak and what was measured.

    Where there are more runs than a screen can show, the highest of some neighbours stands for them.

    Args:
        profile: of the timeline.
        timeline: to draw.
        budget_bytes: where the budget's line runs, None for no line.
        ceiling_bytes: the axis reaches at least this, so that moving the budget does not rescale it.
        measurement: of the same schedule, drawn over the prediction.
        selected: operators whose runs are marked at the upper edge.
        captions: of the same profile, kept from figure to figure to save time.
    """
    measured_bytes = 0 if measurement is None else measurement.peak_bytes
    unit = style.unit_of(max(ceiling_bytes, timeline.peak_bytes))
    most_bytes = max(ceiling_bytes, timeline.peak_bytes, budget_bytes or 0, measured_bytes)
    top = _HEADROOM * most_bytes / style.UNITS[unit]
    alive = allocations(profile, timeline, timeline.peak_run)
    step = max(1, len(timeline.operators) // _BINS)
    rows = _highest(timeline.total_bytes, step)
    traces = [
        *_stages(timeline, rows, step, top),
        *_categories(timeline, rows, step, top=top, unit=unit),
        _total(timeline, rows, step, captions=captions or Captions(profile), unit=unit),
    ]
    if selected:
        traces.append(_selected(timeline, selected, top))
    runs = len(timeline.operators)
    if budget_bytes is not None:
        traces.append(_budget(budget_bytes, runs, unit))
    if measurement is not None:
        traces.extend(_measured(timeline, measurement, unit))
    return Figure([*traces, _peak(timeline, alive, unit)], _layout(profile, timeline, top, unit))


def _layout(profile: Profile, timeline: Timeline, top: float, unit: str) -> dict:
    runs, forward = len(timeline.operators), timeline.stages.index(Stage.BACKWARD)
    ticks = segments(profile.graph, timeline)
    said = f"Memory during one training step: peak {format_bytes(timeline.peak_bytes)} of {runs} runs"
    return dict(
        **(base_layout(360, said) | {"margin": {"l": 56, "r": 12, "t": 44, "b": 68}}),
        title={"text": "Memory during one training step", "font": {"size": 13}, "x": 0, "y": 0.985, "pad": {"l": 4}},
        annotations=_phases(timeline, forward, runs),
        # Wherever one points, the run below answers.
        hovermode="x",
        hoverdistance=20,
        legend={"traceorder": "reversed", "itemwidth": 30, "maxheight": 1},
        xaxis=axis(
            "",
            range=[0, runs],
            showgrid=False,
            tickangle=-35,
            tickvals=[(segment.start + segment.end) / 2 for segment in ticks],
            ticktext=[short_path(segment.label, most=_TICK) for segment in ticks],
        ),
        yaxis=axis(f"allocated ({unit})", range=[0, top]),
    )


def _phases(timeline: Timeline, forward: int, runs: int) -> list[dict]:
    """Notes above the phases; that of an update at the end stands at the right, for it is one run of many."""
    updates = timeline.stages.count(Stage.UPDATE)
    among = " with updates" if updates > 1 else ""
    notes = [
        _note("forward", forward / 2),
        _note(f"backward{among} (hatched: recomputation)", (forward + runs) / 2),
    ]
    if updates == 1 and timeline.stages[-1] is Stage.UPDATE:
        notes.append(_note("update", runs) | {"xanchor": "right"})
    return notes


def _highest(amounts: np.ndarray, step: int) -> np.ndarray:
    """Of every ``step`` runs the one with the most in memory, which stands for them: the peak is among these."""
    if step == 1:
        return np.arange(len(amounts))
    padded = np.append(amounts, np.full(-len(amounts) % step, -1)).reshape(-1, step)
    return np.arange(len(padded)) * step + padded.argmax(axis=1)


def _stages(timeline: Timeline, rows: np.ndarray, step: int, top: float) -> Iterator[Trace]:
    """Full-height shading of the step's stages, behind everything."""
    stages = [timeline.stages[row] for row in rows.tolist()]
    for stage in Stage:
        inside = np.array([top if x is stage else 0.0 for x in stages])
        yield scatter(
            name=stage.value,
            dx=step,
            y=_closed(inside),
            mode="lines",
            line={"width": 0, "shape": "hv"},
            fill="tozeroy",
            fillcolor=style.STAGE_SHADE[stage],
            fillpattern={
                "shape": style.STAGE_HATCH[stage],
                "size": 6,
                "fillmode": "overlay",
                "fgcolor": style.VERMILLION,
                "fgopacity": 0.5,
            },
            hoverinfo="skip",
            showlegend=False,
        )


def _categories(timeline: Timeline, rows: np.ndarray, step: int, *, top: float, unit: str) -> Iterator[Trace]:
    """The stack; what is too thin to be seen is drawn but not listed."""
    for column, category in enumerate(CATEGORIES):
        amounts = style.in_unit(timeline.bytes[rows, column], unit)
        yield scatter(
            name=category.value,
            dx=step,
            y=_closed(amounts),
            mode="lines",
            line={"width": 0, "shape": "hv", "color": style.CATEGORY_COLOUR[category]},
            stackgroup="memory",
            fillcolor=style.CATEGORY_COLOUR[category],
            fillpattern={"shape": style.CATEGORY_HATCH.get(category, ""), "size": 5, "fillmode": "overlay"},
            hoverinfo="skip",
            showlegend=bool(amounts.max() > top / 200),
        )


def _total(timeline: Timeline, rows: np.ndarray, step: int, *, captions: Captions, unit: str) -> Trace:
    """The stack's outline, which answers when pointed at."""
    operators = (captions.profile.graph.operators[timeline.operators[row]] for row in rows.tolist())
    return scatter(
        name="total",
        x0=0.5 * step,
        dx=step,
        y=style.in_unit(timeline.total_bytes[rows], unit),
        text=captions.of(timeline, rows),
        customdata=[x.layer or NO_MODULE for x in operators],
        mode="lines",
        line={"width": 1, "color": "rgba(60, 60, 60, 0.55)", "shape": "hvh"},
        showlegend=False,
        hovertemplate="%{text}<extra></extra>",
    )


def _selected(timeline: Timeline, selected: frozenset[int], top: float) -> Trace:
    """Triangles at the upper edge over the runs of the selected layer."""
    marked = np.array([operator in selected for operator in timeline.operators])
    return scatter(
        name="selected layer",
        x=np.flatnonzero(marked) + 0.5,
        y=np.full(int(marked.sum()), top),
        mode="markers",
        marker={"symbol": "triangle-down", "size": 9, "color": "#000000", "line": {"width": 1, "color": "#ffffff"}},
        cliponaxis=False,
        hoverinfo="skip",
    )


def _budget(budget_bytes: int, runs: int, unit: str) -> Trace:
    return scatter(
        name="budget",
        x=[0, runs],
        y=[budget_bytes / style.UNITS[unit]] * 2,
        mode="lines",
        line={"width": 2, "color": style.VERMILLION, "dash": "dash"},
        hovertemplate=f"budget {style.format_memory(budget_bytes)}<extra></extra>",
    )


def _peak(timeline: Timeline, alive: Sequence[Allocation], unit: str) -> Trace:
    """The highest point, which tells what is alive there."""
    told = [f"{format_bytes(x.bytes)} {x.name}{f' of {x.layer}' if x.layer else ''}" for x in alive[:_NAMED]]
    if len(alive) > _NAMED:
        told.append(f"and {len(alive) - _NAMED} more")
    run, runs = timeline.peak_run, len(timeline.operators)
    return scatter(
        name="peak",
        x=[run + 0.5],
        y=[timeline.peak_bytes / style.UNITS[unit]],
        text=[f"peak {style.format_memory(timeline.peak_bytes)}"],
        # On the side where there is room.
        textposition="top right" if run < runs / 2 else "top left",
        mode="markers+text",
        marker={"symbol": "diamond", "size": 9, "color": "#000000", "line": {"width": 1.5, "color": "#ffffff"}},
        textfont={"size": 12},
        cliponaxis=False,
        showlegend=False,
        hovertext="<br>".join([f"<b>peak {style.format_memory(timeline.peak_bytes)}</b>", *map(in_figure, told)]),
        hovertemplate="%{hovertext}<extra></extra>",
    )


def _measured(timeline: Timeline, measurement: Measurement, unit: str) -> Iterator[Trace]:
    """What was measured, as a line; nothing where no event was seen."""
    runs = aligned_runs(timeline, measurement)
    if not len(runs):
        return
    seen = envelope(runs, measurement.allocated_bytes)
    yield scatter(
        name="measured",
        x=runs[seen],
        y=style.in_unit(measurement.allocated_bytes[seen], unit),
        mode="lines",
        line={"width": 2, "color": style.GREEN, "shape": "hv"},
        hovertemplate=f"measured %{{y:.4~r}} {unit}<extra></extra>",
    )


def _note(words: str, x: float) -> dict:
    """A word at the top edge of the plot."""
    return {"text": words, "x": x, "y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False, "yshift": 1}


def _closed(amounts: np.ndarray) -> np.ndarray:
    """Values of n runs for their n + 1 edges."""
    return np.append(amounts, amounts[-1:])
