"""The thread that proves: bounds by linear relaxations, then integer programs, tighter bounds and breeding in turn."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from explorer.solution import Finder
from explorer.solvers.monet.breeding import Breeder
from explorer.solvers.monet.solve import Solve
from explorer.solvers.strategy import Proving

if TYPE_CHECKING:
    from explorer.solvers.formulation.grouped import GroupedModel
    from explorer.solvers.formulation.paper import PaperModel

    Model = GroupedModel | PaperModel


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


class Prover:
    """Bounds what the solve's schedules cost at least, and finds better ones on the way.

    Args:
        solve: learns bounds and schedules.
        breeder: of the same solve; gets blueprints.
    """

    def __init__(self, solve: Solve, breeder: Breeder) -> None:
        """Nothing is proven yet."""
        self._solve, self._breeder = solve, breeder
        self._knowledge, self._budget_bytes = solve.knowledge, solve.budget_bytes
        self._strategy, self._sizes = solve.options.strategy, solve.options.strategy.proving
        self._ends: frozenset[int] = frozenset()  # of a bound's intervals
        self._large = False  # too large for integer programs to find much: plans are bred instead

    def prove(self) -> None:
        """Bound by linear relaxations; then integer programs and tighter bounds in turn."""
        try:
            self._programs_and_bounds(self._programs())
        finally:
            self._solve.exhausted.set()

    def _programs_and_bounds(self, programs: Iterator[Model]) -> None:
        if self._solve.options.formulation == "paper":
            self._programs_until(programs, share=1.0)
        if not self._solve.over():
            self._linear_bound()
        if self._strategy.blueprint_bound:
            self._bound(share=self._sizes.blueprints, threshold=self._sizes.blueprint_length, news_only=True)
        model = next(programs, None)
        self._large = model is not None and model.milp.objective.size > self._sizes.small
        self._seek_ends()
        for turn in self._sizes.turns:
            if model is not None and model.milp.objective.size <= turn.columns:
                self._integer_program(model, time_limit=turn.program * self._solve.left_s)
                model = next(programs, None)
            loose = self._solve.gap > self._sizes.loose
            if self._large and not loose:
                self._breed()
            pressing = self._solve.gap > self._sizes.loosest
            self._bound(share=self._sizes.pressing if pressing else turn.bound, threshold=turn.length)
            if self._large and loose:
                self._breed()
        self._breed()
        if not self._large and self._strategy.tightening:
            self._tighten()
        if self._strategy.programs:
            self._programs_until(chain([] if model is None else [model], programs), share=0.5)

    def _linear_bound(self) -> None:
        """Bound by linear relaxations. Of a deep network by one, and then breed from plans like its solution."""
        from explorer.solvers.monet.bounding import bound_all  # here because cvxpy takes a second to import

        deep = self._strategy.deep and self._knowledge.operators >= self._sizes.deep
        bound_all(
            self._knowledge,
            self._budget_bytes,
            at_once=deep,
            on_blueprint=self._breeder.suggest if deep else None,
            should_stop=self._solve.over,
        )
        if deep:
            self._breed()

    def _bound(self, *, share: float, threshold: float, news_only: bool = False) -> None:
        """Bound by whole numbers in a share of the time left; what that finds on the way are plans to breed from.

        ``news_only``: end once neither comes any more.
        """
        from explorer.solvers.monet.bounding import bound_all  # here because cvxpy takes a second to import

        news = _News(self._knowledge.bound_ms(self._budget_bytes), self._sizes)

        def suggest(blueprint: np.ndarray) -> None:
            news.heard()
            self._breeder.suggest(blueprint)

        def over() -> bool:
            return self._solve.over() or (news_only and news.stale(self._knowledge.bound_ms(self._budget_bytes)))

        if self._strategy.whole_bounds and not self._solve.over():
            bound_all(
                self._knowledge,
                self._budget_bytes,
                threshold=threshold,
                time_limit=share * self._solve.left_s,
                ends=self._ends,
                on_blueprint=suggest if self._strategy.blueprints else None,
                should_stop=over,
            )

    def _breed(self) -> None:
        """Breed plans here too, in a share of the time left."""
        if not self._knowledge.search.ready(timeout=0.0):
            return  # it would wait until the kernel is compiled; there is other work to do meanwhile
        close = self._large and self._solve.gap <= self._sizes.close
        share = self._sizes.breeding_close if close else self._sizes.breeding
        self._breeder.breed_for(share * self._solve.left_s)

    def _seek_ends(self) -> None:
        """Bound with intervals that end where that says most, as long as the bound is far."""
        from explorer.solvers.formulation.bound import critical_ends  # here because cvxpy takes a second to import

        for threshold in self._sizes.long if self._strategy.critical_ends else ():
            if self._solve.over() or self._solve.gap <= self._sizes.wide:
                return
            self._ends = critical_ends(
                self._knowledge.problem.for_bounds,
                self._budget_bytes,
                threshold=threshold,
                time_limit=self._sizes.seeking * self._solve.left_s,
                should_stop=self._solve.over,
            )
            self._bound(share=self._sizes.sought, threshold=threshold)

    def _tighten(self) -> None:
        """Bound with shorter and shorter intervals: as long as they are solved to the end, they say more and more."""
        threshold = self._sizes.turns[-1].length
        while threshold > 0 and not self._solve.over():
            threshold = self._sizes.shorter * threshold if threshold > self._sizes.shortest else 0.0
            before_s = self._solve.left_s
            self._bound(share=self._sizes.tightening, threshold=threshold)
            if self._solve.left_s <= (1 - self._sizes.tightening) * before_s:
                return

    def _programs_until(self, programs: Iterable[Model], *, share: float) -> None:
        """Solve one after the other, each in a share of the time left."""
        for model in programs:
            if self._solve.over():
                return
            self._integer_program(model, time_limit=share * self._solve.left_s)

    def _programs(self) -> Iterator[Model]:
        """The formulation's programs: for ``grouped``, finer and finer groupings while there is time."""
        if self._solve.options.formulation == "paper":
            from explorer.solvers.formulation import paper

            yield paper.build(self._knowledge.problem, self._budget_bytes)
            return
        from explorer.solvers.formulation import grouped

        threshold, groups = grouped.DEFAULT_THRESHOLD, 0
        while not self._solve.over():
            model = grouped.build(self._knowledge.problem, self._budget_bytes, threshold=threshold)
            if model.group_count > groups:
                yield model
            elif threshold == 0:
                return
            groups = model.group_count
            threshold = threshold * self._sizes.finer if threshold > 0.01 else 0.0

    def _integer_program(self, model: Model, *, time_limit: float) -> None:
        """Solve one program with SCIP, from the best schedules known."""
        from explorer.solvers.programs.scip import minimise

        self._solve.progress.statistics = model.statistics
        if not self._strategy.programs and self._solve.options.formulation == "grouped":
            return
        if not model.milp.objective.size:
            return
        first = self._solve.progress.grouping_ms is None
        result = minimise(
            model.milp,
            time_limit=time_limit,
            gap=self._solve.options.gap,
            starts=self._starts(model),
            on_incumbent=lambda x, _: self._knowledge.add_schedule(model.decode(x), Finder.PROGRAM),
            on_bound=self._take_bound if first else None,
            should_stop=self._solve.over,
        )
        # A finer grouping's bound counts once it is proven; until then the coarser one's says more.
        if result.bound is not None and (first or result.proven):
            self._take_bound(result.bound)

    def _starts(self, model: Model) -> list[np.ndarray]:
        """Start solutions: the best schedule, and smaller ones, for the program may need more memory for each."""
        fitting = [x for x in self._knowledge.frontier.points() if x.peak_bytes <= self._budget_bytes][::-1]
        chosen = fitting[:: max(1, len(fitting) // self._sizes.starts)][: self._sizes.starts]
        return [x for x in (model.encode(point.schedule) for point in chosen) if x is not None]

    def _take_bound(self, bound_ms: float) -> None:
        self._solve.progress.grouping_ms = bound_ms
