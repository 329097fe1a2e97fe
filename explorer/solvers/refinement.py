"""Improve and prove an answer: plan search and integer program in turn on one core, the bound on another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Protocol

import numpy as np

from explorer.schedule import Schedule
from explorer.solution import Solution, Statistics
from explorer.solvers.milp import Milp
from explorer.solvers.options import Options
from explorer.solvers.planner import Planner, Progress

_NEWS_S = 0.25  # bounds are passed on at most this often
_POLL_S = 0.05
_STEP = 5  # apart enough for the seeds of one search, which takes several where it finds nothing good; odd, so that
# searches start from every kind of plan in turn
_EFFORT = (1.0, 0.5)  # of a search after one that found something, and how much more after each that did not
_PATIENCE = (4, 12)  # searches without a better plan before it is the integer program's turn: first, and in the end
_TURN_S = 1.0  # its first turn …
_LONGER = 1.7  # … and how much longer each next one is
_STARTS = 8  # schedules tried as start solutions of an integer program
_FINER = 0.5  # each grouping's threshold as a share of the one before


class Model(Protocol):
    """An integer program, and the way between its solutions and schedules."""

    @property
    def milp(self) -> Milp:
        """What to minimise."""
        ...

    @property
    def statistics(self) -> Statistics:
        """Its size."""
        ...

    def decode(self, x: np.ndarray) -> Schedule:
        """The schedule of a solution."""
        ...

    def encode(self, schedule: Schedule) -> np.ndarray | None:
        """The solution of a schedule, None if it has none."""
        ...


def refine(
    planner: Planner,
    budget_bytes: int,
    options: Options,
    *,
    on_solution: Callable[[Solution], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Solution:
    """Improve on what the planner knows for a budget.

    Args:
        planner: what is known already; learns every schedule and bound found.
        budget_bytes: peak allowed.
        options: formulation, time limit and gap.
        on_solution: called with each better schedule or bound, in the caller's thread.
        should_stop: polled, also from the thread that bounds; true ends the solve.
    """
    return _Refinement(planner, budget_bytes, options, on_solution, should_stop).run()


class _Refinement:
    def __init__(
        self,
        planner: Planner,
        budget_bytes: int,
        options: Options,
        on_solution: Callable[[Solution], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self.planner, self.budget_bytes, self.options = planner, budget_bytes, options
        self.on_solution = on_solution
        self.should_stop = should_stop
        self.progress = Progress(budget_bytes)
        self.ended = threading.Event()
        self.told_at, self.told = 0.0, (np.inf, 0.0, 0.0)

    def run(self) -> Solution:
        if not self.over():
            bounding = self.planner.start_bound(self.budget_bytes, time_limit=self.left_s(), should_stop=self.over)
            try:
                self.improve()
                while not self.over() and not bounding.done():
                    wait([bounding], _POLL_S)
                    self.tell()
            finally:
                self.ended.set()
            if not bounding.cancel() and bounding.done():
                bounding.result()
            self.tell()
        if self.planner.frontier.best(self.budget_bytes) is None and not self.stopped():
            self.planner.seek_minimum(timeout=max(0.0, self.left_s()))
        return self.planner.solution(self.progress, gap=self.options.gap, stopped=self.stopped())

    def improve(self) -> None:
        """Search plans until that brings nothing, let SCIP try from there, search from what it found, and so on."""
        programs = self.programs()
        model: Model | None = None
        exhausted = False
        turn_s, idle, seed, patience = _TURN_S, 0, 1, _PATIENCE[0]
        while not self.over() and not (exhausted and idle >= patience):
            known = self.planner.frontier.best(self.budget_bytes)
            search = idle < patience
            if search:
                seed += _STEP
                effort = _EFFORT[0] + _EFFORT[1] * idle
                self.planner.search.improve(self.budget_bytes, effort=effort, seed=seed)
                self.tell()
            elif (model := model or next(programs, None)) is None:
                exhausted = True
            else:
                model = None if self.integer_program(model, time_limit=turn_s) else model
                turn_s, patience = turn_s * _LONGER, min(2 * patience, _PATIENCE[1])
            if self.planner.frontier.best(self.budget_bytes) != known:
                idle = 0
            elif search:
                idle += 1
            elif not exhausted:
                # SCIP found nothing better; chance may, from another plan.
                idle = patience // 2

    def stopped(self) -> bool:
        return self.should_stop is not None and self.should_stop()

    def left_s(self) -> float:
        return self.options.time_limit - (time.monotonic() - self.progress.began)

    def over(self) -> bool:
        """Is there a reason to end: proven, excluded, out of time, stopped, or nothing left to solve?"""
        if self.ended.is_set() or self.stopped() or self.left_s() <= 0:
            return True
        if self.planner.excludes(self.budget_bytes):
            return True
        best = self.planner.frontier.best(self.budget_bytes)
        slack_ms = 0.0 if best is None else self.options.gap * best.time_ms
        return best is not None and best.time_ms - self.planner.bound_ms(self.budget_bytes) <= slack_ms

    def programs(self) -> Iterator[Model]:
        """The formulation's programs: for ``grouped``, finer and finer groupings while there is time."""
        if self.options.formulation == "paper":
            from explorer.solvers.monet import paper

            yield paper.build(self.planner.problem, self.budget_bytes)
            return
        from explorer.solvers.monet import grouped

        threshold, groups = grouped.DEFAULT_THRESHOLD, 0
        while not self.over():
            model = grouped.build(self.planner.problem, self.budget_bytes, threshold=threshold)
            if model.group_count > groups:
                yield model
            elif threshold == 0:
                return
            groups = model.group_count
            threshold = threshold * _FINER if threshold > 0.01 else 0.0

    def integer_program(self, model: Model, *, time_limit: float) -> bool:
        """Solve one program with SCIP, from the best schedules known; whether it is done with."""
        from explorer.solvers.scip import MilpStatus, minimise

        self.progress.statistics = model.statistics
        if not model.milp.objective.size:
            return True
        first = self.progress.grouping_ms is None
        result = minimise(
            model.milp,
            time_limit=min(time_limit, self.left_s()),
            gap=self.options.gap,
            start=self.starts(model),
            on_incumbent=lambda x, _: self.take(model.decode(x)),
            on_bound=self.take_bound if first else None,
            should_stop=self.over,
        )
        # A finer grouping's bound counts once it is proven; until then the coarser one's says more.
        if result.bound is not None and (first or result.proven):
            self.take_bound(result.bound)
        return result.proven or result.status is MilpStatus.INFEASIBLE

    def starts(self, model: Model) -> list[np.ndarray]:
        """Start solutions: the best schedule, and smaller ones, for the program may need more memory for each."""
        fitting = [x for x in self.planner.frontier.points() if x.peak_bytes <= self.budget_bytes][::-1]
        chosen = fitting[:: max(1, len(fitting) // _STARTS)][:_STARTS]
        return [x for x in (model.encode(point.schedule) for point in chosen) if x is not None]

    def take(self, schedule: Schedule) -> None:
        """A schedule came from SCIP."""
        self.planner.add_schedule(schedule)
        self.tell()

    def take_bound(self, bound_ms: float) -> None:
        """A bound came from SCIP."""
        self.progress.grouping_ms = bound_ms
        self.tell()

    def tell(self) -> None:
        """Pass on a better schedule at once, a better bound now and then."""
        if self.on_solution is None:
            return
        best = self.planner.frontier.best(self.budget_bytes)
        if best is None:
            return
        known = (best.time_ms, self.planner.bound_ms(self.budget_bytes), self.progress.grouping_ms or 0.0)
        soon = time.monotonic() - self.told_at < _NEWS_S
        if known == self.told or (soon and best.time_ms >= self.told[0]):
            return
        self.told_at, self.told = time.monotonic(), known
        self.on_solution(self.planner.solution(self.progress, gap=self.options.gap))
