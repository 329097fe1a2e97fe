"""The widget that lists what was pinned."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import anywidget
import traitlets

from widgets.elements.frontend_file import widget_script


class PinsLine(anywidget.AnyWidget):
    """Names of pins in a line, each with a button that removes it; nothing where there is none.

    Args:
        on_drop: called with the pair of what was pinned, and as what.
    """

    _esm = widget_script("pins.js")
    items = traitlets.List().tag(sync=True)

    def __init__(self, *, on_drop: Callable[[tuple[str, str]], None]) -> None:
        """Nothing is pinned."""
        super().__init__()
        self.on_msg(lambda _, content, __: on_drop((content["dropped"][0], content["dropped"][1])))

    def tell(self, pairs: Iterable[tuple[str, str]]) -> None:
        """List these pairs."""
        self.items = [[name, choice] for name, choice in pairs]
