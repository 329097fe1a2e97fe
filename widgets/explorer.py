"""The object a notebook holds: scriptable, observable, and a widget where it is displayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import ipywidgets
import traitlets

from explorer.harmless import one_line
from explorer.solvers.options import Optimizations, parse_optimizations
from explorer.solvers.problem.pins import PinsLike, parse_pins
from widgets import style, text
from widgets.background import KINDS, Activity
from widgets.choices.budget import parse_budget
from widgets.choices.choice import Choice
from widgets.choices.subject import Subject
from widgets.display import Display
from widgets.elements.controls import Controls
from widgets.files import Files
from widgets.jobs.work import Work
from widgets.notebook.picture import Picture, render, show_widget
from widgets.notebook.reruns import note_shown, present_run
from widgets.panels.catalogue import PANELS
from widgets.panels.panel import PanelOwner
from widgets.scene.compare import Held
from widgets.scene.selected import selected_rows
from widgets.serving.visitors import for_visitors
from widgets.traits import Traits
from widgets.view import View

_NOT_OPEN = "nothing is open yet; wait until the first schedule is there"


class Explorer(Traits):
    """A model, a budget, and the schedule that fits it; made by ``explorer.explore``.

    Everything slow happens in the background: traits change when it is done, and ``wait`` waits for it. Traits (see
    ``Traits``) may be observed and linked; observers are called from a background thread, which waits for them: they
    must not call ``wait``.
    """

    def __init__(
        self,
        subject: Subject,
        *,
        budget: int | str | None = None,
        choice: Choice,
        panels: Iterable[str] = PANELS,
    ) -> None:
        """Open ``subject`` in the background and solve for ``budget`` (the middle of the slider if None)."""
        super().__init__(choice=choice, scene=lambda: self._display.scene, on_observer_error=self._observer_failed)
        self._subject = subject
        self._following: int | None = None  # the thread in which the two budgets are brought in line
        self._made_by = present_run()
        self._picture = Picture()
        controls = Controls(
            on_typed=self.choose_budget,
            on_drop=lambda pin: self.pin([x for x in self.choice.pins.pairs if x != pin]),
            on_wanted=self.send_schedule if for_visitors() else None,
        )
        self._view = View(
            cast("PanelOwner", self),  # which pyright does not see through traits
            controls=controls,
            title=subject.name,
            panels=panels,
            mark=self._picture.mark,
        )
        activity = Activity()
        self._display = Display(self, view=self._view, activity=activity)
        self._files = Files(subject, traits=self, display=self._display, controls=controls)
        self._work = Work(subject, first=budget, traits=self, display=self._display, activity=activity)
        self._wire()
        controls.pins.tell(choice.pins.pairs)
        self._work.opening.start()

    # What a script can do

    def wait(self, timeout: float | None = None) -> Explorer:
        """Return when nothing goes on in the background: opening, solving, running, the curve of the trade-off.

        Args:
            timeout: seconds to wait at most; None for no limit.

        Raises:
            TimeoutError: it takes longer.
            RuntimeError: an observer called it: what goes on waits for the observer.
            Exception: what made the last of it fail, once.
        """
        if self.calling_observers or self._work.jobs.inside or self._following == threading.get_ident():
            raise RuntimeError("wait was called by an observer, which what goes on in the background waits for itself")
        self._work.wait(timeout)
        return self

    def run(self) -> None:
        """Apply the schedule to the model and measure real training steps, in the background.

        A solve that goes on is ended first, with what it found: it would slow the steps down.

        Raises:
            ValueError: there is no schedule yet.
        """
        if self.schedule is None:
            raise ValueError("there is no schedule to run yet; wait for the solver, or choose a larger budget")
        self._work.running.start()

    def play(self) -> None:
        """Sweep the budget from PyTorch's peak to the smallest, in the background.

        Another budget ends it, and so does ``cancel``.

        Raises:
            ValueError: there is nothing to sweep yet, or at all.
        """
        if self._display.scene is None or not self._work.open:
            raise ValueError(_NOT_OPEN)
        self._work.playing.start()

    def cancel(self) -> None:
        """Stop what goes on in the background; what was found stays."""
        with self._display.lock:
            self._work.cancel()

    def configure(
        self,
        *,
        optimizations: Optimizations | None = None,
        exact: bool | None = None,
        time_limit: float | None = None,
        pins: PinsLike | None = None,
        update: str | None = None,
        order: bool | None = None,
    ) -> None:
        """Ask the solver for something else, and solve again; what is None stays as it is.

        Args:
            optimizations: as in ``explorer.solve``.
            exact: as in ``explorer.solve``.
            time_limit: as in ``explorer.solve``.
            pins: as in ``explorer.solve``, in place of those before; ``{}`` for none.
            update: when parameters are updated, where the profile has an optimizer: ``"end"``, after the backward pass,
                or ``"within"`` it.
            order: as in ``explorer.solve``: in the order with the least memory too, by a process for each.

        Raises:
            ValueError: one of them is not allowed; the choice stays as it was.
        """
        changes: dict[str, Any] = {"exact": exact, "time_limit": time_limit, "update": update, "order": order}
        if optimizations is not None:
            changes["optimizations"] = parse_optimizations(optimizations)
        if pins is not None:
            changes["pins"] = parse_pins(pins)
        choice = replace(self.choice, **{key: value for key, value in changes.items() if value is not None})
        scene = self._display.scene
        choice.check(None if scene is None else scene.profile)
        if choice != self.choice:
            self.set_trait("choice", choice)
            self._work.opening.start()

    def ask(self, **changes: Any) -> None:
        """``configure`` with these arguments. What a click does: errors end in the widget."""
        self._guarded(lambda: self.configure(**changes))

    def pin(self, pins: PinsLike) -> None:
        """Decide these things instead of the solver, and solve again. What a click does: errors end in the widget."""
        self.ask(pins=pins)

    def select(self, layer: str) -> None:
        """Mark a layer everywhere; once more to mark none. What a click in a plot does."""
        self._guarded(lambda: self.set_trait("selection", "" if layer == self.selection else layer))

    def choose_budget(self, typed: str) -> None:
        """Take a budget as it is typed: GiB, bytes with a unit, or per cent of PyTorch's peak."""

        def take() -> None:
            if self._display.scene is None:
                raise ValueError(_NOT_OPEN)
            self.set_trait("budget_bytes", parse_budget(typed, self._display.scene.keep_all.peak_bytes))

        self._guarded(take)

    def save(self, path: str | Path | None = None) -> Path:
        """Write the schedule as JSON.

        Args:
            path: where; if None, below the working folder, by the name in the widget's text box, in place of a schedule
                of that name.

        Returns:
            The absolute path written.

        Raises:
            ValueError: there is no schedule yet; or the name in the text box leads out of the working folder, or
                is that of a file which is no schedule; or there is no text box, since visitors are at the page.
            OSError: the file cannot be written.
        """
        return self._files.save(path)

    def send_schedule(self, _: str) -> None:
        """Have the page save the schedule. What a visitor's click does: errors end in the widget."""
        self._guarded(self._files.send)

    def to_html(self) -> str:
        """A report of what is shown, as a page that works without Python and without a network.

        Raises:
            ValueError: there is no schedule yet.
        """
        return self._files.report()

    def animation(self) -> str:
        """The step as a page that walks through it by itself, without Python and without a network: for slides.

        Raises:
            ValueError: there is no schedule yet.
        """
        return self._files.animation()

    def write_step(self, take: Callable[[str], None]) -> None:
        """Write the step as one Python file that needs torch alone, in the background: see ``explorer.export``.

        Args:
            take: called with the file's text.

        Raises:
            ValueError: there is no schedule yet, or no model to write it for.
        """
        if self.schedule is None:
            raise ValueError("there is no schedule to write yet; wait for the solver, or choose a larger budget")
        self._work.writing.start(self.schedule, take)

    @property
    def page(self) -> ipywidgets.Widget:
        """The widget itself, to be put among others; ``close`` closes it."""
        return self._view.box

    @property
    def file_stem(self) -> str:
        """What files for the schedule shown are called, without a suffix."""
        return self._files.stem

    @property
    def bundled(self) -> str | None:
        """Name of the bundled model that is explored; None for anything of the user's own."""
        return self._files.bundled

    @property
    def selected_runs(self) -> tuple[int, int] | None:
        """First and last run that were chosen in the page, by its playhead or as a stretch; None for none."""
        return self._display.selected_runs

    @property
    def selected(self) -> list[dict[str, Any]]:
        """The tensors of the selected layer, or of the stretch of runs chosen in the page: see ``selected_rows``.

        ``pandas.DataFrame(view.selected)`` makes a table of them.
        """
        scene = self._display.scene
        return [] if scene is None else selected_rows(scene, self.selected_runs)

    def hold(self) -> None:
        """Hold the schedule shown as reference: the next ones are drawn before it. A click does the same."""
        with self._display.lock:
            scene = self._display.scene
            held = None if scene is None else Held.shown(scene.profile, scene.solution, scene.timeline)
            if held is None:
                self._display.say("There is no schedule to hold yet; wait for the solver.", "warning")
                return
            self._display.change(reference=held)

    def release(self) -> None:
        """Compare with plain PyTorch again."""
        with self._display.lock:
            if self._display.scene is not None:
                self._display.change(reference=None)

    def walk(self, run: int | None, stretch: list[int] | None) -> None:
        """Note where the page's playhead is, or which stretch of runs was chosen there."""
        self._display.selected_runs = (run, run) if run is not None else (stretch[0], stretch[1]) if stretch else None

    def close(self) -> None:
        """Stop everything and free it: solver process, threads, figures, widgets. May be called again."""
        with self._display.lock:
            if self._display.closed:
                return
            self._display.closed = True
            self._work.jobs.stop()
        self._work.close()
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
        return f"<Explorer {one_line(self._subject.name)}: budget {self.budget or 'not chosen yet'}, {self.status}>"

    def _ipython_display_(self) -> None:
        """Two outputs: a picture for where no widget is alive, and the widget, which hides it.

        What an earlier run of the same cell made and showed is closed.
        """
        self._picture.show(self._pictured())
        if not self._display.closed:
            show_widget(self._view.box)
            note_shown(self, made_by=self._made_by)

    def _pictured(self) -> dict[str, str]:
        shown = render(self._subject.name, self._display.scene, mark=self._picture.mark)
        return {"text/plain": repr(self), "text/html": shown}

    # Traits and controls follow one another

    @traitlets.observe("budget", "budget_bytes")
    def _follow(self, change: Any) -> None:
        with self._display.lock:
            if self._following:
                return
            self._following = threading.get_ident()
            try:
                if change["name"] == "budget":
                    self.budget_bytes = self.bytes_of(self.budget)
                else:
                    self.budget = style.format_memory(change["new"])
            finally:  # whatever an observer of the other raises: it is set
                self._following = None
                assert self.budget_bytes is not None, "validated"
                self._view.controls.slider.budget_bytes = self.budget_bytes
                self._work.answers.ask()

    @traitlets.observe("solution")
    def _name_file(self, change: Any) -> None:
        if self._view.controls.file_name is not None:
            self._view.controls.file_name.placeholder = self._files.name(change["new"])

    @traitlets.observe("status")
    def _keep_picture(self, change: Any) -> None:
        if change["new"] not in KINDS:
            self._picture.renew(self._pictured())

    @traitlets.observe("selection")
    def _mark(self, _: Any) -> None:
        with self._display.lock:  # another thread may have selected something else while this one waited
            self._view.mark(self.selection)
            if self._display.scene is not None:
                self._display.change(selection=self.selection)

    @traitlets.observe("choice")
    def _list_pins(self, _: Any) -> None:
        if hasattr(self, "_view"):  # set once before there is a page
            self._view.controls.pins.tell(self.choice.pins.pairs)

    @traitlets.observe("curves")
    def _take_curves(self, _: Any) -> None:
        self._work.other_curves.show()

    def _wire(self) -> None:
        controls = self._view.controls
        for widget, source, trait in (
            (controls.slider, "budget_bytes", "budget_bytes"),
            (controls.layer, "value", "selection"),
        ):

            def take(change: Any, trait: str = trait) -> None:
                self._guarded(lambda: self.set_trait(trait, change["new"]))

            widget.observe(take, source)
        for button, action in (
            (controls.play, self.play),
            (controls.run, self.run),
            (controls.cancel, self.cancel),
            (controls.save, self._save_clicked),
        ):
            if button is not None:
                button.on_click(lambda _, action=action: self._guarded(action))

    def _observer_failed(self, name: str, error: Exception) -> None:
        self._work.jobs.failure = error
        self._display.say_on_page(f"An observer of {name!r} raised {text.failure(error)}.", "bad")

    def _guarded(self, action: Callable[[], object]) -> None:
        """What a click does must end in the widget, whatever happens: nobody sees a traceback there."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - the page has no other place for it
            self._display.say(text.failure(error), "bad")

    def _save_clicked(self) -> None:
        try:
            self.save()
        except (OSError, ValueError) as error:
            self._display.say(f"Could not save the schedule: {text.failure(error)}. Choose another file name.", "bad")
