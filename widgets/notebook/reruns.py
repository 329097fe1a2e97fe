"""What the cells of a notebook show: one that runs again should not leave behind what it made before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from IPython.core.getipython import get_ipython


@dataclass(frozen=True)
class CellRun:
    """One run of a cell.

    Attributes:
        cell: its id.
        request: what the page sent to run it.
    """

    cell: str
    request: str


class Closable(Protocol):
    """What a cell may make and show."""

    def close(self) -> None:
        """Free it."""
        ...


@dataclass
class _Shown:
    made_by: CellRun | None
    by: dict[str, CellRun] = field(default_factory=dict)  # the run of each cell that shows it


_SHOWN: WeakKeyDictionary[Closable, _Shown] = WeakKeyDictionary()


def present_run() -> CellRun | None:
    """Of the cell that runs now; None where no cell does, or no notebook tells which."""
    ask = getattr(getattr(get_ipython(), "kernel", None), "get_parent", None)
    request = ask() if ask is not None else {}
    cell = request.get("metadata", {}).get("cellId")
    return None if cell is None else CellRun(cell, request["header"]["msg_id"])


def note_shown(what: Closable, *, made_by: CellRun | None) -> None:
    """Note that the cell that runs now shows this, and close what that replaces.

    That is what an earlier run of the same cell made, where no cell shows it any more and no variable is it.

    Args:
        what: shown by this cell, from now on.
        made_by: ``present_run`` when it was made.
    """
    here = present_run()
    if here is None:
        return
    for shown in _SHOWN.values():
        if shown.by.get(here.cell, here) != here:
            del shown.by[here.cell]  # the page cleared what a cell showed when it ran again
    _SHOWN.setdefault(what, _Shown(made_by)).by[here.cell] = here
    for other, shown in list(_SHOWN.items()):
        if not shown.by and _replaced(shown.made_by, made_by) and not _named(other):
            del _SHOWN[other]
            other.close()


def _replaced(before: CellRun | None, now: CellRun | None) -> bool:
    return before is not None and now is not None and before.cell == now.cell and before != now


def _named(what: object) -> bool:
    """Is it the value of a variable of the notebook? Those of IPython itself, the former outputs, do not count."""
    variables = getattr(get_ipython(), "user_ns", {})
    return any(value is what for name, value in list(variables.items()) if not name.startswith("_"))
