"""Improve and prove an answer: plan search on one core, integer programs and bounds in turn on another."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain
from typing import Protocol

import numpy as np

from explorer.schedule import Schedule
from explorer.solution import Finder, Solution, Statistics
from explorer.solvers.monet.breeding import Breeder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.wording import Progress, solution_of
from explorer.solvers.options import Options
from explorer.solvers.programs.milp import Milp
from explorer.solvers.strategy import Proving

_NEWS_S = 0.25  # bounds are passed on at most this often
_POLL_S = 0.05
_GRACE_S = 0.1  # for a search to end once it is told to: it nearly always takes less
_SHRINK_S = 0.4  # more than a search for the smallest peak takes


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
    knowledge: Knowledge,
    budget_bytes: int,
    options: Options,
    *,
    on_solution: Callable[[Solution], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Solution:
    """Improve on what the knowledge knows for a budget.

    Args:
        knowledge: what is known already; learns every schedule and bound found.
        budget_bytes: peak allowed.
        options: formulation, time limit and gap.
        on_solution: called with each better schedule or bound, in the caller's thread.
        should_stop: polled, also from the thread that bounds; true ends the solve.
    """
    return _Refinement(knowledge, budget_bytes, options, on_solution, should_stop).run()


class _News:
    """Blueprints and better bounds; stale once there were none for as long as all of them took."""

    def __init__(self, bound_ms: float, sizes: Proving) -> None:
        self.began, self.bound_ms, self.sizes = time.monotonic(), bound_ms, sizes
        self.latest: float | None = None

    def heard(self) -> None:
        self.latest = time.monotonic()

    def stale(self, bound_ms: float) -> bool:
        if bound_ms > self.bound_ms * (1 + self.sizes.rise):
            self.bound_ms = bound_ms
            self.heard()
        latest = self.latest
        return latest is not None and time.monotonic() - latest > max(self.sizes.stale_s, latest - self.began)


class _Refinement:
    def __init__(
        self,
        knowledge: Knowledge,
        budget_bytes: int,
        options: Options,
        on_solution: Callable[[Solution], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self.knowledge, self.budget_bytes, self.options = knowledge, budget_bytes, options
        self.on_solution = on_solution
        self.should_stop = should_stop
        self.progress = Progress(budget_bytes)
        self.ended, self.exhausted = threading.Event(), threading.Event()
        self.stop = np.zeros(1, np.uint8)
        self.ends: frozenset[int] = frozenset()  # of a bound's intervals
        self.large = False  # too large for integer programs to find much: plans are crossed instead
        self.strategy, self.sizes = options.strategy, options.strategy.proving
        self.breeder = Breeder(
            knowledge, budget_bytes, seed=options.seed, stop=self.stop, over=self.over, strategy=options.strategy
        )
        self.told_at, self.told = 0.0, (np.inf, 0.0, 0.0)

    def run(self) -> Solution:
        if not self.over():
            pool = ThreadPoolExecutor(1, "search")
            searching = pool.submit(self.search)
            pool.shutdown(wait=False)
            proving = self.knowledge.start_proof(self.prove)
            try:
                while not self.over() and (running := [x for x in (searching, proving) if not x.done()]):
                    wait(running, _POLL_S)
                    self.tell()
            finally:
                self.ended.set()
                self.stop[0] = 1
            wait([searching], _GRACE_S)
            # What stops late, while the kernel is compiled say, does so alone; the next proof waits for it.
            for task in (searching, proving):
                if not task.cancel() and task.done():
                    task.result()
            self.tell()
        if self.knowledge.frontier.best(self.budget_bytes) is None and not self.stopped() and self.left_s() > _SHRINK_S:
            self.knowledge.seek_minimum(timeout=self.left_s() - _SHRINK_S)
        return solution_of(self.knowledge, self.progress, gap=self.options.gap, stopped=self.stopped())

    def search(self) -> None:
        """Search plans, longer and longer, also from what integer programs find; breed others between."""
        sizes = self.strategy.searching
        idle, owed = 0, -sizes.breeding * sizes.first
        for number, search in enumerate(self.strategy.searches(self.options.seed), start=1):
            if self.over() or (self.exhausted.is_set() and idle >= sizes.patience):
                return
            known = self.knowledge.frontier.best(self.budget_bytes)
            self.knowledge.search.improve(
                self.budget_bytes, effort=search.effort, starts=search.starts, seed=search.seed, stop=self.stop
            )
            if self.knowledge.frontier.best(self.budget_bytes) is None:
                self.knowledge.seek_minimum(timeout=0.0)  # while there is time: the answer names it
            idle = idle + 1 if self.knowledge.frontier.best(self.budget_bytes) == known else 0
            owed += sizes.breeding * search.effort
            while (owed > 0 or self.breeds_early(number)) and not self.over() and not self.idle():
                bred = self.breeder.breed()
                # What is bred early is not paid for by seconds of searches that find little after it.
                owed -= bred if owed > 0 else 0.0

    def breeds_early(self, searched: int) -> bool:
        """Is there something new to breed from, and did each kind of search have its turn?"""
        early = self.strategy.early_blueprints and searched >= len(self.strategy.starts)
        return early and self.breeder.has_blueprints

    def idle(self) -> bool:
        """Is breeding of no more use?"""
        return self.exhausted.is_set() or self.breeder.converged()

    def prove(self) -> None:
        """Bound by linear relaxations; then integer programs and tighter bounds in turn."""
        try:
            self.programs_and_bounds(self.programs())
        finally:
            self.exhausted.set()

    def programs_and_bounds(self, programs: Iterator[Model]) -> None:
        from explorer.solvers.monet.bounding import bound_all  # here because cvxpy takes a second to import

        if self.options.formulation == "paper":
            self.programs_until(programs, share=1.0)
        if not self.over():
            bound_all(self.knowledge, self.budget_bytes, should_stop=self.over)
        if self.strategy.blueprint_bound:
            self.bound(share=self.sizes.blueprints, threshold=self.sizes.blueprint_length, news_only=True)
        model = next(programs, None)
        self.large = model is not None and model.milp.objective.size > self.sizes.small
        self.seek_ends()
        for turn in self.sizes.turns:
            if model is not None and model.milp.objective.size <= turn.columns:
                self.integer_program(model, time_limit=turn.program * self.left_s())
                model = next(programs, None)
            loose = self.knowledge.gap(self.budget_bytes) > self.sizes.loose
            if self.large and not loose:
                self.cross()
            pressing = self.knowledge.gap(self.budget_bytes) > self.sizes.loosest
            self.bound(share=self.sizes.pressing if pressing else turn.bound, threshold=turn.length)
            if self.large and loose:
                self.cross()
        self.cross()
        if not self.large and self.strategy.tightening:
            self.tighten()
        if self.strategy.programs:
            self.programs_until(chain([] if model is None else [model], programs), share=0.5)

    def bound(self, *, share: float, threshold: float, news_only: bool = False) -> None:
        """Bound by whole numbers in a share of the time left; what that finds on the way are plans to breed from.

        ``news_only``: end once neither comes any more.
        """
        from explorer.solvers.monet.bounding import bound_all  # here because cvxpy takes a second to import

        news = _News(self.knowledge.bound_ms(self.budget_bytes), self.sizes)

        def suggest(blueprint: np.ndarray) -> None:
            news.heard()
            self.breeder.suggest(blueprint)

        def over() -> bool:
            return self.over() or (news_only and news.stale(self.knowledge.bound_ms(self.budget_bytes)))

        if self.strategy.whole_bounds and not self.over():
            bound_all(
                self.knowledge,
                self.budget_bytes,
                threshold=threshold,
                time_limit=share * self.left_s(),
                ends=self.ends,
                on_blueprint=suggest if self.strategy.blueprints else None,
                should_stop=over,
            )

    def cross(self) -> None:
        """Cross plans in a share of the time left."""
        if not self.knowledge.search.ready(timeout=0.0):
            return  # it would wait until the kernel is compiled; there is other work to do meanwhile
        close = self.large and self.knowledge.gap(self.budget_bytes) <= self.sizes.close
        self.breeder.cross(time_limit=(self.sizes.crossing_close if close else self.sizes.crossing) * self.left_s())

    def seek_ends(self) -> None:
        """Bound with intervals that end where that says most, as long as the bound is far."""
        from explorer.solvers.monet.bounding import critical_ends  # here because cvxpy takes a second to import

        for threshold in self.sizes.long if self.strategy.critical_ends else ():
            if self.over() or self.knowledge.gap(self.budget_bytes) <= self.sizes.wide:
                return
            self.ends = critical_ends(
                self.knowledge,
                self.budget_bytes,
                threshold=threshold,
                time_limit=self.sizes.seeking * self.left_s(),
                should_stop=self.over,
            )
            self.bound(share=self.sizes.sought, threshold=threshold)

    def tighten(self) -> None:
        """Bound with shorter and shorter intervals: as long as they are solved to the end, they say more and more."""
        threshold = self.sizes.turns[-1].length
        while threshold > 0 and not self.over():
            threshold = self.sizes.shorter * threshold if threshold > self.sizes.shortest else 0.0
            before_s = self.left_s()
            self.bound(share=self.sizes.tightening, threshold=threshold)
            if self.left_s() <= (1 - self.sizes.tightening) * before_s:
                return

    def programs_until(self, programs: Iterable[Model], *, share: float) -> None:
        """Solve one after the other, each in a share of the time left."""
        for model in programs:
            if self.over():
                return
            self.integer_program(model, time_limit=share * self.left_s())

    def stopped(self) -> bool:
        return self.should_stop is not None and self.should_stop()

    def left_s(self) -> float:
        return self.options.time_limit - (time.monotonic() - self.progress.began)

    def over(self) -> bool:
        """Is there a reason to end: proven, excluded, out of time, stopped, or nothing left to solve?"""
        if self.ended.is_set() or self.stopped() or self.left_s() <= 0:
            return True
        if self.knowledge.excludes(self.budget_bytes):
            return True
        return self.knowledge.near_enough(self.budget_bytes, gap=self.options.gap)

    def programs(self) -> Iterator[Model]:
        """The formulation's programs: for ``grouped``, finer and finer groupings while there is time."""
        if self.options.formulation == "paper":
            from explorer.solvers.formulation import paper

            yield paper.build(self.knowledge.problem, self.budget_bytes)
            return
        from explorer.solvers.formulation import grouped

        threshold, groups = grouped.DEFAULT_THRESHOLD, 0
        while not self.over():
            model = grouped.build(self.knowledge.problem, self.budget_bytes, threshold=threshold)
            if model.group_count > groups:
                yield model
            elif threshold == 0:
                return
            groups = model.group_count
            threshold = threshold * self.sizes.finer if threshold > 0.01 else 0.0

    def integer_program(self, model: Model, *, time_limit: float) -> None:
        """Solve one program with SCIP, from the best schedules known."""
        from explorer.solvers.programs.scip import minimise

        self.progress.statistics = model.statistics
        if not self.strategy.programs and self.options.formulation == "grouped":
            return
        if not model.milp.objective.size:
            return
        first = self.progress.grouping_ms is None
        result = minimise(
            model.milp,
            time_limit=time_limit,
            gap=self.options.gap,
            start=self.starts(model),
            on_incumbent=lambda x, _: self.take(model.decode(x)),
            on_bound=self.take_bound if first else None,
            should_stop=self.over,
        )
        # A finer grouping's bound counts once it is proven; until then the coarser one's says more.
        if result.bound is not None and (first or result.proven):
            self.take_bound(result.bound)

    def starts(self, model: Model) -> list[np.ndarray]:
        """Start solutions: the best schedule, and smaller ones, for the program may need more memory for each."""
        fitting = [x for x in self.knowledge.frontier.points() if x.peak_bytes <= self.budget_bytes][::-1]
        chosen = fitting[:: max(1, len(fitting) // self.sizes.starts)][: self.sizes.starts]
        return [x for x in (model.encode(point.schedule) for point in chosen) if x is not None]

    def take(self, schedule: Schedule) -> None:
        """A schedule came from SCIP."""
        self.knowledge.add_schedule(schedule, Finder.PROGRAM)

    def take_bound(self, bound_ms: float) -> None:
        """A bound came from SCIP."""
        self.progress.grouping_ms = bound_ms

    def tell(self) -> None:
        """Pass on a better schedule at once, a better bound now and then."""
        if self.on_solution is None:
            return
        best = self.knowledge.frontier.best(self.budget_bytes)
        if best is None:
            return
        known = (best.time_ms, self.knowledge.bound_ms(self.budget_bytes), self.progress.grouping_ms or 0.0)
        soon = time.monotonic() - self.told_at < _NEWS_S
        if known == self.told or (soon and best.time_ms >= self.told[0]):
            return
        self.told_at, self.told = time.monotonic(), known
        self.on_solution(solution_of(self.knowledge, self.progress, gap=self.options.gap))
