"""Telling observers of traits what has changed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import traitlets


class _Here(threading.local):
    """What goes on in one thread."""

    told = 0  # observers that are being called, one within the other
    held: list[Any] | None = None
    failed = False  # one of them, since this was last reset


class Told(traitlets.HasTraits):
    """Traits that only their object sets (read-only ones) change together, and what an observer raises ends there.

    Whoever sets them, often a thread in the background, has more to do than the observers know.
    """

    def __init__(self) -> None:
        """Nobody is told anything."""
        self._here = _Here()
        super().__init__()

    @property
    def telling(self) -> bool:
        """Is an observer of such a trait being called by this thread?"""
        return self._here.told > 0

    def notify_change(self, change: Any) -> None:
        """Call the observers of a trait."""
        name = change["name"]
        if not getattr(type(self), name).read_only:
            super().notify_change(change)
        elif self._here.held is not None:
            self._here.held.append(change)
        else:
            self._here.told += 1
            try:
                super().notify_change(change)
            except Exception as error:  # noqa: BLE001 - whatever a user's observer raises
                self._here.failed = True
                self._observer_failed(name, error)
            finally:
                self._here.told -= 1

    def _set_together(self, values: Mapping[str, Any]) -> bool:
        """Set read-only traits by name; their observers are called when all have their values. False if one raised."""
        self._here.held = held = []
        try:
            for name, value in values.items():
                self.set_trait(name, value)
        finally:
            self._here.held = None
        self._here.failed = False
        for change in held:
            self.notify_change(change)
        return not self._here.failed

    def _observer_failed(self, name: str, error: Exception) -> None:
        """Say that an observer of a read-only trait raised something."""
        raise NotImplementedError
