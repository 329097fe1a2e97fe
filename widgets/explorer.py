"""The object a notebook holds: scriptable, observable, and a widget where it is displayed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any, Self, TypeVar, cast

import traitlets

from explorer.measurement import Measurement
from explorer.schedule import Schedule, keep_all
from explorer.simulation import simulate
from explorer.solution import Solution
from explorer.solvers import SolveEvent, SolveSession, trade_off
from explorer.solvers.options import Optimizations, parse_optimizations
from explorer.units import parse_bytes
from widgets import fallback, style, text
from widgets.background import Activity, start
from widgets.layers import members, module_paths
from widgets.panel import Scene
from widgets.panels import PANELS
from widgets.solving import Choice, Solving
from widgets.subject import Subject
from widgets.trade_off_plot import TradeOff
from widgets.view import View

_OPENING, _SOLVING, _RUNNING = "opening", "solving", "running"
_STEPS = 3
_NAMED = 8  # layers, in a message
T = TypeVar("T")


class _StoppedError(Exception):
    """The user cancelled what runs in this thread."""


def _shown(kind: type[T]) -> traitlets.Instance[T | None]:
    """A trait that only the explorer sets; None until there is one."""
    return cast("traitlets.Instance[T | None]", traitlets.Instance(kind, allow_none=True, read_only=True))


class Explorer(traitlets.HasTraits):
    """A model, a budget, and the schedule that fits it; made by ``explorer.explore``.

    Everything slow happens in the background: traits change when it is done, and ``wait`` waits for it. Traits
    may be observed; observers are called from a background thread.

    Attributes:
        budget: as it was given, or as the slider reads (``"0.450 GiB"``); set it to solve for another.
        budget_bytes: the same in bytes.
        solution: the latest answer, None before the first.
        schedule: its schedule, None where it has none.
        status: ``"opening"``, ``"solving"``, ``"running"``, ``"closed"``, or how the last solve ended (a ``Status``).
        message: what the widget's status line says.
        gap: proven distance of the schedule from the best, as a fraction; None where nothing is proven.
        predicted_peak: of the schedule, in bytes.
        measured_peak: of the schedule's last run, in bytes; None before one.
        measurement: that run.
        choice: what the solver was asked for; ``configure`` changes it.
        selection: module path of the layer that is marked in every panel, with all below it (``"layer1.0"``); empty for
            none. Set it to select.
    """

    budget = traitlets.Union([traitlets.Unicode(), traitlets.Int()], default_value="")
    budget_bytes = traitlets.Int(None, allow_none=True)
    solution = _shown(Solution)
    schedule = _shown(Schedule)
    status = traitlets.Unicode(_OPENING, read_only=True)
    message = traitlets.Unicode("", read_only=True)
    gap = traitlets.Float(None, allow_none=True, read_only=True)
    predicted_peak = traitlets.Int(None, allow_none=True, read_only=True)
    measured_peak = traitlets.Int(None, allow_none=True, read_only=True)
    measurement = _shown(Measurement)
    choice = cast("traitlets.Instance[Choice]", traitlets.Instance(Choice, read_only=True))
    selection = traitlets.Unicode("")

    def __init__(
        self,
        subject: Subject,
        *,
        budget_bytes: int | None = None,
        choice: Choice,
        panels: Iterable[str] = PANELS,
    ) -> None:
        """Open ``subject`` in the background and solve for ``budget_bytes`` (the middle of the slider if None)."""
        super().__init__()
        self._subject = subject
        self.set_trait("choice", choice)
        self._used = choice
        self._lock = RLock()
        self._activity = Activity()
        self._following = False
        self._stop = False
        self._closed = False
        self._error: BaseException | None = None
        self._scene: Scene | None = None
        self._view = View(self, subject.name, panels)
        self._solving = Solving(self._draw)
        self._wire()
        self._in_background(_OPENING, lambda: self._open(budget_bytes))

    # What a script can do

    def wait(self, timeout: float | None = None) -> Explorer:
        """Return when nothing goes on in the background: opening, solving or running.

        Args:
            timeout: seconds to wait at most; None for no limit.

        Raises:
            TimeoutError: it takes longer.
            Exception: what made opening or running fail, once.
        """
        if not self._activity.wait(timeout):
            raise TimeoutError(f"still {self.status} after {timeout} s: {self.message}")
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return self

    def run(self) -> None:
        """Apply the schedule to the model and measure real training steps, in the background.

        A solve that goes on is cancelled first: it would slow the steps down.

        Raises:
            ValueError: there is no schedule yet.
        """
        with self._lock:
            if self.schedule is None:
                raise ValueError("there is no schedule to run yet; wait for the solver, or choose a larger budget")
            if _SOLVING in self._activity:
                self._solving.cancel()
        self._in_background(_RUNNING, self._measure)

    def cancel(self) -> None:
        """Stop what goes on in the background; what was found stays."""
        with self._lock:
            self._stop = True
            if _SOLVING in self._activity:
                self._solving.cancel()

    def configure(
        self,
        *,
        optimizations: Optimizations | None = None,
        exact: bool | None = None,
        time_limit: float | None = None,
    ) -> None:
        """Ask the solver for something else, and solve again; what is None stays as it is.

        Args:
            optimizations: as in ``explorer.solve``.
            exact: as in ``explorer.solve``.
            time_limit: as in ``explorer.solve``.

        Raises:
            ValueError: one of them is not allowed; the choice stays as it was.
        """
        changes: dict[str, Any] = {"exact": exact, "time_limit": time_limit}
        if optimizations is not None:
            changes["optimizations"] = parse_optimizations(optimizations)
        choice = replace(self.choice, **{key: value for key, value in changes.items() if value is not None})
        choice.check()
        if choice != self.choice:
            self.set_trait("choice", choice)
            self._in_background(_OPENING, lambda: self._open(None))

    def save(self, path: str | Path | None = None) -> Path:
        """Write the schedule as JSON.

        Args:
            path: where; the name in the widget's text box if None.

        Returns:
            The absolute path written.

        Raises:
            ValueError: there is no schedule yet.
            OSError: the file cannot be written.
        """
        if self.schedule is None:
            raise ValueError("there is no schedule to save yet; wait for the solver, or choose a larger budget")
        chosen = Path(path if path is not None else self._view.controls.file_name.value.strip() or self._file_name())
        target = chosen.expanduser().resolve()
        self.schedule.save(target)
        self._say(f"Saved the schedule to {target}", "good")
        return target

    def close(self) -> None:
        """Stop everything and free it: solver process, threads, figures, widgets. May be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = self._stop = True
        self._solving.close()
        self._activity.end(_SOLVING)
        self._view.close()
        self.set_trait("status", "closed")

    def __enter__(self) -> Self:
        """The explorer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        """Name, budget and status."""
        return f"<Explorer {self._subject.name}: budget {self.budget or 'not chosen yet'}, {self.status}>"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """The widget, with a picture and a table for pages that cannot show widgets."""
        bundle = {} if self._closed else dict(self._view.box._repr_mimebundle_(**options) or {})
        bundle["text/plain"] = repr(self)
        bundle["text/html"] = fallback.render(self._subject.name, self._scene)
        return bundle

    # Traits and controls follow one another

    def select(self, layer: str) -> None:
        """Mark a layer everywhere; once more to mark none. What a click in a plot does."""
        self._guarded(lambda: self.set_trait("selection", "" if layer == self.selection else layer))

    @traitlets.validate("selection")
    def _check_selection(self, proposal: Any) -> str:
        layer = proposal["value"]
        if layer and self._scene is not None and not members(self._scene.profile.graph, layer):
            known = ", ".join(map(repr, module_paths(self._scene.profile.graph)[:_NAMED]))
            raise ValueError(f"selection is {layer!r}; it must be a layer of the model, such as {known}")
        return layer

    @traitlets.observe("selection")
    def _mark(self, change: Any) -> None:
        with self._lock:
            if self._scene is not None:
                self._set_scene(replace(self._scene, selection=change["new"]))

    @traitlets.validate("budget")
    def _check_budget(self, proposal: Any) -> str:
        given = proposal["value"]
        amount = parse_bytes(given)
        return given if isinstance(given, str) else style.format_gib(amount)

    @traitlets.validate("budget_bytes")
    def _check_budget_bytes(self, proposal: Any) -> int:
        return parse_bytes(proposal["value"])

    @traitlets.observe("budget", "budget_bytes")
    def _follow(self, change: Any) -> None:
        with self._lock:
            if self._following:
                return
            self._following = True
            try:
                if change["name"] == "budget":
                    self.budget_bytes = parse_bytes(self.budget)
                else:
                    self.budget = style.format_gib(change["new"])
            finally:
                self._following = False
            assert self.budget_bytes is not None, "validated"
            self._view.controls.slider.budget_bytes = self.budget_bytes
            self._view.controls.file_name.placeholder = self._file_name()
            self._solve()

    def _wire(self) -> None:
        controls = self._view.controls

        def moved(change: Any) -> None:
            self._guarded(lambda: self.set_trait("budget_bytes", change["new"]))

        def chosen(change: Any) -> None:
            self._guarded(lambda: self.set_trait("selection", change["new"]))

        controls.slider.observe(moved, "budget_bytes")
        controls.layer.observe(
            lambda change: self._guarded(lambda: self.set_trait("selection", change["new"])), "value"
        )
        for button, action in ((controls.run, self.run), (controls.cancel, self.cancel), (controls.save, self.save)):
            button.on_click(lambda _, action=action: self._guarded(action))

    def _guarded(self, action: Callable[[], object]) -> None:
        """What a click does must end in the widget, whatever happens: nobody sees a traceback there."""
        try:
            action()
        except OSError as error:
            self._say(f"Could not save the schedule: {text.failure(error)}. Choose another file name.", "bad")
        except Exception as error:  # noqa: BLE001 - the page has no other place for it
            self._say(text.failure(error), "bad")

    def _file_name(self) -> str:
        budget = "" if self.budget_bytes is None else "-" + style.format_gib(self.budget_bytes).replace(" ", "")
        return re.sub(r"[^\w.-]+", "-", self._subject.name).strip("-").lower() + budget + ".json"

    def _say(self, message: str, tone: str, *, progress: float | None = None) -> None:
        self._view.controls.say(message, tone, progress=progress)
        self.set_trait("message", message)

    def _offer(self) -> None:
        """Bring status and buttons in line with what goes on."""
        under_way = next((kind for kind in (_OPENING, _RUNNING, _SOLVING) if kind in self._activity), None)
        if self._closed:
            return
        self._view.controls.enable(
            solving=_SOLVING in self._activity,
            busy=under_way in (_OPENING, _RUNNING),
            schedule=self.schedule is not None,
        )
        settled = self.solution.status.value if self.solution is not None else "failed"
        self.set_trait("status", under_way or settled)

    # Opening and running, each in a thread of its own

    def _in_background(self, kind: str, work: Callable[[], None]) -> None:
        """Start ``work`` unless its kind is under way; an error becomes a message and what ``wait`` raises."""

        def guarded() -> None:
            try:
                work()
            except _StoppedError:
                self._say(f"Cancelled {kind}.", "warning")
            except Exception as error:  # noqa: BLE001 - whatever a user's model raises
                self._error = error
                advice = "Correct it and call explore again." if kind == _OPENING else "The schedule is still there."
                self._say(f"{kind.capitalize()} failed: {text.failure(error)}. {advice}", "bad")

        def until_done() -> None:
            guarded()
            while not self._activity.end(kind, unless=lambda: kind == _OPENING and self._outdated()):
                guarded()
            self._offer()

        if self._activity.begin(kind):
            self._stop = False
            self._offer()
            start(until_done, kind)

    def _outdated(self) -> bool:
        """Was the solver asked for something else than its session solves?"""
        return self._used != self.choice and not self._closed

    def _continue(self) -> None:
        if self._stop:
            raise _StoppedError

    def _open(self, budget_bytes: int | None) -> None:
        def progress(done: int, total: int, label: str) -> None:
            self._continue()
            self._say(f"Profiling {label} ({done} of {total})", "busy", progress=done / max(total, 1))

        self._used = choice = self.choice
        self._say(f"Opening {self._subject.name}", "busy")
        profile = self._subject.profiled(progress)
        self._continue()
        # First, so that its process starts while the curve is computed.
        session = self._solving.start(profile, choice)
        try:
            self._say("Finding the smallest feasible budget", "busy")
            plain = simulate(profile, keep_all(profile.graph))
            points = trade_off(profile, optimizations=choice.optimizations, exact=choice.exact)
            self._continue()
        except BaseException:
            session.close()
            raise
        with self._lock:
            if self._closed:
                session.close()
                return
            self._opened(session, Scene(profile, plain, TradeOff(plain, points), selection=self.selection))
            self._ask_first(points[0].budget_bytes, plain.peak_bytes, budget_bytes)

    def _opened(self, session: SolveSession, scene: Scene) -> None:
        self._solving.use(session)
        if self._scene is not None:
            # The answer before is of another problem, but still there until the next.
            before = self._scene
            scene = replace(scene, solution=before.solution, timeline=before.timeline, measurement=before.measurement)
        self._view.controls.slider.set_range(scene.known.instant[0].budget_bytes, scene.keep_all.peak_bytes)
        self._view.controls.slider.disabled = False
        self._set_scene(scene)

    def _ask_first(self, smallest_bytes: int, plain_bytes: int, budget_bytes: int | None) -> None:
        if self.budget_bytes is None:
            self.budget_bytes = budget_bytes or (smallest_bytes + plain_bytes) // 2
        else:
            self._solve()

    def _measure(self) -> None:
        self._activity.wait_for(_SOLVING)
        with self._lock:
            schedule, timeline = self.schedule, None if self._scene is None else self._scene.timeline
        if schedule is None or timeline is None:
            raise ValueError("the schedule is gone: another budget was chosen, which none fits")

        def stage(label: str, done: float) -> None:
            self._continue()
            self._say(label, "busy", progress=done)

        measurement = self._subject.measured(schedule, steps=_STEPS, stage=stage)
        self._continue()
        with self._lock:
            if self.schedule is not schedule or self._scene is None:
                self._say(f"{text.measured(timeline, measurement)} It is no longer the schedule shown.", "warning")
                return
            self._set_scene(replace(self._scene, measurement=measurement))
            self.set_trait("measurement", measurement)
            self.set_trait("measured_peak", measurement.peak_bytes)
            self._say(text.measured(timeline, measurement), "good")

    # Solving, in the session's process

    def _solve(self) -> None:
        """Ask for the present budget; whatever was asked before is superseded."""
        if not self._solving.open:
            return
        assert self.budget_bytes is not None, "a session starts with a budget"
        self._activity.begin(_SOLVING)
        self._say(f"Solving for {style.format_gib(self.budget_bytes)}", "busy")
        self._solving.request(self.budget_bytes)
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
                self._activity.end(_SOLVING)
            self._offer()

    def _show(self, event: SolveEvent) -> None:
        assert self._scene is not None, "open"
        solution, scene = event.solution, self._scene
        if solution.schedule != self.schedule:
            found = None if solution.schedule is None else simulate(scene.profile, solution.schedule)
            scene = replace(scene, timeline=found, measurement=None)
        news, log = self._solving.news, self._solving.log
        self._set_scene(replace(scene, solution=solution, known=scene.known.with_answer(solution), news=news, log=log))
        self.set_trait("measurement", self._scene.measurement)
        if self.measurement is None:
            self.set_trait("measured_peak", None)
        self.set_trait("solution", solution)
        self.set_trait("predicted_peak", solution.peak_bytes)
        self.set_trait("schedule", solution.schedule)
        self.set_trait("gap", text.best_gap(solution))
        if not self._solving.is_latest(event):
            return
        if event.final:
            self._say(text.outcome(solution, scene.keep_all.time_ms), text.TONES[solution.status])
        else:
            self._say(text.progress(solution, scene.keep_all.time_ms), "busy")

    def _set_scene(self, scene: Scene) -> None:
        """Draw a scene; what is there to see is always the latest."""
        self._scene = scene
        self._view.show(scene)
