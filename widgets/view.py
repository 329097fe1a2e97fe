"""The widgets of one explorer, and how they are redrawn. Called from several threads, one at a time."""

from __future__ import annotations

import html
from collections.abc import Sequence
from threading import RLock

import ipywidgets

from explorer.device_profile import Profile
from explorer.measurement import Measurement
from explorer.simulation import Timeline
from explorer.solution import Solution
from widgets import text
from widgets.controls import Controls
from widgets.figures import Plots
from widgets.overview import overview_figure
from widgets.timeline_plot import timeline_figure
from widgets.trade_off_plot import TradeOff


class View:
    """Controls above the plots, in one box."""

    def __init__(self, title: str) -> None:
        """Show ``title`` until a profile is there."""
        self.controls = Controls()
        self.plots = Plots()
        self._lock = RLock()
        self._heading = ipywidgets.HTML(html.escape(title))
        self.box = ipywidgets.VBox([self._heading, self.controls.box, self.plots])
        self.box.add_class("schedule-explorer")

    def show_plain(self, profile: Profile, keep_all: Timeline, points: Sequence[Solution]) -> None:
        """Draw what is known before any solve: the plain step and the instant curve."""
        with self._lock:
            self._profile, self._known = profile, TradeOff(keep_all, tuple(points))
            self._heading.value = html.escape(text.heading(profile))
            peaks = [point.peak_bytes for point in points if point.peak_bytes is not None]
            self.controls.slider.set_range(min(peaks, default=keep_all.peak_bytes), keep_all.peak_bytes)
            self.plots.show(
                timeline=timeline_figure(profile, keep_all, budget_bytes=None, ceiling_bytes=keep_all.peak_bytes),
                overview=overview_figure(profile, self._known, keep_all),
            )

    def show(self, solution: Solution, timeline: Timeline | None, measurement: Measurement | None) -> None:
        """Draw a solution.

        Args:
            solution: to draw.
            timeline: of its schedule; None where it has none, and then the plain step stands against the budget.
            measurement: of its schedule; None before a run.
        """
        with self._lock:
            keep_all = self._known.keep_all
            drawn = keep_all if timeline is None else timeline
            self._known = self._known.with_answer(solution)
            figure = timeline_figure(
                self._profile,
                drawn,
                budget_bytes=solution.budget_bytes,
                ceiling_bytes=keep_all.peak_bytes,
                measurement=measurement,
            )
            self.plots.show(timeline=figure, overview=overview_figure(self._profile, self._known, drawn))
            self.controls.figures.value = text.figures(self._profile, keep_all, solution, timeline, measurement)

    def close(self) -> None:
        """Remove everything from the page and free it."""
        with self._lock:
            for widget in _all(self.box):
                widget.close()


def _all(box: ipywidgets.Widget) -> list[ipywidgets.Widget]:
    """A widget and all below it, the lowest first."""
    below = [found for child in getattr(box, "children", ()) for found in _all(child)]
    return [*below, box]
