"""The curves beside the present one: of other choices, and of other methods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from explorer.solution import Solution
from widgets.background import COMPARING, Jobs, StoppedError
from widgets.choices.curves import Curve, budgets, known_curves
from widgets.display import Display
from widgets.jobs.solver import PATIENCE_S, Solver
from widgets.traits import Traits

USUAL = "checkpointing"
"""What the present curve is compared with unless someone chooses."""


class OtherCurves:
    """Shows the curves that are asked for; those that are not there are computed."""

    def __init__(self, solver: Solver, *, traits: Traits, display: Display, jobs: Jobs) -> None:
        """None is there."""
        self._solver, self._traits, self._display, self._jobs = solver, traits, display, jobs
        self._found: dict[str, tuple[Solution, ...]] = {}
        self._usual_shown = False

    def show_usual(self, look: Callable[[], None]) -> None:
        """Compare with checkpointing alone, once, unless someone chose curves: what the other choices are worth.

        Args:
            look: called between two searches; raises StoppedError to give it up.
        """
        with self._display.lock:
            if self._usual_shown or self._traits.curves or not self._traits.choice.optimizations:
                return
            self._usual_shown = True
        scene = self._display.present
        try:
            look()  # somebody may wait for a schedule
            found = tuple(known_curves()[USUAL].make(scene.profile, (), look))
        except StoppedError:
            self._usual_shown = False
            return
        with self._display.lock:
            if self._display.present.profile is not scene.profile:  # another was opened meanwhile
                self._usual_shown = False
                return
            self._found[USUAL] = found
            if not self._traits.curves and not self._display.closed:
                self._traits.curves = [USUAL]

    def show(self) -> None:
        """Show what was asked for of the curves that are there, and compute the others; before opening, wait for it."""
        with self._display.lock:
            if self._display.scene is None or not self._solver.open or self._display.closed:
                return
            shown = [name for name in self._traits.curves if name in self._found]
            others = tuple((known_curves()[name].title, self._found[name]) for name in shown)
            self._display.change(known=replace(self._display.scene.known, others=others))
            if self._missing() and COMPARING not in self._jobs.activity:
                self._jobs.ask(COMPARING, self._add, again=lambda: bool(self._missing()))

    def forget(self) -> None:
        """Of the profile before: another is opened."""
        self._found = {}

    def _missing(self) -> list[str]:
        return [] if self._display.closed else [name for name in self._traits.curves if name not in self._found]

    def _add(self) -> None:
        """Compute what is missing. A curve is there when it is whole; one that does not come is not asked for any more.

        It can be asked for again: what would be there of it would look like all that its method can do.
        """
        while missing := self._missing():
            curve = known_curves()[missing[0]]
            try:
                self._compute(missing[0], curve)
            except BaseException:
                given_up = self._missing() if self._jobs.stopped else missing[:1]
                with self._display.lock:
                    self._traits.curves = [name for name in self._traits.curves if name not in given_up]
                raise
            if missing[0] in self._found:
                self.show()
                self._display.say(f"Added the curve of {curve.title}.", "good")

    def _compute(self, name: str, curve: Curve) -> None:
        scene, points = self._display.present, []
        asked = budgets(self._display.smallest_bytes, scene.keep_all.peak_bytes)
        self._solver.wait_for_news(PATIENCE_S)
        self._display.say(f"Computing the curve of {curve.title}", "busy")
        for point in curve.make(scene.profile, asked, self._jobs.look):
            points.append(point)
            told = f"Computing the curve of {curve.title}: {len(points)} points"
            done = len(points) / len(asked) if curve.by_budget else None
            self._display.say(told, "busy", progress=done)
            self._jobs.look()
        with self._display.lock:
            if self._display.present.profile is scene.profile:  # otherwise it is missing still: another was opened
                self._found[name] = tuple(points)
