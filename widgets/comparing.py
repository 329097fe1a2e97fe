"""What differs between two schedules of one profile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from explorer.analysis.explaining import TensorExplanation, explain_all
from explorer.device_profile import Profile
from explorer.graph import TrainingGraph
from explorer.schedule import Schedule
from explorer.simulation import Timeline
from explorer.units import format_bytes
from widgets import style
from widgets.figures import Figure, Trace, axis, base_layout, scatter
from widgets.table import Row


@dataclass(frozen=True)
class Held:
    """A schedule to compare with.

    Attributes:
        label: what it was made for.
        schedule: itself.
        timeline: its simulation.
        explained: its tensors.
    """

    label: str
    schedule: Schedule
    timeline: Timeline
    explained: tuple[TensorExplanation, ...]

    @classmethod
    def of(cls, profile: Profile, label: str, schedule: Schedule, timeline: Timeline) -> Held:
        """Explain it."""
        return cls(label, schedule, timeline, explain_all(profile, schedule))


@dataclass(frozen=True, slots=True)
class Change:
    """A tensor with which two schedules deal differently."""

    before: TensorExplanation
    after: TensorExplanation


def changes(reference: Held, other: Held) -> tuple[Change, ...]:
    """Tensors with another fate, the largest first."""
    pairs = zip(reference.explained, other.explained, strict=True)
    found = [Change(before, after) for before, after in pairs if before.fate is not after.fate]
    return tuple(sorted(found, key=lambda x: -x.after.allocated_bytes))


def differences(reference: Held, other: Held) -> Iterator[tuple[str, ...]]:
    """Lines of a table: what, of the reference, of the other, by how much they differ."""
    one, two = reference.timeline, other.timeline
    yield (
        "peak memory",
        style.format_gib(one.peak_bytes),
        style.format_gib(two.peak_bytes),
        _signed(two.peak_bytes - one.peak_bytes, format_bytes),
    )
    for name, before, after in (
        ("step time", one.time_ms, two.time_ms),
        ("recomputing", one.recompute_time_ms, two.recompute_time_ms),
    ):
        yield name, style.format_ms(before), style.format_ms(after), _signed(after - before, style.format_ms)
    counts = [sum(x.made_again > 0 for x in held.explained) for held in (reference, other)]
    yield "tensors made again", str(counts[0]), str(counts[1]), f"{counts[1] - counts[0]:+d}"
    kept = [sum(x.allocated_bytes for x in held.explained if x.fate.value == "kept") for held in (reference, other)]
    yield "kept for the backward pass", *map(format_bytes, kept), _signed(kept[1] - kept[0], format_bytes)


def compare_figure(reference: Held, other: Held) -> Figure:
    """Memory of both over the time of the step."""
    title = "Memory over the step: reference and this schedule"
    layout = dict(
        **base_layout(290, title),
        title={"text": title, "font": {"size": 13}, "x": 0, "y": 0.985, "pad": {"l": 4}},
        legend={"x": 1, "y": 1.12, "xanchor": "right", "yanchor": "top", "orientation": "h"},
        xaxis=axis("time (ms)"),
        yaxis=axis("memory (GiB)", rangemode="tozero"),
        hovermode="x unified",
    )
    drawn = (
        (reference, style.ORANGE, "dash", f"reference: {reference.label}"),
        (other, style.BLUE, "solid", f"this: {other.label}"),
    )
    return Figure([_line(held.timeline, colour, dash, name) for held, colour, dash, name in drawn], layout)


def _line(timeline: Timeline, colour: str, dash: str, name: str) -> Trace:
    starts = np.concatenate([[0.0], np.cumsum(timeline.times_ms)])
    total = style.to_gib(timeline.total_bytes)
    return scatter(
        name=name,
        x=starts,
        y=np.append(total, total[-1:]),
        mode="lines",
        line={"color": colour, "dash": dash, "width": 1.6, "shape": "hv"},
        hovertemplate="%{y:.3f} GiB",
    )


def _signed(amount: float, told: object) -> str:
    assert callable(told), "a way to write amounts"
    sign = "+" if amount > 0 else "−" if amount < 0 else "±"
    return f"{sign}{told(abs(amount))}"


def change_rows(graph: TrainingGraph, found: Iterable[Change]) -> list[Row]:
    """As lines of a table: tensor, layer that makes it, size, what it was, what it is; a line selects its layer."""
    rows = []
    for change in found:
        after = change.after
        layer = "" if after.producer is None else graph.operators[after.producer].layer
        size = format_bytes(after.allocated_bytes)
        fates = change.before.fate.value, after.fate.value
        rows.append(Row(layer, (after.storage.name, layer or "–", size, *fates)))
    return rows
