"""What differs between two schedules of one profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from explorer.analysis.explaining import TensorExplanation, explain_all
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.timeline import Timeline
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

    @classmethod
    def shown(cls, profile: Profile, solution: Solution | None, timeline: Timeline | None) -> Held | None:
        """The schedule of an answer, explained once; None where it has none."""
        if solution is None or solution.schedule is None or timeline is None:
            return None
        return _held(_Very(profile), _Very(solution), _Very(timeline))


class _Very:
    """An object as a key: the very one, for comparing schedules of thousands of operators takes long."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Very) and self.what is other.what

    def __hash__(self) -> int:
        return id(self.what)


@lru_cache(maxsize=2)
def _held(profile: _Very, solution: _Very, timeline: _Very) -> Held:
    budget = style.format_memory(solution.what.budget_bytes)
    label = f"{budget}, {style.format_ms(timeline.what.time_ms)}"
    return Held.of(profile.what, label, solution.what.schedule, timeline.what)


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
    memory = partial(style.format_memory, of=max(one.peak_bytes, two.peak_bytes))
    more_bytes = two.peak_bytes - one.peak_bytes
    yield "peak memory", memory(one.peak_bytes), memory(two.peak_bytes), _signed(more_bytes, memory)
    for name, before, after in (
        ("step time", one.time_ms, two.time_ms),
        ("recomputing", one.recompute_time_ms, two.recompute_time_ms),
    ):
        yield name, style.format_ms(before), style.format_ms(after), _signed(after - before, style.format_ms)
    counts = [sum(x.made_again > 0 for x in held.explained) for held in (reference, other)]
    yield "tensors made again", str(counts[0]), str(counts[1]), f"{counts[1] - counts[0]:+d}"
    kept = [sum(x.allocated_bytes for x in held.explained if x.fate.value == "kept") for held in (reference, other)]
    yield "kept for the backward pass", *map(memory, kept), _signed(kept[1] - kept[0], memory)


def _signed(amount: float, told: object) -> str:
    assert callable(told), "a way to write amounts"
    sign = "+" if amount > 0 else "−" if amount < 0 else "±"
    return f"{sign}{told(abs(amount))}"
