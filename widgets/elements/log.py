"""The widget that shows lines of text as they come."""

from __future__ import annotations

import anywidget
import traitlets

from widgets.elements.frontend_file import widget_script


class Log(anywidget.AnyWidget):
    """Lines that can be read while more come: ipywidgets' HTML would start anew, at the top, with each.

    Args:
        label: what they are, for those who cannot see it.
    """

    _esm = widget_script("log.js")
    label = traitlets.Unicode().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)

    def __init__(self, label: str) -> None:
        """No lines yet."""
        super().__init__(label=label)
