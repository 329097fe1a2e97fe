"""The widget that says what goes on."""

from __future__ import annotations

import anywidget
import traitlets

from widgets.elements.frontend_file import widget_script


class StatusLine(anywidget.AnyWidget):
    """A sentence in a live region, with a progress bar while there is progress to show.

    It sends a message, of no interest by itself, when a page has built it: all widgets around it are built by then.
    """

    _esm = widget_script("status_line.js")
    text = traitlets.Unicode().tag(sync=True)
    tone = traitlets.Enum(("busy", "good", "warning", "bad"), "busy").tag(sync=True)
    progress = traitlets.Float(None, allow_none=True).tag(sync=True)
