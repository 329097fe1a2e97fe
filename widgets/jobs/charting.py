"""The curve of the trade-off: the quickest schedule for every budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from threading import Lock, Timer

from explorer import solvers
from explorer.device_profile import Profile
from explorer.solution import Solution
from widgets.background import CHARTING, OPENING, RUNNING, SOLVING, Jobs, StoppedError
from widgets.choices.choice import Choice
from widgets.display import Display
from widgets.jobs.answers import Answers
from widgets.jobs.other_curves import OtherCurves
from widgets.jobs.solver import PATIENCE_S, Solver
from widgets.traits import Traits

_LOADED_S = 3.0  # by then the compiled search is, if there is one
_COMPILING = (
    "Finding the smallest feasible budget. After an installation the search is compiled first, which takes up to a "
    "minute once; the command 'schedule-explorer compile' does it beforehand"
)


@dataclass(frozen=True)
class _Begun:
    """A curve of which all, or all but the first view, is to come.

    Attributes:
        choice: whose.
        curve: what is to come.
        stated: was the first view taken?
    """

    choice: Choice
    curve: Iterator[tuple[Solution, ...]]
    stated: bool


class Charting:
    """Shows the curve of the present choice; what is unknown of it is computed while no one waits for a schedule.

    Args:
        solver: whose first answers come first.
        traits: have the choice to begin with.
        display: where the curve is shown.
        jobs: where it is computed.
        processor: held while it is.
        answers: which take in what the curve knows.
        others: which show, once the curve is there, the one that it is compared with unless someone chose.
    """

    def __init__(
        self,
        solver: Solver,
        *,
        traits: Traits,
        display: Display,
        jobs: Jobs,
        processor: Lock,
        answers: Answers,
        others: OtherCurves,
    ) -> None:
        """Nothing is known."""
        self._solver, self._display, self._jobs = solver, display, jobs
        self._processor, self._answers, self._others = processor, answers, others
        self._begun: _Begun | None = None
        self._wanted = traits.choice
        self._charted: Choice | None = None
        self._charts: dict[tuple[object, ...], tuple[Solution, ...]] = {}

    def begin(self, profile: Profile, choice: Choice) -> tuple[Solution, ...]:
        """The ends of a curve, or all that comes with the package; what to wait for is said if they take long."""
        shipped = solvers.shipped_solutions(profile, choice.options)
        curve = self._curve(profile, choice, known=shipped)
        self._begun = _Begun(choice, curve, stated=not shipped)
        if shipped:
            return shipped
        self._display.say("Finding the smallest feasible budget", "busy")
        return self._first_of(curve)

    def _first_of(self, curve: Iterator[tuple[Solution, ...]]) -> tuple[Solution, ...]:
        """The problem is stated, and the search compiled where it was not; what that is is said if it takes long."""
        said = Timer(_LOADED_S, self._say_why)
        said.start()
        try:
            return next(curve)
        finally:
            said.cancel()

    def _say_why(self) -> None:
        """What takes so long, where it is the compiler: not where its work is kept on disk and the graph is large."""
        from explorer.solvers.search.annealing import was_compiled  # loads the compiler, which runs by now

        if not was_compiled():
            self._display.say(_COMPILING, "busy")

    def start(self) -> None:
        """Compute the curve of the present choice in the background, unless that was begun."""
        if self._uncharted():
            self._jobs.start(CHARTING, self._chart, again=self._uncharted)

    def change_to(self, choice: Choice) -> tuple[Solution, ...]:
        """Give up whatever is under way; what is known of the curve of another choice, which the solver has by now."""
        self._wanted, self._charted = choice, None
        return self._charts.get(choice.schedules, ())

    def _chart(self) -> None:
        choice = self._charted = self._wanted
        views = self._points(choice)
        with self._processor:
            for points in views:
                with self._display.lock:
                    if self._display.closed or self._uncharted():
                        return
                    self._display.change(known=replace(self._display.present.known, instant=points))
        with self._display.lock:
            if self._display.closed or self._uncharted():
                return
            known = self._charts[choice.schedules] = self._display.present.known.instant
            self._display.set_range(known[0].budget_bytes, self._display.present.keep_all.peak_bytes)
            self._answers.reconsider()
        with self._processor:
            self._others.show_usual(self._look)

    def _look(self) -> None:
        """Go on with what nobody waits for, or raise StoppedError."""
        if self._step_aside(True):
            raise StoppedError

    def _points(self, choice: Choice) -> Iterable[tuple[Solution, ...]]:
        """The curve as it becomes known; the first of it once this returns, since until then nobody can step aside."""
        begun, self._begun = self._begun, None
        if choice.schedules in self._charts:
            return [self._charts[choice.schedules]]
        self._solver.wait_for_news(PATIENCE_S)
        if begun is None or begun.choice != choice:
            profile = self._display.present.profile
            curve = self._curve(profile, choice, known=solvers.shipped_solutions(profile, choice.options))
            begun = _Begun(choice, curve, stated=False)
        return begun.curve if begun.stated else chain([self._first_of(begun.curve)], begun.curve)

    def _curve(
        self, profile: Profile, choice: Choice, *, known: tuple[Solution, ...]
    ) -> Iterator[tuple[Solution, ...]]:
        return solvers.trade_off_in_steps(
            profile,
            optimizations=choice.optimizations,
            exact=choice.exact,
            pins=choice.pins,
            order=choice.order,
            known=known,
            should_stop=self._step_aside,
        )

    def _step_aside(self, improves: bool) -> bool:  # noqa: FBT001 - as ``trade_off_in_steps`` calls it
        """Between two searches for the curve: let go first what someone waits for. True if no one wants this curve.

        The solver is a process that comes after everything else here, so what only improves the curve waits for it.
        """
        self._processor.release()
        try:
            self._jobs.activity.wait_for(OPENING)
            self._jobs.activity.wait_for(RUNNING)
            if improves:
                self._jobs.activity.wait_for(SOLVING)
            self._solver.wait_for_news(PATIENCE_S)
        finally:
            self._processor.acquire()
        return self._display.closed or self._uncharted()

    def _uncharted(self) -> bool:
        """Is the present choice without a curve? One that was begun for another is given up: part of it is missing."""
        charted = self._charted
        if charted is not None and charted.schedules != self._wanted.schedules:
            self._charted = charted = None
        return charted is None and not self._display.closed
