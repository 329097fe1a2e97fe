"""The slider over budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import anywidget
import traitlets

from widgets.choices.budget import presets
from widgets.elements.frontend_file import frontend_file, widget_script

_STEPS = 160


class BudgetSlider(anywidget.AnyWidget):
    """A slider over bytes with marks, an entry and presets; reports a value when the handle rests, not while it moves.

    ipywidgets' own slider gives its handle no accessible name, hence this one.

    Args:
        on_typed: called with what was typed into the entry.
    """

    _esm = widget_script("drawing.js", "budget_slider.js")
    _css = frontend_file("style.css")
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
