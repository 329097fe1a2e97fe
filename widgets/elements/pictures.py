"""The widgets that draw a step and the curve of budgets by our own script: fast enough to follow a hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from widgets.elements.frontend_file import widget_script

STEP_FILES = ("drawing.js", "step_data.js", "step_picture.js", "walking.js")
"""What a page without a kernel needs as well."""
MOVING_LAYERS = "schedule-explorer-layers"
"""The page's event, of ``drawing.js``, with the figure of the layers for a budget that a hand moves."""


def _route(widget: anywidget.AnyWidget, handlers: dict[str, Callable[[Any], None]]) -> None:
    """Hear messages by their keys."""

    def heard(_: object, content: dict[str, Any], __: object) -> None:
        for key, handler in handlers.items():
            if key in content:
                handler(content[key])

    widget.on_msg(heard)


class StepView(anywidget.AnyWidget):
    """Memory over a step, with a playhead, layers below it and a budget that can be dragged.

    Args:
        on_pick: called with a layer that was clicked.
        on_budget: called with a budget in bytes that was dragged to.
        outline_of: called with the key of a schedule, returns its columns as the page has them; None for none.
        on_walk: called with the run of the playhead, and first and last run of a stretch that is chosen; or None.
    """

    _esm = widget_script(*STEP_FILES, "timeline.js")
    table = traitlets.Unicode().tag(sync=True)
    step = traitlets.Unicode().tag(sync=True)
    known = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(
        self,
        *,
        on_pick: Callable[[Any], None],
        on_budget: Callable[[Any], None],
        outline_of: Callable[[str], dict[str, Any] | None],
        on_walk: Callable[[int | None, list[int] | None], None],
    ) -> None:
        """Empty until something is drawn."""
        super().__init__()

        def send(key: str) -> None:
            if (found := outline_of(key)) is not None:
                self.send({"key": key, "outline": found})

        _route(self, {"picked": on_pick, "budget": on_budget, "want": send})
        self.on_msg(lambda _, content, __: "walked" in content and on_walk(content["walked"], content.get("range")))


class CurveView(anywidget.AnyWidget):
    """Extra time against memory, on the same axis of memory as a ``StepView`` beside it.

    Args:
        on_budget: called with a budget in bytes, of a point that was chosen or that was dragged to.
    """

    _esm = widget_script("drawing.js", "curve.js")
    known = traitlets.Unicode().tag(sync=True)

    def __init__(self, *, on_budget: Callable[[Any], None]) -> None:
        """Empty until something is drawn."""
        super().__init__()
        _route(self, {"budget": on_budget})


class Headline(anywidget.AnyWidget):
    """The answer in a line; while a hand moves the budget, that of the nearest schedule known.

    Attributes:
        text: the line.
        note: what there is to say of it.
        known: peaks in bytes, times in ms and keys of schedules, and what the plain step takes, as JSON.
    """

    _esm = widget_script("drawing.js", "headline.js")
    text = traitlets.Unicode().tag(sync=True)
    note = traitlets.Unicode().tag(sync=True)
    known = traitlets.Unicode().tag(sync=True)

    def tell(self, text: str, note: str, *, known: str) -> None:
        """Show another answer."""
        with self.hold_sync():
            self.text, self.note, self.known = text, note, known


class GraphView(anywidget.AnyWidget):
    """Modules as boxes with what becomes of their tensors.

    Args:
        on_pick: called with a layer that was clicked.
    """

    _esm = widget_script("drawing.js", "graph.js")
    graph = traitlets.Unicode().tag(sync=True)
    selection = traitlets.Unicode().tag(sync=True)

    def __init__(self, *, on_pick: Callable[[Any], None]) -> None:
        """Empty until something is drawn."""
        super().__init__()
        _route(self, {"picked": on_pick})
