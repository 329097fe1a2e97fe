"""Answers without an integer program: simple plans, then annealing from those.

Nothing here is proven; every answer is a plan that the simulator judges like any other schedule.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from explorer.schedule import Schedule
from explorer.solution import Finder
from explorer.solvers.problem.frontier import Frontier, Point, Remembered, judged
from explorer.solvers.problem.peak_bound import peak_lower_bound
from explorer.solvers.problem.problem import Problem
from explorer.solvers.problem.schedules import schedule_of
from explorer.solvers.search.arrays import plan_arrays
from explorer.solvers.search.from_schedule import genes_of
from explorer.solvers.search.plain_schedule import order_of, plain_schedule
from explorer.solvers.search.plan_archive import COLD, HOT, PENALTY, PlanArchive
from explorer.solvers.search.room import demand
from explorer.solvers.search.sketching import interpreted, sketches
from explorer.solvers.search.trace import workspace
from explorer.solvers.strategy import ALL_STARTS, Start

_EXCESS = 3.0  # penalty for the peak of a plan that need not fit, as a start
_STRICT = 100.0  # the same where the smallest peak is wanted, whatever the time
_SUSPICIOUS = 1.25  # times the keep-all time: such a plan is probably a trap, so search from each start, …
_STRICTER = 10.0  # … with so many times the penalty of the one before
_DEMAND = 1.0  # effort for each demand (``demand``), half of it without
_DEMANDING = 3.0  # penalty while room is made for one
_DRAWS = 1000  # more demands than in one search


_FINDERS = {Start.NEAR: Finder.SEARCH, Start.BEST: Finder.SEARCH, Start.ROOM: Finder.ROOM}


@dataclass(frozen=True, eq=False)
class Plan:
    """What a search found.

    Attributes:
        genes: uint16, shape (genes,), see ``search.kernel``.
        excess_bytes: above the budget; infinite if it cannot run.
        time_ms: likewise.
        point: with its schedule; None if it does not fit, or another is known that is no slower.
    """

    genes: np.ndarray
    excess_bytes: float
    time_ms: float
    point: Point | None

    @property
    def fits(self) -> bool:
        """Is it within the budget?"""
        return self.excess_bytes == 0

    @property
    def rank(self) -> tuple[float, float]:
        """Less is better."""
        return self.excess_bytes, self.time_ms


class PlanSearch(PlanArchive):
    """Searches plans for one problem and remembers the best for every peak.

    Args:
        problem: graph, costs, and what may be chosen.
        frontier: where the schedules found are kept; a new one by default.
    """

    def __init__(self, problem: Problem, *, frontier: Frontier | None = None) -> None:
        """Begins to seed the archive with simple plans, on another thread."""
        self.problem = problem
        self.frontier = Frontier() if frontier is None else frontier
        keep = self._add(plain_schedule(problem), Finder.KEEPING)
        super().__init__(plan_arrays(problem), floor=peak_lower_bound(problem), keep=keep)
        self._learned: list[np.ndarray] = []
        self._learning = threading.Lock()

    def learn(self, schedule: Schedule) -> None:
        """Take a schedule from elsewhere as one of the plans that the next search may start from."""
        genes = genes_of(self.problem, self.arrays, schedule)
        if genes is not None:
            with self._learning:
                self._learned.append(genes)

    def sketch(self, budget_bytes: int, *, until: float = np.inf) -> Point | None:
        """Answer without the archive, and without the compiled kernel where that is not there yet, from a few plans.

        Args:
            budget_bytes: the peak allowed.
            until: by the monotonic clock, when no other plan is begun with once one fits.
        """
        work = workspace(self.arrays, length=self._work.trial.order.size)

        def evaluate(genes: np.ndarray) -> tuple[float, int]:
            failed = self._begun.done() and self._begun.exception() is not None
            if failed or not self._loaded.is_set():
                return interpreted(self.arrays, genes, work, budget_bytes)
            peak, time_ms, runs = self._kernel(genes[None].copy(), budget_bytes, beside=(work, self._no_archive()))
            return (peak, int(runs)) if np.isfinite(time_ms) else (np.inf, -1)

        for runs in sketches(self.arrays, evaluate, budget_bytes=budget_bytes, until=until):
            self._add(self._schedule(work.trial.order[:runs].tolist(), budget_bytes), Finder.SIMPLE)
        return self.frontier.best(budget_bytes)

    def best(self, budget_bytes: int, *, finder: Finder = Finder.ELSEWHERE) -> Point | None:
        """The quickest schedule known that fits the budget, without searching; None if none is known.

        Args:
            budget_bytes: the peak allowed.
            finder: of what is better than any schedule so far.
        """
        self._begun.result()
        with self._lock:
            times_ms = np.where(self._archive.peaks <= budget_bytes, self._archive.times_ms, np.inf)
            cell = times_ms.argmin()
            plan = self._archive.genes[cell : cell + 1].copy()
        if np.isfinite(times_ms[cell]):
            self._remember(plan, budget_bytes, finder)
        return self.frontier.best(budget_bytes)

    def tried(
        self, genes: np.ndarray, budget_bytes: int, *, finder: Finder, quicker_than_ms: float = np.inf
    ) -> Point | None:
        """What a plan is with so much room, if it can run, fits and is quicker; it is not kept.

        Args:
            genes: uint16, shape (genes,).
            budget_bytes: the peak allowed.
            finder: of the plan.
            quicker_than_ms: what it is worth nothing without.
        """
        self._begun.result()
        with self._lock:
            beside = self._work, self._no_archive()
            peak, time_ms, count = self._kernel(genes[None].copy(), budget_bytes, beside=beside)
            if count < 0 or peak > budget_bytes or time_ms >= quicker_than_ms:
                return None
            order = self._work.trial.order[:count].tolist()
        return judged(self.problem.profile, self._schedule(order, budget_bytes), finder)

    def quickest_first(self, budget_bytes: int) -> list[Remembered]:
        """Everything remembered that fits, by time."""
        self._begun.result()
        with self._lock:
            times_ms, peaks = self._archive.times_ms, self._archive.peaks
            cells = np.flatnonzero(np.isfinite(times_ms) & (peaks <= budget_bytes))
            archived = zip(times_ms[cells].tolist(), peaks[cells].tolist(), self._archive.genes[cells], strict=True)
            make = partial(self.tried, finder=Finder.SEARCH)
            found = [Remembered(x, partial(make, genes, int(peak))) for x, peak, genes in archived]
        known = [x for x in self.frontier.points() if x.peak_bytes <= budget_bytes]
        found += [Remembered(x.time_ms, lambda point=x: point) for x in known]
        return sorted(found, key=lambda x: x.time_ms)

    def improve(
        self,
        budget_bytes: int,
        *,
        effort: float = 1.0,
        starts: Sequence[Start] = ALL_STARTS,
        seed: int = 1,
        echoes: bool = True,
        stop: np.ndarray | None = None,
    ) -> Point | None:
        """Anneal, then answer as ``best``.

        Args:
            budget_bytes: the peak allowed.
            effort: of one search; 1 takes about 0.1 s whatever the graph's size.
            starts: what it begins with. Where it finds nothing good, another follows from each of the others.
            seed: of the random moves; equal seeds on equal histories give equal answers.
            echoes: whether changes of a block are made in others like it too.
            stop: uint8, shape (1,): another thread may set it to end the search.
        """
        if self.has_choices:
            for number, start in enumerate(starts):
                penalty = PENALTY * _STRICTER**number
                plan = self._anneal(
                    budget_bytes,
                    effort=effort,
                    start=start,
                    seed=seed + number,
                    penalty=penalty,
                    echoes=echoes,
                    stop=stop,
                )
                self._remember(plan, budget_bytes, _FINDERS[start])
                best = self.best(budget_bytes, finder=_FINDERS[start])
                if not self._suspicious(best) or (stop is not None and stop[0]):
                    break
        return self.best(budget_bytes)

    def anneal_beside(
        self,
        budget_bytes: int,
        *,
        parent: np.ndarray | None = None,
        temperatures: tuple[float, float] = HOT,
        effort: float,
        seed: int,
        echoes: bool = True,
        stop: np.ndarray | None = None,
    ) -> Plan:
        """Anneal beside other searches, without what they know; nothing of it is remembered here.

        Args:
            budget_bytes: the peak allowed.
            parent: genes to begin with; None: from scratch.
            temperatures: the first and the last, in keep-all times.
            effort: as for ``improve``, of this one search.
            seed: of the random moves.
            echoes: as for ``improve``.
            stop: likewise.
        """
        self._seeded.result()
        work = workspace(self.arrays, length=self._work.trial.order.size)
        starts = self._keep_everything() if parent is None else parent[None].copy()
        peak, time_ms, runs = self._kernel(
            starts,
            budget_bytes,
            tries=self._tries(effort),
            temperatures=temperatures,
            seed=seed,
            stop=stop,
            arrays=self._arrays(echoes=echoes),
            beside=(work, self._no_archive()),
        )
        point, known = None, self.frontier.best(budget_bytes)
        if runs >= 0 and peak <= budget_bytes and (known is None or time_ms < known.time_ms):
            schedule = self._schedule(work.trial.order[:runs].tolist(), budget_bytes)
            point = judged(self.problem.profile, schedule, Finder.BREEDING)
        return Plan(starts[0], max(0.0, peak - budget_bytes), time_ms, point)

    def answer(self, budget_bytes: int, *, stop: np.ndarray | None = None) -> Point | None:
        """The best plan known, at once; after a search only where there is none, or one that is probably a trap.

        Args:
            budget_bytes: the peak allowed.
            stop: as for ``improve``.
        """
        point = self.best(budget_bytes)
        return self.improve(budget_bytes, stop=stop) if self._suspicious(point) else point

    def _suspicious(self, point: Point | None) -> bool:
        return point is None or point.time_ms > _SUSPICIOUS * self.keep_all_ms

    def shrink(
        self, *, effort: float = 2.0, start: Start = Start.NEAR, seed: int = 1, stop: np.ndarray | None = None
    ) -> Point:
        """Search for the smallest peak, whatever the time; the smallest schedule known.

        Args:
            effort: as for ``improve``.
            start: what it begins with.
            seed: likewise.
            stop: likewise.
        """
        if self.has_choices:
            plan = self._anneal(
                self.floor.peak_bytes, effort=effort, start=start, seed=seed, penalty=_STRICT, stop=stop
            )
            self._remember(plan, None, Finder.SMALLEST)
            with self._lock:
                # None, where keeping everything takes less than any plan.
                smallest = np.flatnonzero(np.isfinite(self._archive.times_ms))[:1]
                plans = self._archive.genes[smallest]
            for plan in plans:
                self._remember(plan[None], None, Finder.SMALLEST)
        return self.frontier.points()[0]

    def budgets(self, points: int) -> list[int]:
        """From the no-recompute peak downwards: a plan for a large budget is a good start for the next smaller one."""
        return np.linspace(self.keep_all_peak_bytes, self.floor.peak_bytes, points, dtype=np.int64).tolist()

    def collect(self) -> Frontier:
        """Turn everything remembered into schedules; the frontier that holds them."""
        self._seeded.result()
        with self._lock:
            plans = self._archive.genes[np.isfinite(self._archive.times_ms)]
        for plan in plans:
            self._remember(plan[None], None, Finder.ELSEWHERE)
        return self.frontier

    def _anneal(
        self,
        budget_bytes: int,
        *,
        effort: float,
        start: Start,
        seed: int,
        penalty: float = PENALTY,
        echoes: bool = True,
        stop: np.ndarray | None = None,
    ) -> np.ndarray:
        """Anneal from keeping everything, or from what was learned and the best of the archive."""
        self._seeded.result()
        tries = self._tries(effort)
        if start is Start.ROOM and self._make_room(
            budget_bytes, effort=effort, seed=seed, penalty=penalty, echoes=echoes, stop=stop
        ):
            tries = 0
        with self._lock:
            starts, temperatures = self._keep_everything(), HOT
            if tries == 0 or start is not Start.SCRATCH:
                known = self._start(budget_bytes, fitting=start is not Start.NEAR, penalty=max(_EXCESS, penalty))
                with self._learning:
                    starts, self._learned = np.stack([known, *self._learned]), []
                temperatures = COLD
            self._kernel(
                starts,
                budget_bytes,
                tries=tries,
                temperatures=temperatures,
                seed=seed,
                penalty=penalty,
                stop=stop,
                arrays=self._arrays(echoes=echoes),
            )
        return starts[:1]

    def _make_room(
        self, budget_bytes: int, *, effort: float, seed: int, penalty: float, echoes: bool, stop: np.ndarray | None
    ) -> bool:
        """Anneal while something quicker is demanded, then without; false if the best schedule leaves no demand."""
        self.best(budget_bytes)
        for number in range(max(1, round(effort / _DEMAND))):
            if stop is not None and stop[0]:
                return True
            known = self.frontier.best(budget_bytes)
            draw = _DRAWS * seed + number
            extra = None if known is None else demand(self.problem, self.arrays, known.schedule, seed=draw)
            if extra is None:
                return False
            demands = self._arrays(echoes=echoes)._replace(option_extra=extra)
            tries = self._tries(min(effort, _DEMAND) / 2)
            with self._lock:
                plan = self._start(budget_bytes, fitting=True, penalty=penalty)[None].copy()
                strict = max(_DEMANDING, penalty)
                self._kernel(
                    plan,
                    budget_bytes,
                    tries=tries,
                    seed=draw,
                    penalty=strict,
                    stop=stop,
                    arrays=demands,
                    beside=(self._work, self._no_archive()),
                )
                # What serves the demand deserves a search of its own though it be no better yet.
                arrays = self._arrays(echoes=echoes)
                self._kernel(plan, budget_bytes, tries=tries, seed=draw, penalty=penalty, stop=stop, arrays=arrays)
            self._remember(plan, budget_bytes, Finder.ROOM)
        return True

    def _remember(self, plan: np.ndarray, budget_bytes: int | None, finder: Finder) -> None:
        """Turn a plan that can run into a schedule, unless a better one is known; None: with the plan's least peak."""
        with self._lock:
            peak, time_ms, count = self._kernel(plan, budget_bytes or 0)
            if count < 0 or not np.isfinite(time_ms):
                return
            if budget_bytes is None:
                peak, time_ms, count = self._kernel(plan, int(peak))
            order = self._work.trial.order[:count].tolist()
        known = self.frontier.best(int(peak))
        if known is not None and known.time_ms <= time_ms:
            return
        schedule = self._schedule(order, int(peak) if budget_bytes is None else budget_bytes)
        point = self._add(schedule, finder)
        assert point.peak_bytes == peak, "the kernel and the simulator disagree"

    def _add(self, schedule: Schedule, finder: Finder) -> Point:
        point = judged(self.problem.profile, schedule, finder)
        self.frontier.add(point)
        return point

    def _schedule(self, runs: list[int], budget_bytes: int) -> Schedule:
        order = order_of(self.arrays, runs)
        return schedule_of(self.problem, order, method="plan search", budget_bytes=budget_bytes)
