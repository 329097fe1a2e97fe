"""Real training steps with the schedule shown."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

from explorer.analysis.residuals import residual
from widgets import text
from widgets.background import RUNNING, SOLVING, Jobs
from widgets.choices.subject import Subject
from widgets.display import Display
from widgets.traits import Traits

if TYPE_CHECKING:
    from widgets.choices.apart import Example

_STEPS = 3
_ROOM = 0.9  # of the device's memory, for plain steps to run there


class Running:
    """Applies the schedule shown to the model, measures it, and shows what was measured.

    Args:
        subject: has the model.
        traits: have the schedule.
        display: where the measurement is shown.
        jobs: where it runs.
        processor: held while it is measured.
        end_solving: lets a solve that goes on end, which would slow the steps down.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        traits: Traits,
        display: Display,
        jobs: Jobs,
        processor: Lock,
        end_solving: Callable[[], None],
    ) -> None:
        """Nothing runs."""
        self._subject, self._traits, self._display, self._jobs = subject, traits, display, jobs
        self._processor, self._end_solving = processor, end_solving

    def start(self) -> None:
        """Run in the background, on a copy of the model as it is now."""
        if RUNNING not in self._jobs.activity:
            example = self._subject.example()
            self._jobs.ask(RUNNING, lambda: self._measure(example))

    def _measure(self, example: Example | None) -> None:
        self._display.say("Looking for a device to run on", "busy")
        self._subject.check_runnable()  # first: where nothing can run no solve has to end for it
        self._end_solving()
        if SOLVING in self._jobs.activity:
            self._display.say("Waiting for the solve to end before steps are measured; Cancel ends both", "busy")
            self._jobs.wait_for(SOLVING)
        with self._processor:
            self._jobs.look()
            self._measure_alone(example)

    def _measure_alone(self, example: Example | None) -> None:
        with self._display.lock:
            schedule, scene = self._traits.schedule, self._display.scene
        timeline = None if scene is None else scene.timeline
        if schedule is None or scene is None or timeline is None:
            raise ValueError("the schedule is gone: another budget was chosen, which none fits")

        def stage(label: str, done: float) -> None:
            self._jobs.look()
            self._display.say(label, "busy", progress=done)

        room = scene.profile.device.memory_bytes
        plain = room is None or scene.keep_all.peak_bytes < _ROOM * room
        measurement, plain_ms = self._subject.measured(schedule, example, steps=_STEPS, plain=plain, stage=stage)
        self._jobs.look()
        parts = residual(scene.profile, schedule, measurement, plain_step_time_ms=plain_ms)
        told = text.measured(timeline, measurement)
        with self._display.lock:
            if self._traits.schedule is not schedule:
                self._display.say(f"{told} It is no longer the schedule shown.", "warning")
                return
            self._display.change(measurement=measurement, residual=parts, plain_now_ms=plain_ms)
            self._traits.set_together({"measurement": measurement, "measured_peak": measurement.peak_bytes})
            self._display.say(told, "good")
