"""The controls above the plots."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock

import ipywidgets

from widgets.elements.budget_slider import BudgetSlider
from widgets.elements.button import button
from widgets.elements.downloads import Downloads
from widgets.elements.pictures import Headline
from widgets.elements.pins import PinsLine
from widgets.elements.status_line import StatusLine

_STEPS = 160
_DOWNLOAD = [{"title": "", "buttons": [{"key": "schedule", "label": "Save schedule", "name": "Save schedule"}]}]


class Controls:
    """Headline, slider, status, buttons and the table of figures; what a click does is the explorer's business.

    Args:
        on_typed: called with what was typed as a budget.
        on_drop: called with a pin that is given back.
        on_wanted: called when a visitor wants the schedule, as a download: there is no name to type then, and nothing
            that writes. None for the owner of the files, who names one.
    """

    def __init__(
        self,
        *,
        on_typed: Callable[[str], None],
        on_drop: Callable[[tuple[str, str]], None],
        on_wanted: Callable[[str], object] | None = None,
    ) -> None:
        """Everything disabled."""
        self.pins = PinsLine(on_drop=on_drop)
        self.headline = Headline()
        self.slider = BudgetSlider(on_typed=on_typed, layout=ipywidgets.Layout(min_width="300px"))
        self.status = StatusLine()
        self._saying = RLock()  # an observer of the status may say something, too
        self.play = button("Sweep", "forward", "Sweep the budget from PyTorch's peak to the smallest; Cancel stops it")
        self.run = button("Measure", "tachometer", "Run real training steps with this schedule and measure them")
        self.cancel = button("Cancel", "stop", "Stop solving, profiling or running; what was found stays")
        self.save, self.file_name = None, None
        self.download = None if on_wanted is None else Downloads(_DOWNLOAD, on_wanted=on_wanted)
        if on_wanted is None:
            self.save = button(
                "Save schedule", "save", "Write the schedule as JSON to the file named beside this button"
            )
            self.file_name = ipywidgets.Text(
                placeholder="file name",
                tooltip="File name for Save schedule",
                layout=ipywidgets.Layout(width="210px"),
            )
        self.layer = ipywidgets.Dropdown(
            description="Layer",
            options=[("none", "")],
            tooltip="Layer to mark in every panel",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="220px"),
        )
        self.figures = ipywidgets.HTML()
        self.figures.add_class("schedule-explorer-figures")
        saving = [x for x in (self.save, self.file_name, self.download) if x is not None]
        row = ipywidgets.HBox(
            [self.play, self.run, self.cancel, *saving, self.layer],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self.box = ipywidgets.VBox([self.headline, self.slider, row, self.pins, self.status])

    def say(self, text: str, tone: str, *, progress: float | None = None) -> None:
        """Show one sentence; ``progress`` from 0 to 1, None for no bar."""
        # Several threads say things; two in ``hold_sync`` would lose what one of them says.
        with self._saying, self.status.hold_sync():
            self.status.text, self.status.tone, self.status.progress = text, tone, progress

    def say_again(self) -> None:
        """Send what is said; nothing else is said meanwhile, so that it is the latest."""
        with self._saying:
            self.status.send_state()

    @property
    def complains(self) -> bool:
        """Does the sentence shown say what went wrong?"""
        return self.status.tone == "bad"

    def enable(self, *, under_way: bool, playing: bool, busy: bool, schedule: bool) -> None:
        """Only offer what can be done now."""
        self.cancel.disabled = not under_way
        self.play.disabled = playing or busy or self.slider.disabled
        self.run.disabled = busy or not schedule
        for saves in (self.save, self.download):
            if saves is not None:
                saves.disabled = not schedule
