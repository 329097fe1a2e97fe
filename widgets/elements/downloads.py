"""Files that the page saves where its browser puts downloads; nothing is written where the kernel runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anywidget
import traitlets

from widgets.elements.frontend_file import widget_script

_WIDTH = 1000


class Downloads(anywidget.AnyWidget):
    """Buttons, and files that the page saves.

    Args:
        groups: a title, which may be empty, with buttons each: key, label and a name that says what it saves.
        on_wanted: called with the key of a button that is pressed.
    """

    _esm = widget_script("downloads.js")
    groups = traitlets.List().tag(sync=True)
    disabled = traitlets.Bool(True).tag(sync=True)

    def __init__(self, groups: list[dict[str, Any]], *, on_wanted: Callable[[str], object]) -> None:
        """Nothing can be saved yet."""
        super().__init__(groups=groups)
        self._on_wanted = on_wanted
        self._view = ""  # of all on the page, the one whose button was pressed last; it alone saves
        self.on_msg(lambda _, content, __: self._pressed(content))

    def save(self, name: str, content: str, kind: str) -> None:
        """Have the page save a file."""
        self.send({"view": self._view, "name": name, "content": content, "type": kind})

    def save_picture(self, name: str, figure: str, kind: str) -> None:
        """Have the page draw a figure and save that."""
        self.send({"view": self._view, "name": name, "figure": figure, "kind": kind, "width": _WIDTH})

    def _pressed(self, content: dict[str, str]) -> None:
        self._view = content["view"]
        self._on_wanted(content["wanted"])
