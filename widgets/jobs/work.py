"""What an explorer does in the background: a job for each kind of work, wired to one another."""

from __future__ import annotations

from threading import Lock

from widgets import text
from widgets.background import KINDS, OPENING, SOLVING, Activity, Jobs
from widgets.choices.subject import Subject
from widgets.display import Display
from widgets.jobs.answers import Answers
from widgets.jobs.charting import Charting
from widgets.jobs.opening import Opening
from widgets.jobs.other_curves import OtherCurves
from widgets.jobs.playing import Playing
from widgets.jobs.running import Running
from widgets.jobs.writing import Writing
from widgets.traits import Traits

_OPENED_AGAIN = " A budget in bytes, or another choice for the solver, opens it again."


class Work:
    """The jobs of an explorer.

    Args:
        subject: what is explored.
        first: first budget, as ``parse_bytes`` takes it; None for the middle of the slider.
        traits: what is asked for.
        display: where all of it is shown.
        activity: where what goes on is noted.

    Attributes:
        activity: as it was given.
        jobs: a thread for each of those below, while it lasts.
        answers: schedules for the budget that is chosen.
        charting: the curve of the trade-off.
        other_curves: those beside it.
        playing: a sweep over budgets.
        running: real training steps.
        writing: files that take a model.
        opening: what comes first.
    """

    def __init__(
        self, subject: Subject, *, first: int | str | None, traits: Traits, display: Display, activity: Activity
    ) -> None:
        """Nothing is under way."""
        self._traits, self._display = traits, display
        self.activity = activity
        self.jobs = Jobs(activity, on_change=display.offer, on_stop=self._stopped, on_error=self._failed)
        processor = Lock()  # a run and the curve's searches would slow each other down
        self.answers = Answers(
            traits=traits,
            display=display,
            jobs=self.jobs,
            open_session=lambda: self.opening.start(),  # noqa: PLW0108 - made below
        )
        self._solver = self.answers.solver
        self.other_curves = OtherCurves(self._solver, traits=traits, display=display, jobs=self.jobs)
        self.charting = Charting(
            self._solver,
            traits=traits,
            display=display,
            jobs=self.jobs,
            processor=processor,
            answers=self.answers,
            others=self.other_curves,
        )
        self.playing = Playing(traits=traits, display=display, jobs=self.jobs)
        self.running = Running(
            subject,
            traits=traits,
            display=display,
            jobs=self.jobs,
            processor=processor,
            end_solving=self.cancel_solving,
        )
        self.writing = Writing(subject, display=display, jobs=self.jobs)
        self.opening = Opening(
            subject,
            first=first,
            traits=traits,
            display=display,
            jobs=self.jobs,
            answers=self.answers,
            charting=self.charting,
            other_curves=self.other_curves,
        )

    @property
    def open(self) -> bool:
        """Is there a session with the solver?"""
        return self._solver.open

    def wait(self, timeout: float | None) -> None:
        """Return when nothing goes on.

        Args:
            timeout: seconds to wait at most; None for no limit.

        Raises:
            TimeoutError: it takes longer.
            Exception: what made the last of it fail, once.
        """
        if not self.activity.wait(timeout):
            doing = next((kind for kind in KINDS if kind in self.activity), "searching for the trade-off curve")
            raise TimeoutError(f"still {doing} after {timeout} s: {self._traits.message}")
        self._display.offer()  # whoever ended the last of it may not have come to that yet
        if self.jobs.failure is not None:
            error, self.jobs.failure = self.jobs.failure, None
            raise error

    def cancel_solving(self) -> None:
        """Let a solve that goes on end with what is known."""
        if SOLVING in self.activity:
            self._solver.cancel()

    def cancel(self) -> None:
        """Stop what goes on; what was found stays."""
        self.jobs.stop()
        self.opening.give_up()
        self.cancel_solving()

    def close(self) -> None:
        """End the solver's process and the threads; what is under way ends where it next looks."""
        self.answers.close()
        self.activity.end(SOLVING)

    def _stopped(self, kind: str) -> None:
        told = _OPENED_AGAIN if kind == OPENING and not self.open else ""
        self._display.say(f"Cancelled {kind}.{told}", "warning")

    def _failed(self, kind: str, error: Exception) -> None:
        advice = "The schedule is still there." if self._traits.schedule is not None else ""
        if kind == OPENING and not self.open:
            advice = "Correct it and call explore again."
        self._display.say(text.failed(kind, error, advice=advice), "bad")
