"""Schedules for the budget that is chosen: asked for, and shown as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from explorer.simulation import simulate
from explorer.solvers import SolveEvent
from widgets import style, text
from widgets.background import SOLVING, Jobs
from widgets.display import Display
from widgets.jobs.latest import Latest
from widgets.jobs.solver import Solver
from widgets.scene.scene import Scene
from widgets.traits import Traits

_OF_ANSWERS = ("measurement", "measured_peak", "solution", "predicted_peak", "schedule", "gap")
_BETTER = 0.9995
"""Of a step's time: less would not show."""


class Answers:
    """Asks the solver for the present budget, and shows what it answers.

    Args:
        traits: have the budget.
        display: where answers are shown.
        jobs: what goes on is noted there.
        open_session: opens one, which is asked then, where there is none and none is being opened.

    Attributes:
        solver: who is asked.
    """

    def __init__(self, *, traits: Traits, display: Display, jobs: Jobs, open_session: Callable[[], None]) -> None:
        """Nothing is asked."""
        self._traits, self._display, self._jobs, self._open_session = traits, display, jobs, open_session
        self.solver = Solver(self._draw)
        # It takes seconds of this process, which cells of the notebook want as well.
        self._reserving: Latest[SolveEvent] = Latest(self._reserve, interval_s=1.0, share=0.25)

    def ask(self) -> None:
        """Ask for the present budget; whatever was asked before is superseded."""
        with self._display.lock:  # the last answer to what was asked before would end what begins here
            if self._display.closed:
                return
            if not self.solver.open:  # that was cancelled, or failed
                self._open_session()
                return
            budget_bytes = self._traits.budget_bytes
            assert budget_bytes is not None, "a session starts with a budget"
            self._jobs.failure = None
            self._jobs.activity.begin(SOLVING)
            self._display.say(f"Solving for {style.format_memory(budget_bytes)}", "busy")
            try:
                self.solver.request(budget_bytes, known=self._display.present.known.fitting(budget_bytes))
            except Exception as error:  # noqa: BLE001 - there may be no process to be had in place of one that died
                self._jobs.activity.end(SOLVING)
                self._jobs.failure = error
                self._display.say(text.failed(SOLVING, error, advice="Move the slider to try again."), "bad")
            self._display.offer()

    def reconsider(self) -> None:
        """Ask again where another schedule known by now is quicker than the one shown, and fits too.

        Not in several orders: what was proven is of the order of the answer, and another's would lose it.
        """
        with self._display.lock:
            scene, budget_bytes = self._display.scene, self._traits.budget_bytes
            if scene is None or budget_bytes is None or SOLVING in self._jobs.activity or self._traits.choice.order:
                return
            known, shown_ms = scene.known.fitting(budget_bytes), scene.solution and scene.solution.time_ms
            if known is not None and known.time_ms is not None and shown_ms and known.time_ms < _BETTER * shown_ms:
                failure = self._jobs.failure
                self.ask()
                self._jobs.failure = self._jobs.failure or failure  # nobody asked for this: it is to be told still

    def forget(self) -> None:
        """Show none: they were of another profile, which is shown no more."""
        self._traits.set_together(dict.fromkeys(_OF_ANSWERS))

    def close(self) -> None:
        """End the session and the threads."""
        self.solver.close()
        self._reserving.close()

    def _draw(self, event: SolveEvent) -> None:
        """Show an answer, unless something else was asked since."""
        with self._display.lock:
            if not self.solver.is_latest(event) or self._display.closed:
                return
            try:
                self._show(event)
            except Exception as error:  # noqa: BLE001 - the thread must live on for the next answer
                self._display.say(f"Drawing failed: {text.failure(error)}. Move the slider to try again.", "bad")
            # An observer of the schedule may have asked for another one meanwhile.
            if event.final and self.solver.is_latest(event):
                self._jobs.activity.end(SOLVING)
            self._display.offer()

    def _show(self, event: SolveEvent) -> None:
        solution, scene = event.solution, self._display.present
        if solution.schedule != self._traits.schedule:
            found = None if solution.schedule is None else simulate(scene.profile, solution.schedule)
            scene = replace(scene, timeline=found, measurement=None, residual=None, plain_now_ms=None, reservation=None)
        told = {"news": self.solver.news, "log": self.solver.log, "scip_log": self.solver.scip_log}
        scene = replace(scene, solution=solution, known=scene.known.with_answer(solution), **told)
        self._display.show(scene)
        content = self._traits.set_together(
            {
                "measurement": scene.measurement,
                "measured_peak": None if scene.measurement is None else scene.measurement.peak_bytes,
                "solution": solution,
                "predicted_peak": solution.peak_bytes,
                "schedule": solution.schedule,
                "gap": text.best_gap(solution),
            }
        )
        # An observer may have asked for something else, or raised, which was said.
        if not self.solver.is_latest(event) or not content:
            return
        if event.final:
            self._display.say(_settled(scene), text.TONES[solution.status])
            if scene.profile.device.kind == "cuda" and scene.timeline is not None and scene.reservation is None:
                self._reserving.put(event, urgent=True)
        elif not self._display.complains:  # someone did something wrong meanwhile, and has yet to read it
            told = text.progress(solution, scene.keep_all, timeline=scene.timeline, restart=event.restart)
            limit_s = self._traits.choice.time_limit
            self._display.say(told, "busy", progress=min(1.0, solution.elapsed_s / limit_s))

    def _reserve(self, event: SolveEvent) -> None:
        """Find what a device needs for the schedule of an answer, and show it if that is still the one shown."""
        schedule = event.solution.schedule
        with self._display.lock:
            if schedule is None or not self._shows(event):
                return
            profile = self._display.present.profile
        found = simulate(profile, schedule, allocator="caching").reservation
        with self._display.lock:
            if found is None or not self._shows(event):
                return
            said = self._traits.message == _settled(self._display.present)
            self._display.change(reservation=found)
            if said:  # nothing else was said meanwhile
                self._display.say(_settled(self._display.present), text.TONES[event.solution.status])

    def _shows(self, event: SolveEvent) -> bool:
        return self.solver.is_latest(event) and not self._display.closed


def _settled(scene: Scene) -> str:
    """How a solve ended, what would help, and what a device needs."""
    assert scene.solution is not None, "it ended with one"
    told = text.outcome(scene.solution, scene.keep_all, timeline=scene.timeline)
    told += text.update_hint(scene.profile, scene.drawn)
    return told + ("" if scene.reservation is None else text.device_needs(scene.reservation))
