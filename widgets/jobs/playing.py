"""A sweep over budgets."""

from __future__ import annotations

import time

from widgets import style
from widgets.background import PLAYING, SOLVING, Jobs
from widgets.choices.budget import sweep
from widgets.display import Display
from widgets.traits import Traits

_SHOWN_S = 0.8  # at least, each budget of a sweep
_POLL_S = 0.05


class Playing:
    """Chooses one budget after the other, from PyTorch's peak to the smallest."""

    def __init__(self, *, traits: Traits, display: Display, jobs: Jobs) -> None:
        """Nothing plays."""
        self._traits, self._display, self._jobs = traits, display, jobs

    def start(self) -> None:
        """Play in the background, until it is stopped or someone chooses another budget.

        Raises:
            ValueError: there is one budget alone.
        """
        whole = self._display.present.keep_all.peak_bytes
        if self._display.smallest_bytes >= whole:
            raise ValueError(
                "there is nothing to sweep: no schedule is known that takes less than the "
                f"{style.format_memory(whole)} of plain PyTorch"
            )
        self._jobs.ask(PLAYING, self._play)

    def _play(self) -> None:
        for budget_bytes in sweep(self._display.smallest_bytes, self._display.present.keep_all.peak_bytes):
            self._traits.set_trait("budget_bytes", budget_bytes)
            began = time.monotonic()
            while time.monotonic() - began < _SHOWN_S or (
                SOLVING in self._jobs.activity and self._display.present.budget_bytes != budget_bytes
            ):
                time.sleep(_POLL_S)
                if self._jobs.stopped or self._traits.budget_bytes != budget_bytes:
                    return
