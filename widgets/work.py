"""What an explorer does in the background: open, solve, sweep, compare, run; and what it shows of that."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from threading import Lock, RLock, Timer
from typing import TYPE_CHECKING

from explorer.analysis.residuals import residual
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solution import Solution
from explorer.solvers import SolveEvent, trade_off_in_steps
from widgets import style, text
from widgets.background import Jobs
from widgets.budget import sweep
from widgets.curves import Curve, budgets, known_curves
from widgets.layers import check_layer
from widgets.panel import Scene
from widgets.solving import Choice, Solving
from widgets.state import State
from widgets.subject import Subject
from widgets.trade_off_plot import TradeOff

if TYPE_CHECKING:
    from widgets.view import View

OPENING, RUNNING, PLAYING, COMPARING, SOLVING = KINDS = ("opening", "running", "playing", "comparing", "solving")
CHARTING = "charting"  # the curve: seconds, beside anything else; neither a status nor to be cancelled
_STEPS = 3
_SHOWN_S = 0.8  # at least, each budget of a sweep
_POLL_S = 0.05
_PATIENCE_S = 5.0  # for the first schedule of a budget, before a curve takes its share of the processor
_LOADED_S = 3.0  # by then the compiled search is, if there is one
_COMPILING = (
    "Finding the smallest feasible budget. After an installation the search is compiled first, which takes up to a "
    "minute once; the command 'schedule-explorer compile' does it beforehand"
)
_ROOM = 0.9  # of the device's memory, for plain steps to run there


class Work(State):
    """The half of an explorer that works in threads; ``_view`` is set by the other half before the first starts."""

    _view: View

    def __init__(self, subject: Subject, *, choice: Choice, first: int | str | None) -> None:
        """Nothing is under way.

        Args:
            subject: what is explored.
            choice: what to ask the solver for.
            first: first budget, as ``parse_bytes`` takes it; None for the middle of the slider.
        """
        super().__init__()
        self._subject = subject
        self.set_trait("choice", choice)
        self._used = choice
        self._begun: tuple[Choice, Iterator[tuple[Solution, ...]]] | None = None
        self._charted: Choice | None = None
        self._charts: dict[tuple[object, ...], tuple[Solution, ...]] = {}
        self._first = first
        self._lock = RLock()
        self._processor = Lock()  # a run and the curve's searches would slow each other down
        self._jobs = Jobs(on_change=self._offer, on_stop=self._stopped, on_error=self._failed)
        self._activity = self._jobs.activity
        self._closed = False
        self._error: BaseException | None = None
        self._curves: dict[str, tuple[Solution, ...]] = {}
        self._solving = Solving(self._draw)

    def _say(self, message: str, tone: str, *, progress: float | None = None) -> None:
        self._view.controls.say(message, tone, progress=progress)
        self.set_trait("message", message)

    def _offer(self) -> None:
        """Bring status and buttons in line with what goes on."""
        with self._lock:  # what another thread has ended since must not be said to go on
            if self._closed:
                return
            under_way = next((kind for kind in KINDS if kind in self._activity), None)
            self._view.controls.enable(
                under_way=under_way is not None,
                playing=PLAYING in self._activity,
                busy=under_way in (OPENING, RUNNING),
                schedule=self.schedule is not None,
            )
            settled = self.solution.status.value if self.solution is not None else "failed"
            self.set_trait("status", under_way or settled)

    def _set_scene(self, scene: Scene) -> None:
        """Draw a scene; what is there to see is always the latest."""
        self._scene = scene
        self._view.show(scene)

    # What goes on in the background

    def _stopped(self, kind: str) -> None:
        self._say(f"Cancelled {kind}.", "warning")

    def _failed(self, kind: str, error: Exception) -> None:
        self._error = error
        advice = ""
        if kind == OPENING and not self._solving.open:
            advice = " Correct it and call explore again."
        elif kind == SOLVING:
            advice = " Move the slider to try again."
        elif self.schedule is not None:
            advice = " The schedule is still there."
        self._say(f"{kind.capitalize()} failed: {text.failure(error)}.{advice}", "bad")

    def _start(self, kind: str, work: Callable[[], None], *, again: Callable[[], bool] = lambda: False) -> None:
        """Begin what someone asked for. What failed before it is not what the next ``wait`` is for."""
        self._error = None
        self._jobs.start(kind, work, again=again)

    def _observer_failed(self, name: str, error: Exception) -> None:
        self._error = error
        # No trait: its observers may be what failed.
        self._view.controls.say(f"An observer of {name!r} raised {text.failure(error)}.", "bad")

    def _outdated(self) -> bool:
        """Was the solver asked for something else than its session solves?"""
        return self._used != self.choice and not self._closed

    def _open(self) -> None:
        before, choice = self._used, self.choice
        self._used = choice
        if self._solving.open:
            self._reconfigure(choice, before=before)
            return
        self._say(f"Opening {self._subject.name}", "busy")
        profile = self._subject.profiled(self._profiling)
        self._jobs.look()
        # First, so that its process starts while the plain step is drawn and the curve is begun.
        session = self._solving.start(profile, choice)
        try:
            wrong = self._draw_plain(profile)
            self._begun = choice, self._curve(profile, choice)
            ends = self._ends(self._begun[1])
            self._jobs.look()
        except BaseException:
            session.close()
            raise
        with self._lock:
            if self._closed:
                session.close()
                return
            self._solving.use(session)
            self._opened(ends)
        if self.curves:
            self._compare()
        self._jobs.start(CHARTING, self._chart, again=self._uncharted)
        if wrong is not None:
            self._error = wrong
            self._say(f"{text.failure(wrong)}. Nothing is selected.", "warning")

    def _ends(self, curve: Iterator[tuple[Solution, ...]]) -> tuple[Solution, ...]:
        """The ends of a curve, and what to wait for if they take long."""
        self._say("Finding the smallest feasible budget", "busy")
        said = Timer(_LOADED_S, lambda: self._say(_COMPILING, "busy"))
        said.start()
        try:
            return next(curve)
        finally:
            said.cancel()

    def _draw_plain(self, profile: Profile) -> ValueError | None:
        """Show the step without recomputation, which takes no search; what is wrong with the layer selected so far."""
        plain = simulate(profile, keep_all(profile.graph))
        with self._lock:
            if self._closed:
                return None
            wrong = self._unselected(profile)
            self._set_scene(Scene(profile, plain, TradeOff(plain, ()), selection=self.selection))
            return wrong

    def _unselected(self, profile: Profile) -> ValueError | None:
        """What is wrong with a layer selected before the layers were known; no layer is selected then."""
        try:
            check_layer(profile.graph, self.selection)
        except ValueError as error:
            self.selection = ""
            return error
        return None

    def _reconfigure(self, choice: Choice, *, before: Choice) -> None:
        """Ask for something else; what was found of other schedules than those allowed now is not shown any more."""
        with self._lock:  # an answer to what was asked before would bring it back
            if self._closed:
                return
            self._solving.reconfigure(choice)
            assert self._scene is not None, "open"
            others = choice.schedules != before.schedules
            if others:
                self._charted = None  # whatever is under way
                known = replace(
                    self._scene.known, instant=self._charts.get(choice.schedules, ()), solved=(), current=None
                )
                self._scene = replace(self._scene, known=known)
            self._solve()
            if others:  # drawn after that: someone waits
                self._set_scene(self._scene)
        if self._uncharted():
            self._jobs.start(CHARTING, self._chart, again=self._uncharted)

    def _profiling(self, done: int, total: int, label: str) -> None:
        self._jobs.look()
        self._say(f"Profiling {label} ({done} of {total})", "busy", progress=done / max(total, 1))

    def _opened(self, ends: tuple[Solution, ...]) -> None:
        assert self._scene is not None, "the plain step is drawn"
        scene = replace(self._scene, known=replace(self._scene.known, instant=ends))
        smallest, plain = ends[0].budget_bytes, scene.keep_all.peak_bytes
        self._view.controls.slider.set_range(smallest, plain)
        self._view.controls.slider.disabled = False
        self._set_scene(scene)
        if self.budget_bytes is None:
            self.budget_bytes = (smallest + plain) // 2 if self._first is None else self._bytes_of(self._first)
        else:
            self._solve()

    def _chart(self) -> None:
        """Show the curve of the present choice; what is unknown of it is computed while no one waits for a schedule."""
        choice = self._charted = self.choice
        with self._processor:
            for points in self._points(choice):
                with self._lock:
                    if self._closed or self._uncharted():
                        return
                    assert self._scene is not None, "open"
                    self._set_scene(replace(self._scene, known=replace(self._scene.known, instant=points)))
        with self._lock:
            if self._closed or self._uncharted():
                return
            assert self._scene is not None, "open"
            known = self._charts[choice.schedules] = self._scene.known.instant
            self._view.controls.slider.set_range(known[0].budget_bytes, self._scene.keep_all.peak_bytes)

    def _points(self, choice: Choice) -> Iterable[tuple[Solution, ...]]:
        """The curve as it becomes known."""
        assert self._scene is not None, "open"
        begun, self._begun = self._begun, None
        if choice.schedules in self._charts:
            return [self._charts[choice.schedules]]
        self._solving.wait_for_news(_PATIENCE_S)
        if begun is not None and begun[0] == choice:
            return begun[1]
        return self._curve(self._scene.profile, choice)

    def _curve(self, profile: Profile, choice: Choice) -> Iterator[tuple[Solution, ...]]:
        return trade_off_in_steps(
            profile,
            optimizations=choice.optimizations,
            exact=choice.exact,
            pins=choice.pins,
            should_stop=self._step_aside,
        )

    def _step_aside(self, improves: bool) -> bool:  # noqa: FBT001 - as ``trade_off_in_steps`` calls it
        """Between two searches for the curve: let go first what someone waits for. True if no one wants this curve.

        The solver is a process that comes after everything else here, so what only improves the curve waits for it.
        """
        self._processor.release()
        try:
            self._activity.wait_for(RUNNING)
            if improves:
                self._activity.wait_for(SOLVING)
            self._solving.wait_for_news(_PATIENCE_S)
        finally:
            self._processor.acquire()
        return self._closed or self._uncharted()

    def _uncharted(self) -> bool:
        """Is the present choice without a curve? One that was begun for another is given up: part of it is missing."""
        charted = self._charted
        if charted is not None and charted.schedules != self.choice.schedules:
            self._charted = charted = None
        return charted is None and not self._closed

    def _play(self) -> None:
        assert self._scene is not None, "checked"
        slider = self._view.controls.slider
        for budget_bytes in sweep(slider.minimum_bytes, self._scene.keep_all.peak_bytes):
            self.set_trait("budget_bytes", budget_bytes)
            began = time.monotonic()
            while time.monotonic() - began < _SHOWN_S or (
                SOLVING in self._activity and self._scene.budget_bytes != budget_bytes
            ):
                time.sleep(_POLL_S)
                if self._jobs.stopped or self.budget_bytes != budget_bytes:
                    return

    def _compare(self) -> None:
        """Show what was asked for of the curves that are there, and compute the others; before opening, wait for it."""
        with self._lock:
            if self._scene is None or not self._solving.open or self._closed:
                return
            shown = [name for name in self.curves if name in self._curves]
            others = tuple((known_curves()[name].title, self._curves[name]) for name in shown)
            self._set_scene(replace(self._scene, known=replace(self._scene.known, others=others)))
            if self._missing_curves() and COMPARING not in self._activity:
                self._start(COMPARING, self._add_curves, again=lambda: bool(self._missing_curves()))

    def _missing_curves(self) -> list[str]:
        return [] if self._closed else [name for name in self.curves if name not in self._curves]

    def _add_curves(self) -> None:
        """Compute what is missing. A curve is there when it is whole; one that does not come is not asked for any more.

        It can be asked for again: what would be there of it would look like all that its method can do.
        """
        while missing := self._missing_curves():
            curve = known_curves()[missing[0]]
            try:
                self._curves[missing[0]] = self._computed(curve)
            except BaseException:
                given_up = self._missing_curves() if self._jobs.stopped else missing[:1]
                with self._lock:
                    self.curves = [name for name in self.curves if name not in given_up]
                raise
            self._compare()
            self._say(f"Added the curve of {curve.title}.", "good")

    def _computed(self, curve: Curve) -> tuple[Solution, ...]:
        scene, points = self._scene, []
        assert scene is not None, "open"
        asked = budgets(self._view.controls.slider.minimum_bytes, scene.keep_all.peak_bytes)
        self._solving.wait_for_news(_PATIENCE_S)
        self._say(f"Computing the curve of {curve.title}", "busy")
        for point in curve.make(scene.profile, asked, self._jobs.look):
            points.append(point)
            self._say(f"Computing the curve of {curve.title}: {len(points)} points", "busy")
            self._jobs.look()
        return tuple(points)

    def _measure(self) -> None:
        self._say("Looking for a device to run on", "busy")
        self._activity.wait_for(SOLVING)
        self._say("Looking for a device to run on", "busy")
        self._subject.check_runnable()
        with self._processor:
            self._jobs.look()
            self._measure_alone()

    def _measure_alone(self) -> None:
        with self._lock:
            schedule, scene = self.schedule, self._scene
        timeline = None if scene is None else scene.timeline
        if schedule is None or scene is None or timeline is None:
            raise ValueError("the schedule is gone: another budget was chosen, which none fits")

        def stage(label: str, done: float) -> None:
            self._jobs.look()
            self._say(label, "busy", progress=done)

        room = scene.profile.device.memory_bytes
        plain = room is None or scene.keep_all.peak_bytes < _ROOM * room
        measurement, plain_ms = self._subject.measured(schedule, steps=_STEPS, plain=plain, stage=stage)
        self._jobs.look()
        parts = residual(scene.profile, schedule, measurement, plain_step_time_ms=plain_ms)
        with self._lock:
            if self.schedule is not schedule or self._scene is None:
                self._say(f"{text.measured(timeline, measurement)} It is no longer the schedule shown.", "warning")
                return
            self._set_scene(replace(self._scene, measurement=measurement, residual=parts))
            self._set_together({"measurement": measurement, "measured_peak": measurement.peak_bytes})
            self._say(text.measured(timeline, measurement), "good")

    def _solve(self) -> None:
        """Ask for the present budget; whatever was asked before is superseded."""
        with self._lock:  # the last answer to what was asked before would end what begins here
            if not self._solving.open or self._closed:
                return
            assert self.budget_bytes is not None, "a session starts with a budget"
            self._error = None
            self._activity.begin(SOLVING)
            self._say(f"Solving for {style.format_gib(self.budget_bytes)}", "busy")
            try:
                assert self._scene is not None, "open"
                self._solving.request(self.budget_bytes, known=self._scene.known.on_curve(self.budget_bytes))
            except Exception as error:  # noqa: BLE001 - there may be no process to be had in place of one that died
                self._activity.end(SOLVING)
                self._failed(SOLVING, error)
            self._offer()

    def _draw(self, event: SolveEvent) -> None:
        with self._lock:
            if not self._solving.is_latest(event) or self._closed:
                return
            try:
                self._show(event)
            except Exception as error:  # noqa: BLE001 - the thread must live on for the next answer
                self._say(f"Drawing failed: {text.failure(error)}. Move the slider to try again.", "bad")
            # An observer of the schedule may have asked for another one meanwhile.
            if event.final and self._solving.is_latest(event):
                self._activity.end(SOLVING)
            self._offer()

    def _show(self, event: SolveEvent) -> None:
        assert self._scene is not None, "open"
        solution, scene = event.solution, self._scene
        if solution.schedule != self.schedule:
            found = None if solution.schedule is None else simulate(scene.profile, solution.schedule)
            scene = replace(scene, timeline=found, measurement=None, residual=None)
        told = {"news": self._solving.news, "log": self._solving.log, "scip_log": self._solving.scip_log}
        self._set_scene(replace(scene, solution=solution, known=scene.known.with_answer(solution), **told))
        measurement = self._scene.measurement
        content = self._set_together(
            {
                "measurement": measurement,
                "measured_peak": None if measurement is None else measurement.peak_bytes,
                "solution": solution,
                "predicted_peak": solution.peak_bytes,
                "schedule": solution.schedule,
                "gap": text.best_gap(solution),
            }
        )
        # An observer may have asked for something else, or raised, which was said.
        if not self._solving.is_latest(event) or not content:
            return
        if event.final:
            self._say(text.outcome(solution, scene.keep_all.time_ms), text.TONES[solution.status])
        elif not self._view.controls.complains:  # someone did something wrong meanwhile, and has yet to read it
            self._say(text.progress(solution, scene.keep_all.time_ms, restart=event.restart), "busy")
