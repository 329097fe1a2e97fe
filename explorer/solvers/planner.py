"""One profile, any number of budgets: what was found and proven for one serves the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.solution import Bound, BoundScope, Minimum, Solution, Statistics, Status
from explorer.solvers.frontier import Frontier, Point, judged
from explorer.solvers.instant import PlanSearch
from explorer.solvers.memory import Answer
from explorer.solvers.minimum import peak_lower_bound
from explorer.solvers.options import Options
from explorer.solvers.problem import Problem
from explorer.units import format_bytes

if TYPE_CHECKING:
    from explorer.solvers.monet.relaxation import Relaxation

_SAME = 2e-6  # relative difference of times that counts as none: bounds are less by half of it than what is proven


@dataclass
class Progress:
    """How far the solve for one budget has come.

    Attributes:
        budget_bytes: peak allowed.
        began: by the monotonic clock.
        grouping_ms: bound for the grouping solved, None before there is one.
        statistics: of the integer program stated last.
    """

    budget_bytes: int
    began: float = field(default_factory=time.monotonic)
    grouping_ms: float | None = None
    statistics: Statistics | None = None


class Planner:
    """Solves one problem; keeps every schedule and bound it comes across.

    Args:
        problem: graph, costs, and what may be chosen.
        frontier: schedules already known for it.
    """

    def __init__(self, problem: Problem, *, frontier: Frontier | None = None) -> None:
        """Begins the plan search."""
        self.problem = problem
        self.profile = problem.profile
        self.search = PlanSearch(problem, frontier=frontier)
        self.frontier = self.search.frontier
        # A bound holds for its budget and every smaller one.
        self._bounds: dict[float, float] = {float("inf"): problem.for_bounds.base_time_ms}
        floor = self.search.floor if problem.every_way is None else peak_lower_bound(problem.every_way)
        self._excluded_bytes = floor.peak_bytes - 1
        self._sought_minimum = False
        self._checkpointing: PlanSearch | None = None
        self._spent_s: dict[int, float] = {}
        self._unread: dict[int, Answer] = {}  # recalled, by budget, whose schedules were not looked at
        self._read: Callable[[int], Schedule | None] = lambda _: None
        self._lock = threading.Lock()
        self._proving = ThreadPoolExecutor(1, "prove")

    def checkpointing(self, *, exact: bool) -> PlanSearch:
        """The plan search of the same with PyTorch's own implementations alone."""
        if self._checkpointing is None:
            self._checkpointing = PlanSearch(Problem.of(self.profile, optimizations=(), exact=exact))
        return self._checkpointing

    def known(self, budget_bytes: int) -> Solution | None:
        """The best schedule known, without any search or wait for the kernel; None if there is none."""
        ready = self.search.ready(timeout=0.0)
        point = self.search.best(budget_bytes) if ready else self.frontier.best(budget_bytes)
        return None if point is None else self.solution(Progress(budget_bytes), gap=0.0)

    def seek_minimum(self, *, timeout: float) -> None:
        """Search for the smallest peak, once: an answer without a schedule names it.

        Args:
            timeout: seconds to wait for the compiled kernel; without it nothing is searched.
        """
        if not self._sought_minimum and self.search.ready(timeout=timeout):
            self.search.shrink()
            self._sought_minimum = True

    def excludes(self, budget_bytes: int) -> bool:
        """Is it proven that no schedule fits?"""
        with self._lock:
            return budget_bytes <= self._excluded_bytes

    def exclude(self, budget_bytes: int) -> None:
        """Remember that it is proven that no schedule fits."""
        with self._lock:
            self._excluded_bytes = max(self._excluded_bytes, budget_bytes)

    def bound_ms(self, budget_bytes: int) -> float:
        """The best bound known for every schedule within the budget."""
        with self._lock:
            return max(bound for budget, bound in self._bounds.items() if budget >= budget_bytes)

    def gap(self, budget_bytes: int) -> float:
        """How far the best schedule may be from the fastest there is, as a share of its time; infinite without one."""
        best = self.frontier.best(budget_bytes)
        if best is None:
            return float("inf")
        excess_ms = best.time_ms - self.bound_ms(budget_bytes)
        return excess_ms / best.time_ms if excess_ms > 0 else 0.0

    def near_enough(self, budget_bytes: int, *, gap: float) -> bool:
        """Is a schedule known that is proven within ``gap`` of the fastest?"""
        return self.gap(budget_bytes) <= max(gap, _SAME)

    def add_schedule(self, schedule: Schedule) -> Point:
        """Judge a schedule and remember it, for the plan search too if it is new on the frontier."""
        point = judged(self.profile, schedule)
        self.add(point)
        return point

    def add(self, point: Point) -> None:
        """Remember a schedule, for the plan search too if it is new on the frontier."""
        if self.frontier.add(point):
            self.search.learn(point.schedule)

    def recall(self, answers: Iterable[Answer], schedule_of: Callable[[int], Schedule | None]) -> None:
        """Take what earlier solves found. Schedules are read, and judged again, when they are of use.

        Args:
            answers: one for each budget.
            schedule_of: reads the schedule of an answer, by budget; None if there is none any more.
        """
        self._read = schedule_of
        for answer in answers:
            self.note(answer)
            with self._lock:
                self._unread[answer.budget_bytes] = answer

    def note(self, answer: Answer) -> None:
        """Take what an earlier solve proved, and how long it had."""
        budget = answer.budget_bytes
        with self._lock:
            self._spent_s[budget] = max(answer.spent_s, self._spent_s.get(budget, 0.0))
            self._bounds[budget] = max(answer.bound_ms, self._bounds.get(budget, 0.0))
            if answer.excluded:
                self._excluded_bytes = max(self._excluded_bytes, budget)

    def read_on(self) -> bool:
        """Look at one more of the schedules recalled; false if there is none left that is of use."""
        with self._lock:
            self._unread = {budget: x for budget, x in self._unread.items() if self._improves(x, x.peak_bytes or 0)}
            budget = next(iter(self._unread), None)
        if budget is not None:
            self._look_at(budget)
        return budget is not None

    def _read_for(self, budget_bytes: int) -> None:
        """Look at the quickest of the schedules recalled that fit this budget."""
        while True:
            with self._lock:
                fitting = [x for x in self._unread.values() if self._improves(x, budget_bytes)]
            quickest = min(fitting, key=lambda x: x.time_ms or 0.0, default=None)
            if quickest is None:
                return
            self._look_at(quickest.budget_bytes)

    def _read_smallest(self) -> None:
        """Look at the smallest of the schedules recalled, if none is known as small."""
        while True:
            least_bytes = self.frontier.points()[0].peak_bytes
            with self._lock:
                smaller = [x for x in self._unread.values() if x.peak_bytes is not None and x.peak_bytes < least_bytes]
            smallest = min(smaller, key=lambda x: x.peak_bytes or 0, default=None)
            if smallest is None:
                return
            self._look_at(smallest.budget_bytes)

    def _improves(self, answer: Answer, budget_bytes: int) -> bool:
        """Does a schedule recalled fit the budget, and take less than what is known for that?"""
        if answer.time_ms is None or answer.peak_bytes is None or answer.peak_bytes > budget_bytes:
            return False
        best = self.frontier.best(budget_bytes)
        return best is None or answer.time_ms < best.time_ms

    def _look_at(self, budget_bytes: int) -> None:
        with self._lock:
            self._unread.pop(budget_bytes, None)
        schedule = self._read(budget_bytes)
        if schedule is not None:
            with suppress(ValueError):  # of a version that did otherwise
                self.add_schedule(schedule)
                return
        with self._lock:  # the time was for nothing, as it turns out
            self._spent_s.pop(budget_bytes, None)

    def settled(self, budget_bytes: int, *, options: Options) -> bool:
        """Is a schedule known that is near enough, or did an earlier solve have all the time for this very budget?"""
        self._read_for(budget_bytes)
        with self._lock:
            spent_s = self._spent_s.get(budget_bytes, 0.0)
        if self.frontier.best(budget_bytes) is None:
            return False
        return spent_s >= options.time_limit or self.near_enough(budget_bytes, gap=options.gap)

    def counted_s(self, budget_bytes: int, *, options: Options) -> float:
        """What a solve counts as that ended by itself: all its time; none where it only stopped as near enough."""
        return 0.0 if self.near_enough(budget_bytes, gap=options.gap) else options.time_limit

    def answer(self, budget_bytes: int, *, spent_s: float) -> tuple[Answer, Schedule | None]:
        """What is known for a budget, to be remembered."""
        point = self.frontier.best(budget_bytes)
        time_ms, peak_bytes, schedule = None, None, None
        if point is not None:
            time_ms, peak_bytes, schedule = point.time_ms, point.peak_bytes, point.schedule
        bound_ms, excluded = self.bound_ms(budget_bytes), self.excludes(budget_bytes)
        return Answer(budget_bytes, spent_s, bound_ms, excluded, time_ms, peak_bytes), schedule

    def start_proof(self, prove: Callable[[], None]) -> Future[None]:
        """Begin to prove something on another thread; one proof at a time."""
        return self._proving.submit(prove)

    def bound(
        self,
        budget_bytes: int,
        *,
        time_limit: float = 0.0,
        threshold: float | None = None,
        ends: Collection[int] = frozenset(),
        on_blueprint: Callable[[np.ndarray], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        """Bound every schedule within the budget, or prove that there is none.

        Args:
            budget_bytes: peak allowed.
            time_limit: seconds for whole numbers.
            threshold: for intervals of this length (``integer_bound``); None: by linear relaxations.
            ends: where intervals end in any case, from ``critical_ends``.
            on_blueprint: called with the genes of plans that what was solved resembles; without whole numbers there are
                none.
            should_stop: polled; true ends it with the best bound so far.
        """
        # Here because cvxpy takes a second to import.
        from explorer.solvers.blueprints import blueprint
        from explorer.solvers.monet import bound

        def draw(relaxation: Relaxation, x: np.ndarray) -> None:
            if on_blueprint is not None:
                on_blueprint(blueprint(relaxation, x, self.search.arrays))

        def take(found_ms: float) -> None:
            with self._lock:
                self._bounds[budget_bytes] = max(found_ms, self._bounds.get(budget_bytes, 0.0))

        if threshold is None:
            found_ms = bound.linear_bound(self.problem.for_bounds, budget_bytes, on_bound=take, should_stop=should_stop)
        else:
            found_ms = bound.integer_bound(
                self.problem.for_bounds,
                budget_bytes,
                threshold=threshold,
                time_limit=time_limit,
                ends=ends,
                on_bound=take,
                on_values=None if on_blueprint is None else draw,
                should_stop=should_stop,
            )
        if found_ms is None:
            self.exclude(budget_bytes)
        else:
            take(found_ms)

    def critical_ends(
        self,
        budget_bytes: int,
        *,
        threshold: float,
        time_limit: float,
        should_stop: Callable[[], bool] | None = None,
    ) -> frozenset[int]:
        """Where intervals of a bound should end, as ``bound.critical_ends`` finds it."""
        from explorer.solvers.monet import bound  # here because cvxpy takes a second to import

        return bound.critical_ends(
            self.problem.for_bounds, budget_bytes, threshold=threshold, time_limit=time_limit, should_stop=should_stop
        )

    def minimum(self) -> Minimum:
        """The smallest budget for which a schedule is known, and the operator that sets it."""
        self._read_smallest()
        point = self.frontier.points()[0]
        floor = self.search.floor
        with self._lock:
            # A bound found by linear programming is subject to its tolerance; a schedule is not.
            lowest = min(self._excluded_bytes + 1, point.peak_bytes)
        if point.peak_bytes <= floor.peak_bytes:
            at = floor.operator
        else:
            timeline = simulate(self.profile, point.schedule)
            at = timeline.operators[timeline.peak_run]
        operator = self.profile.graph.operators[at]
        return Minimum(point.peak_bytes, lowest, operator.name, operator.layer)

    def solution(self, progress: Progress, *, gap: float, stopped: bool = False) -> Solution:
        """What is known now, as an answer; optimal if proven within ``gap``."""
        bounds = [Bound(self.bound_ms(progress.budget_bytes), BoundScope.PROBLEM)]
        if progress.grouping_ms is not None:
            bounds.append(Bound(progress.grouping_ms, BoundScope.GROUPING))
        solution = Solution(
            Status.UNKNOWN,
            progress.budget_bytes,
            bounds=tuple(bounds),
            statistics=progress.statistics,
            elapsed_s=time.monotonic() - progress.began,
        )
        point = self.frontier.best(progress.budget_bytes)
        if point is None:
            return self._without_schedule(solution, stopped=stopped)
        solution = replace(
            solution,
            status=Status.FEASIBLE,
            schedule=point.schedule,
            time_ms=point.time_ms,
            peak_bytes=point.peak_bytes,
        )
        return with_status(solution, gap=gap, stopped=stopped)

    def _without_schedule(self, solution: Solution, *, stopped: bool) -> Solution:
        minimum = self.minimum()
        budget = format_bytes(solution.budget_bytes)
        if solution.budget_bytes < minimum.lower_bound_bytes:
            status, text = Status.INFEASIBLE, f"no schedule fits {budget}: {minimum}"
        else:
            status = Status.CANCELLED if stopped else Status.UNKNOWN
            proven = f"proven is only that none fits below {format_bytes(minimum.lower_bound_bytes)}"
            text = f"no schedule for {budget} found; {minimum}; {proven}"
        return replace(solution, status=status, minimum=minimum, message=text)


def with_status(solution: Solution, *, gap: float, stopped: bool = False) -> Solution:
    """A solution with a schedule, told how good it is: optimal if proven within ``gap``, else feasible."""
    reached = solution.gap()
    assert reached is not None
    if reached <= max(gap, _SAME):
        proven = "the fastest schedule" if reached <= _SAME else f"within {reached:.1%} of the fastest schedule"
        return replace(solution, status=Status.OPTIMAL, message=f"proven to be {proven} for this budget")
    text = f"fits the budget; proven within {reached:.1%} of the fastest schedule"
    grouping = solution.gap(BoundScope.GROUPING)
    if grouping is not None:
        text += f", and within {grouping:.1%} among schedules of this grouping"
    return replace(solution, message=f"stopped: {text}" if stopped else text)
