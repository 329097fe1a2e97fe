"""The controls above the plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from threading import RLock
from typing import Any

import anywidget
import ipywidgets
import traitlets

from widgets.budget import presets
from widgets.downloads import Downloads
from widgets.figures import frontend

_STEPS = 160
_DOWNLOAD = [{"title": "", "buttons": [{"key": "schedule", "label": "Save schedule", "name": "Save schedule"}]}]


class BudgetSlider(anywidget.AnyWidget):
    """A slider over bytes with marks, an entry and presets; reports a value when the handle rests, not while it moves.

    ipywidgets' own slider gives its handle no accessible name, hence this one.

    Args:
        on_typed: called with what was typed into the entry.
    """

    _esm = frontend("budget_slider.js")
    _css = frontend("style.css")
    budget_bytes = traitlets.Int(0).tag(sync=True)
    minimum_bytes = traitlets.Int(0).tag(sync=True)
    maximum_bytes = traitlets.Int(1).tag(sync=True)
    step_bytes = traitlets.Int(1).tag(sync=True)
    plain_bytes = traitlets.Int(0).tag(sync=True)
    marks = traitlets.List().tag(sync=True)
    disabled = traitlets.Bool(True).tag(sync=True)

    def __init__(self, *, on_typed: Callable[[str], None], **more: Any) -> None:
        """Without a range."""
        super().__init__(**more)
        self.on_msg(lambda _, content, __: on_typed(content["typed"]))

    def set_range(self, minimum_bytes: int, maximum_bytes: int) -> None:
        """Let the handle run from the smallest feasible budget to at least PyTorch's peak, in whole steps."""
        step = max(1, -(-(maximum_bytes - minimum_bytes) // _STEPS))
        with self.hold_sync():
            self.plain_bytes = maximum_bytes
            self.marks = [asdict(mark) for mark in presets(minimum_bytes, maximum_bytes)]
            self.minimum_bytes = minimum_bytes
            self.step_bytes = step
            self.maximum_bytes = minimum_bytes + -(-(maximum_bytes - minimum_bytes) // step) * step


class StatusLine(anywidget.AnyWidget):
    """A sentence in a live region, with a progress bar while there is progress to show."""

    _esm = frontend("status_line.js")
    text = traitlets.Unicode().tag(sync=True)
    tone = traitlets.Enum(("busy", "good", "warning", "bad"), "busy").tag(sync=True)
    progress = traitlets.Float(None, allow_none=True).tag(sync=True)


class Controls:
    """Slider, status, buttons and the table of figures; what a click does is the explorer's business.

    Args:
        on_typed: called with what was typed as a budget.
        on_wanted: called when a visitor wants the schedule, as a download: there is no name to type then, and nothing
            that writes. None for the owner of the files, who names one.
    """

    def __init__(self, *, on_typed: Callable[[str], None], on_wanted: Callable[[str], object] | None = None) -> None:
        """Everything disabled."""
        self.slider = BudgetSlider(on_typed=on_typed, layout=ipywidgets.Layout(flex="1 1 100%", min_width="300px"))
        self.status = StatusLine()
        self._saying = RLock()  # an observer of the status may say something, too
        self.play = button("Play", "forward", "Sweep the budget from PyTorch's peak to the smallest; Cancel stops it")
        self.run = button("Run", "play", "Run real training steps with this schedule and measure them")
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
                layout=ipywidgets.Layout(width="270px"),
            )
        self.layer = ipywidgets.Dropdown(
            description="Layer",
            options=[("none", "")],
            tooltip="Layer to mark in every panel",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="220px"),
        )
        self.figures = ipywidgets.HTML()
        saving = [x for x in (self.save, self.file_name, self.download) if x is not None]
        row = ipywidgets.HBox(
            [self.slider, self.play, self.run, self.cancel, *saving, self.layer],
            layout=ipywidgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self.box = ipywidgets.VBox([row, self.status, self.figures])

    def say(self, text: str, tone: str, *, progress: float | None = None) -> None:
        """Show one sentence; ``progress`` from 0 to 1, None for no bar."""
        # Several threads say things; two in ``hold_sync`` would lose what one of them says.
        with self._saying, self.status.hold_sync():
            self.status.text, self.status.tone, self.status.progress = text, tone, progress

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


def button(text: str, icon: str, tooltip: str) -> ipywidgets.Button:
    """A button as wide as its text, disabled."""
    layout = ipywidgets.Layout(width="auto")
    return ipywidgets.Button(description=text, icon=icon, tooltip=tooltip, disabled=True, layout=layout)
