"""From a budget to the best proven schedule: the one way there, whoever asks.

1. ``settled``: what is known already, also from earlier solves, may do.
2. ``begin``: a first schedule, by plan search, within a fraction of a second.
3. ``finish``: plan search on one core (``searching``), integer programs and bounds on another (``proving``).

``solve`` and the benchmarks ``run`` all of it. A session's worker answers with what is ``settled`` or begun, and leaves
the rest to another thread. A curve has a ``look`` at each of its budgets; ``in_steps`` knows no clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

import numpy as np

from explorer.solution import Solution
from explorer.solvers.monet.first_answer import first_answer
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.refinement import refine
from explorer.solvers.monet.wording import Progress, solution_of
from explorer.solvers.options import Options

Told = Callable[[Solution], None]


class Pursuit:
    """One budget's way.

    Args:
        knowledge: what is known already; learns every schedule and bound found.
        budget_bytes: peak allowed.
        options: formulation, time limit, gap and strategy.
        began: by the monotonic clock, when the time limit did; None: now.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        budget_bytes: int,
        options: Options,
        *,
        began: float | None = None,
    ) -> None:
        """Nothing is done yet."""
        self.knowledge, self.budget_bytes, self.options = knowledge, budget_bytes, options
        self._began = time.monotonic() if began is None else began

    def run(self, *, on_solution: Told | None = None) -> Solution:
        """All of it, within the time limit; ``on_solution`` is called with each better schedule or bound."""
        known = self.settled()
        if known is not None:
            return known
        first = self.begin()
        if on_solution is not None:
            on_solution(first)
        return self.finish(on_solution=on_solution)

    def settled(self) -> Solution | None:
        """The answer, where one is known that is near enough, or had as much time before; None where not."""
        known = self.knowledge.settled(self.budget_bytes, options=self.options)
        return self._solution(gap=self.options.gap) if known else None

    def known(self) -> Solution | None:
        """The best schedule known, without any search or wait for the kernel; None if there is none."""
        search = self.knowledge.search
        if search.ready(timeout=0.0):
            search.best(self.budget_bytes)
        return None if self.knowledge.frontier.best(self.budget_bytes) is None else self._solution(gap=0.0)

    def begin(self, *, stop: np.ndarray | None = None) -> Solution:
        """A first answer; ``stop``: uint8, shape (1,), another thread may set it where that is not wanted any more."""
        first_answer(self.knowledge, self.budget_bytes, until=self._until, stop=stop)
        return self._solution(gap=0.0)

    def finish(self, *, on_solution: Told | None = None, should_stop: Callable[[], bool] | None = None) -> Solution:
        """The best schedule found in the time that is left, and how good it is.

        Args:
            on_solution: called with each better schedule or bound, in the caller's thread.
            should_stop: polled, also from other threads; true ends it.
        """
        if self._left_s() <= 0:
            return self._solution(gap=self.options.gap)
        options = replace(self.options, time_limit=self._left_s())
        solution = refine(self.knowledge, self.budget_bytes, options, on_solution=on_solution, should_stop=should_stop)
        return replace(self._checked(solution), elapsed_s=time.monotonic() - self._began)

    def look(self, *, effort: float, stop: np.ndarray | None = None) -> None:
        """The first of the plan searches alone: what a curve takes of each of its budgets.

        Args:
            effort: of it; 1 takes about 0.1 s.
            stop: uint8, shape (1,): another thread may set it to end this.
        """
        search = next(self.options.strategy.searches(self.options.seed))
        self.knowledge.search.improve(
            self.budget_bytes,
            effort=effort,
            starts=search.starts,
            seed=search.seed,
            echoes=search.echoes,
            stop=stop,
        )

    def in_steps(self, steps: int) -> Solution:
        """So many plan searches, and a bound by linear relaxations: no clock is looked at."""
        from explorer.solvers.monet.bounding import bound_all  # here because cvxpy takes a second to import

        knowledge, budget_bytes = self.knowledge, self.budget_bytes
        for search in islice(self.options.strategy.searches(self.options.seed), steps):
            knowledge.search.improve(
                budget_bytes, effort=search.effort, starts=search.starts, seed=search.seed, echoes=search.echoes
            )
        bound_all(knowledge, budget_bytes)
        if knowledge.frontier.best(budget_bytes) is None:
            knowledge.seek_minimum(timeout=0.0)
        return self._solution(gap=self.options.gap)

    @property
    def _until(self) -> float:
        return self._began + self.options.time_limit

    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _solution(self, *, gap: float) -> Solution:
        return self._checked(solution_of(self.knowledge, Progress(self.budget_bytes, self._began), gap=gap))

    def _checked(self, solution: Solution) -> Solution:
        """Itself; that pins are honoured is read from the steps alone."""
        if solution.schedule is not None:
            assert not self.options.pins.broken_by(self.knowledge.profile.graph, solution.schedule)
        return solution
