"""The step shown as one Python file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from explorer.schedule import Schedule
from widgets.background import WRITING, Jobs
from widgets.choices.subject import Subject
from widgets.display import Display

if TYPE_CHECKING:
    from widgets.choices.apart import Example


class Writing:
    """Captures the model once more and writes what a schedule makes of its step."""

    def __init__(self, subject: Subject, *, display: Display, jobs: Jobs) -> None:
        """Nothing is written."""
        self._subject, self._display, self._jobs = subject, display, jobs

    def start(self, schedule: Schedule, take: Callable[[str], None]) -> None:
        """Write in the background; ``take`` is called with the text.

        Raises:
            ValueError: there is no model to write it for.
        """
        self._subject.check_runnable()
        if WRITING not in self._jobs.activity:
            example = self._subject.example()
            self._jobs.ask(WRITING, lambda: self._write(schedule, example, take))

    def _write(self, schedule: Schedule, example: Example | None, take: Callable[[str], None]) -> None:
        def stage(label: str, done: float) -> None:
            self._jobs.look()
            self._display.say(label, "busy", progress=done)

        written = self._subject.exported(schedule, example, stage=stage)
        self._jobs.look()
        take(written)
        self._display.say("Wrote the step as one Python file, which needs torch alone.", "good")
