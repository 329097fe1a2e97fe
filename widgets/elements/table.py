"""The widget that shows a table with rows to choose from, by mouse or keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import anywidget
import traitlets

from widgets.elements.frontend_file import widget_script


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table.

    Attributes:
        key: what choosing the row reports; empty if it cannot be chosen.
        cells: as many as there are columns.
        folded: rows that this one stands for, shown once someone unfolds it.
    """

    key: str
    cells: tuple[str, ...]
    folded: tuple[Row, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As the page has it."""
        below = {"folded": [row.to_dict() for row in self.folded]} if self.folded else {}
        return {"key": self.key, "cells": self.cells, **below}


class Table(anywidget.AnyWidget):
    """Rows under a title.

    Args:
        title: the caption.
        columns: their names.
        folded: show the title alone until someone unfolds it.
        on_pick: called with the key of a row that is chosen.
    """

    _esm = widget_script("table.js")
    title = traitlets.Unicode().tag(sync=True)
    folded = traitlets.Bool(False).tag(sync=True)
    columns = traitlets.List(traitlets.Unicode()).tag(sync=True)
    rows = traitlets.List().tag(sync=True)
    selected = traitlets.List(traitlets.Unicode()).tag(sync=True)

    def __init__(
        self,
        title: str,
        columns: Iterable[str],
        *,
        folded: bool = False,
        on_pick: Callable[[Any], None] | None = None,
    ) -> None:
        """No rows yet."""
        super().__init__(title=title, columns=list(columns), folded=folded)
        if on_pick is not None:
            self.on_msg(lambda _, content, __: on_pick(content["picked"]))

    def fill(self, rows: Iterable[Row], *, selected: Iterable[str] = (), title: str | None = None) -> None:
        """Show these rows in place of those before, and mark those whose key is among ``selected``."""
        with self.hold_sync():
            self.rows = [row.to_dict() for row in rows]
            self.selected = list(selected)
            if title is not None:
                self.title = title
