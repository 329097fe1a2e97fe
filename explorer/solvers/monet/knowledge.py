"""One profile, any number of budgets: what was found and proven for one serves the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from explorer.schedule import Schedule
from explorer.simulation import simulate
from explorer.solution import Finder, Minimum
from explorer.solvers.monet.recalled import Answer, Recalled
from explorer.solvers.options import Options
from explorer.solvers.problem.frontier import Frontier, Point, judged
from explorer.solvers.problem.peak_bound import peak_lower_bound
from explorer.solvers.problem.problem import Problem
from explorer.solvers.search.plan_search import PlanSearch

SAME = 2e-6  # relative difference of times that counts as none: bounds are less by half of it than what is proven


class Knowledge:
    """What is known of one problem: every schedule and bound that any solve of it came across.

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
        self._spent_s: dict[int, float] = {}
        self._recalled = Recalled()
        self._lock = threading.Lock()
        self._proving = ThreadPoolExecutor(1, "prove")

    @property
    def operators(self) -> int:
        """How many there are, in both passes."""
        return len(self.problem.forward) + len(self.problem.backward)

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

    def note_bound(self, budget_bytes: int, bound_ms: float) -> None:
        """Remember that no schedule within the budget is quicker."""
        with self._lock:
            self._bounds[budget_bytes] = max(bound_ms, self._bounds.get(budget_bytes, 0.0))

    def near_enough(self, budget_bytes: int, *, gap: float) -> bool:
        """Is a schedule known that is proven within ``gap`` of the fastest?"""
        return self.gap(budget_bytes) <= max(gap, SAME)

    def decided(self, budget_bytes: int, *, gap: float) -> bool:
        """Is such a schedule known, or that there is none at all?"""
        return self.excludes(budget_bytes) or self.near_enough(budget_bytes, gap=gap)

    def add_schedule(self, schedule: Schedule, finder: Finder) -> Point:
        """Judge a schedule and remember it, for the plan search too if it is new on the frontier."""
        point = judged(self.profile, schedule, finder)
        self.add(point)
        return point

    def add(self, point: Point) -> None:
        """Remember a schedule, for the plan search too if it is new on the frontier."""
        if self.frontier.add(point):
            self.search.learn(point.schedule)

    def recall(self, answers: Sequence[Answer], schedule_of: Callable[[int], Schedule | None]) -> None:
        """Take what earlier solves proved, and their schedules when they are of use: see ``Recalled``."""
        self._recalled = Recalled(answers, schedule_of)
        for answer in answers:
            self.note(answer)

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
        answer = self._recalled.useful(self.frontier)
        if answer is not None:
            self._look_at(answer)
        return answer is not None

    def _look_at(self, answer: Answer) -> None:
        schedule = self._recalled.schedule(answer)
        if schedule is not None:
            with suppress(ValueError):  # of a version that did otherwise
                self.add_schedule(schedule, Finder.RECALLED)
                return
        with self._lock:  # the time was for nothing, as it turns out
            self._spent_s.pop(answer.budget_bytes, None)

    def settled(self, budget_bytes: int, *, options: Options) -> bool:
        """Is a schedule known that is near enough, or did an earlier solve have all the time for this very budget?"""
        while (answer := self._recalled.quickest(self.frontier, budget_bytes)) is not None:
            self._look_at(answer)
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

    def minimum(self) -> Minimum:
        """The smallest budget for which a schedule is known, and the operator that sets it."""
        while (answer := self._recalled.smallest(self.frontier.points()[0].peak_bytes)) is not None:
            self._look_at(answer)
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
