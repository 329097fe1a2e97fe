"""What a panel is, and what panels draw from."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from explorer.analysis.residuals import Residual
from explorer.device_profile import Profile
from explorer.measurement import Measurement
from explorer.reserved import Reservation
from explorer.solution import Finder, Solution
from explorer.timeline import Timeline
from widgets.scene.compare import Held
from widgets.scene.layers import members
from widgets.scene.trade_off import TradeOff

_HEADROOM = 1.08


@dataclass(frozen=True, slots=True)
class News:
    """What a solve knew at one moment.

    Attributes:
        elapsed_s: since the budget was asked for.
        time_ms: of the best schedule; None before the first.
        bound_ms: no schedule takes less; None where nothing is proven.
        grouping_ms: no schedule of the integer program's grouping takes less; None before there is one.
        finder: what found the best schedule; None before the first.
    """

    elapsed_s: float
    time_ms: float | None
    bound_ms: float | None
    grouping_ms: float | None
    finder: Finder | None = None


@dataclass(frozen=True)
class Scene:
    """All that there is to draw at one moment: a value, from which every panel makes its picture.

    Attributes:
        profile: what is explored.
        keep_all: the plain step.
        known: what the trade-off plot shows.
        solution: the answer shown; None before the first.
        timeline: of its schedule; None where it has none.
        measurement: of the same schedule; None before a run.
        residual: why that differs from the timeline; None before a run.
        plain_now_ms: of a plain step that was timed beside it; None where there was none.
        reference: a schedule that is held to compare with; None for a plain step.
        reservation: what PyTorch's caching allocator makes of the schedule; None where that is not known yet, or on a
            device without it.
        news: how the solve went so far, oldest first.
        log: what became known, a line each.
        scip_log: what SCIP said itself; empty where it was not asked.
        selection: module path of the selected layer, with all below it; empty for none.
    """

    profile: Profile
    keep_all: Timeline
    known: TradeOff
    solution: Solution | None = None
    timeline: Timeline | None = None
    measurement: Measurement | None = None
    residual: Residual | None = None
    plain_now_ms: float | None = None
    reference: Held | None = None
    reservation: Reservation | None = None
    news: tuple[News, ...] = ()
    log: tuple[str, ...] = ()
    scip_log: str = ""
    selection: str = ""

    @property
    def drawn(self) -> Timeline:
        """The schedule's timeline, or the plain step's where there is no schedule."""
        return self.keep_all if self.timeline is None else self.timeline

    @property
    def top_bytes(self) -> float:
        """Where the axis of memory ends: moving a budget below the plain step's peak does not change it."""
        measured = 0 if self.measurement is None else self.measurement.peak_bytes
        held = 0 if self.reference is None else self.reference.timeline.peak_bytes
        budget = self.budget_bytes or 0
        return _HEADROOM * max(self.keep_all.peak_bytes, self.drawn.peak_bytes, budget, measured, held)

    @property
    def budget_bytes(self) -> int | None:
        """The budget of the answer shown."""
        return None if self.solution is None else self.solution.budget_bytes

    @cached_property
    def selected(self) -> frozenset[int]:
        """Ids of the operators of the selected layer."""
        return members(self.profile.graph, self.selection)


EVERYTHING = tuple(field.name for field in fields(Scene))
"""For a panel that keeps the scene for what may be asked of it."""
