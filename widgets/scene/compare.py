"""What differs between two schedules of one profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from explorer.analysis.explaining import TensorExplanation, explain_all
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.timeline import Timeline
from explorer.units import format_bytes
from widgets import style


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


def _signed(amount: float, told: object) -> str:
    assert callable(told), "a way to write amounts"
    sign = "+" if amount > 0 else "−" if amount < 0 else "±"
    return f"{sign}{told(abs(amount))}"
