"""What comes first: a profile, the plain step, a session with the solver; and what another choice changes of them."""

from __future__ import annotations

from dataclasses import replace

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Solution
from explorer.timeline import Timeline
from widgets import text
from widgets.background import OPENING, Jobs
from widgets.choices.choice import Choice
from widgets.choices.subject import Subject
from widgets.display import Display
from widgets.jobs.answers import Answers
from widgets.jobs.charting import Charting
from widgets.jobs.other_curves import OtherCurves
from widgets.scene.layers import check_layer
from widgets.scene.scene import Scene
from widgets.scene.trade_off import TradeOff
from widgets.traits import Traits


class Opening:
    """Opens what is explored, and asks the solver for something else where another choice is made.

    Args:
        subject: what is explored.
        first: first budget, as ``parse_bytes`` takes it; None for the middle of the slider.
        traits: have the choice.
        display: where the plain step is shown.
        jobs: where it is opened.
        answers: whose solver gets a session, and which are asked for then.
        charting: begun here, and left to itself.
        other_curves: shown where some were asked for before.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        first: int | str | None,
        traits: Traits,
        display: Display,
        jobs: Jobs,
        answers: Answers,
        charting: Charting,
        other_curves: OtherCurves,
    ) -> None:
        """Nothing is open."""
        self._subject, self._first = subject, first
        self._traits, self._display, self._jobs = traits, display, jobs
        self._answers, self._charting, self._other_curves = answers, charting, other_curves
        self._solver = answers.solver
        self._used: Choice | None = None  # what the solver's session solves
        self._tried = traits.choice

    def start(self) -> None:
        """Open in the background, or take over the present choice."""
        self._jobs.ask(OPENING, self._open, again=self._outdated)

    def _outdated(self) -> bool:
        """Was the solver asked for something else than its session solves?"""
        return self._tried != self._traits.choice and not self._display.closed

    def give_up(self) -> None:
        """Back to the choice that the solver's session solves: whoever cancels keeps what there is."""
        if self._used is not None and self._used != self._traits.choice:
            self._traits.set_trait("choice", self._used)

    def _open(self) -> None:
        with self._display.lock:
            choice = self._tried = self._traits.choice
        try:
            if self._used is not None and choice.same_session(self._used):
                self._reconfigure(choice, before=self._used)
            else:
                self._take_over(choice)
        finally:  # where it failed the session is the one before
            with self._display.lock:
                if self._used is not None:
                    self._tried = self._used
                    if self._traits.choice == choice:
                        self.give_up()

    def _take_over(self, choice: Choice) -> None:
        """Open a session; one that there is stays, with all that is shown of it, until the new one is ready."""
        self._display.say(f"Opening {self._subject.name}", "busy")
        self._solver.cancel()
        profile = choice.profile_of(self._subject.profiled(self._profiling))
        self._jobs.look()
        # First, so that its process starts while the plain step is drawn and the curve is begun.
        session = self._solver.start(profile, choice)
        try:
            plain = simulate(profile, keep_all(profile.graph))
            wrong = None if self._solver.open else self._draw_plain(profile, plain)
            ends = self._charting.begin(profile, choice)
            with self._display.lock:
                self._jobs.look()  # for the last time: who cancels later has the new one
                session, self._used = self._solver.use(session), choice
                self._charting.change_to(choice)
                if session is not None:
                    self._other_curves.forget()
                    wrong = self._draw_plain(profile, plain)
                    self._answers.forget()
                self._opened(ends)
        finally:
            if session is not None:
                session.close()
        if self._traits.curves:
            self._other_curves.show()
        self._charting.start()
        if wrong is not None:
            self._jobs.failure = wrong
            self._display.say(f"{text.failure(wrong)}. Nothing is selected.", "warning")

    def _profiling(self, done: int, total: int, label: str) -> None:
        self._jobs.look()
        self._display.say(f"Profiling {label} ({done} of {total})", "busy", progress=done / max(total, 1))

    def _draw_plain(self, profile: Profile, plain: Timeline) -> ValueError | None:
        """Show the step without recomputation, which takes no search; what is wrong with the layer selected so far."""
        with self._display.lock:
            if self._display.closed:
                return None
            wrong = self._unselected(profile)
            self._display.show(Scene(profile, plain, TradeOff(plain, ()), selection=self._traits.selection))
            return wrong

    def _unselected(self, profile: Profile) -> ValueError | None:
        """What is wrong with a layer selected before the layers were known; no layer is selected then."""
        try:
            check_layer(profile.graph, self._traits.selection)
        except ValueError as error:
            self._traits.selection = ""
            return error
        return None

    def _opened(self, ends: tuple[Solution, ...]) -> None:
        scene = self._display.present
        smallest, plain = ends[0].budget_bytes, scene.keep_all.peak_bytes
        self._display.set_range(smallest, plain)
        self._display.change(known=replace(scene.known, instant=ends))
        if self._traits.budget_bytes is None:
            first = (smallest + plain) // 2 if self._first is None else self._traits.bytes_of(self._first)
            self._traits.budget_bytes = first
        else:
            self._answers.ask()

    def _reconfigure(self, choice: Choice, *, before: Choice) -> None:
        """Ask for something else; what was found of other schedules than those allowed now is not shown any more."""
        with self._display.lock:  # an answer to what was asked before would bring it back
            self._jobs.look()
            self._solver.reconfigure(choice)
            self._used = choice
            others = choice.schedules != before.schedules
            if others:
                scene, instant = self._display.present, self._charting.change_to(choice)
                known = replace(scene.known, instant=instant, solved=(), current=None)
                self._display.scene = replace(scene, known=known)
            self._answers.ask()
            if others:  # drawn after that: someone waits
                self._display.show(self._display.present)
        self._charting.start()
