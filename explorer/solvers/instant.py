"""Answers without an integer program: families of plans, then annealing over plans (``plan_kernel``).

Nothing here is proven; every answer is a plan that the simulator judges like any other schedule.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from explorer.device_profile import Profile
from explorer.graph import Implementation, Operator
from explorer.schedule import Run, Schedule, with_frees
from explorer.simulation import simulate
from explorer.solvers import plan_kernel
from explorer.solvers.frontier import Frontier, Point
from explorer.solvers.plan_kernel import PlanArrays

_ARCHIVE_CELLS = 128
_ORDER_FACTOR = 12  # an order may have this many times as many runs as there are operators
_WORK = 3_000_000  # tries × operators of one search at effort 1: about 0.1 s


class PlanSearch:
    """Searches plans for one profile and remembers the best for every peak.

    Args:
        profile: graph and costs.
        frontier: where the schedules found are kept; a new one by default.
    """

    def __init__(self, profile: Profile, *, frontier: Frontier | None = None) -> None:
        self.profile = profile
        self.frontier = Frontier() if frontier is None else frontier
        self._first = [_untouching(operator, again=False) for operator in profile.graph.operators]
        self._again = [_untouching(operator, again=True) if operator.recomputable else None
                       for operator in profile.graph.forward]  # fmt: skip
        self.arrays = _plan_arrays(profile, self._first, self._again)
        genes = int(self.arrays.gene_start[-1])
        self._order = np.empty(_ORDER_FACTOR * len(self._first), np.int32)
        self._lock = threading.Lock()
        self._archive = np.zeros((_ARCHIVE_CELLS, genes), np.uint8)
        self._archive_ms = np.full(_ARCHIVE_CELLS, np.inf)
        self._archive_peaks = np.zeros((2, _ARCHIVE_CELLS), np.int64)
        keep_all = np.ones(genes, np.uint8)
        self.keep_all_peak_bytes, self.keep_all_ms = self._judge(keep_all)
        low = min(self.arrays.fixed_bytes, self.keep_all_peak_bytes - _ARCHIVE_CELLS)
        self._archive_peaks[0] = np.linspace(low, self.keep_all_peak_bytes, _ARCHIVE_CELLS).round()
        with self._lock:
            for genes_ in _families(self.arrays):
                self._evaluate(genes_)

    def best(self, budget_bytes: int) -> Point | None:
        """The quickest schedule known that fits the budget, without searching; None if none is known."""
        with self._lock:
            fitting = np.flatnonzero((self._archive_peaks[1] <= budget_bytes) & np.isfinite(self._archive_ms))
            genes = self._archive[fitting[self._archive_ms[fitting].argmin()]].copy() if fitting.size else None
        if genes is not None:
            self._remember(genes, budget_bytes)
        return self.frontier.best(budget_bytes)

    def improve(self, budget_bytes: int, *, effort: float = 1.0, seed: int = 1) -> Point | None:
        """Anneal from the best plan known for the budget (or the smallest one), then answer as ``best``.

        Args:
            budget_bytes: the peak allowed.
            effort: 1 takes about 0.1 s whatever the graph's size.
            seed: of the random moves; equal seeds on equal histories give equal answers.
        """
        for genes in self._anneal(budget_bytes, effort, penalty=2.0, seed=seed):
            self._remember(genes, budget_bytes)
        return self.best(budget_bytes)

    def shrink(self, *, effort: float = 1.0, seed: int = 1) -> Point:
        """Search for the smallest peak, whatever the time; the smallest schedule known."""
        # With no byte allowed and a high price, time only breaks ties.
        for genes in self._anneal(0, effort, penalty=50.0, seed=seed):
            self._remember(genes, None)
        return self.frontier.points()[0]

    def fill(self, points: int, *, effort: float = 1.0) -> None:
        """Search at ``points`` budgets spread from the smallest known peak to the no-recompute peak."""
        low = self.shrink(effort=effort).peak_bytes
        # Downwards: a plan for a large budget is a good start for the next smaller one.
        for budget in np.linspace(self.keep_all_peak_bytes, low, points).astype(np.int64):
            self.improve(int(budget), effort=effort)

    def collect(self) -> Frontier:
        """Turn everything remembered into schedules; the frontier that holds them."""
        with self._lock:
            plans = self._archive[np.isfinite(self._archive_ms)].copy()
        for genes in plans:
            self._remember(genes, None)
        return self.frontier

    def _anneal(self, budget_bytes: int, effort: float, *, penalty: float, seed: int) -> list[np.ndarray]:
        """Anneal from the best starts in the archive; ``penalty`` in keep-all times per keep-all activation bytes."""
        if not self.arrays.choices.size:
            return []
        span = max(1, self.keep_all_peak_bytes - self.arrays.fixed_bytes)
        per_byte = penalty * self.keep_all_ms / span
        start_ms = 0.003 * self.keep_all_ms
        with self._lock:
            excess = np.maximum(0, self._archive_peaks[1] - budget_bytes)
            # The best that fits can sit in a trap (recomputing everything each time); the other start is outside it.
            fitting = np.where(excess > 0, np.inf, self._archive_ms)
            smallest = np.where(np.isfinite(self._archive_ms), self._archive_peaks[1], np.inf)
            first = fitting.argmin() if np.isfinite(fitting).any() else smallest.argmin()
            cells = {int(first), int((self._archive_ms + per_byte * excess).argmin())}
            found = [self._archive[cell].copy() for cell in sorted(cells)]
            tries = max(200, int(effort * _WORK / len(self._first) / len(found)))
            for genes in found:
                plan_kernel.anneal(
                    self.arrays, genes, float(budget_bytes), tries, (start_ms, start_ms / 150), per_byte, seed,
                    self._order, self._archive, self._archive_peaks, self._archive_ms,
                )  # fmt: skip
        return found

    def _evaluate(self, genes: np.ndarray) -> tuple[float, float]:
        return plan_kernel.evaluate(
            self.arrays, genes, self._order, self._archive, self._archive_peaks, self._archive_ms
        )

    def _judge(self, genes: np.ndarray) -> tuple[int, float]:
        count = plan_kernel.decode(self.arrays, genes, self._order)
        peak, time_ms, _ = plan_kernel.judge(self.arrays, self._order, count)
        return int(peak), time_ms

    def _remember(self, genes: np.ndarray, budget_bytes: int | None) -> None:
        with self._lock:
            peak, time_ms = self._judge(genes)
        known = self.frontier.best(peak)
        if known is not None and known.time_ms <= time_ms:
            return
        schedule = self.schedule(genes, budget_bytes)
        timeline = simulate(self.profile, schedule)
        assert timeline.peak_bytes == peak, "the plan's evaluator and the simulator disagree"
        self.frontier.add(Point(timeline.peak_bytes, timeline.time_ms, schedule))

    def schedule(self, genes: np.ndarray, budget_bytes: int | None) -> Schedule:
        """The schedule that a plan means."""
        order = np.empty_like(self._order)
        count = plan_kernel.decode(self.arrays, genes, order)
        forward = self.profile.graph.forward_count
        runs = []
        for position, operator in enumerate(order[:count].tolist()):
            again = operator < forward <= position
            implementation = self._again[operator] if again else self._first[operator]
            assert implementation is not None, "a plan recomputes only what can be recomputed"
            runs.append(Run(operator, implementation.name))
        return with_frees(self.profile.graph, runs, method="plan search", budget_bytes=budget_bytes)


def _untouching(operator: Operator, *, again: bool) -> Implementation:
    """The operator's default among the implementations that leave what they read intact."""
    for candidate in operator.implementations:
        if (candidate.again if again else candidate.first) and candidate.overwrites is None:
            return candidate
    return operator.default(again=again)


def _plan_arrays(
    profile: Profile, first: list[Implementation], again: list[Implementation | None]
) -> PlanArrays:
    graph = profile.graph
    held = np.array([storage.held for storage in graph.storages], bool)
    producer = np.full(len(graph.storages), -1, np.int32)
    for storage, operator in graph.producer.items():
        producer[storage] = operator
    optional = np.zeros(len(graph.storages), bool)
    for implementation in again:
        if implementation is not None:
            optional[list(implementation.writes)] = True
    optional &= ~held
    readers = np.zeros(len(graph.storages), np.int64)
    for implementation in first[graph.forward_count :]:
        readers[list(set(implementation.reads))] += 1
    storage_bytes = np.array([profile.allocated_bytes(storage) for storage in graph.storages], np.int64)
    genes = np.where(optional, 2 + readers, 0)
    choices = np.flatnonzero(optional & (storage_bytes > 0)).astype(np.int32)

    def listed(lists: list[tuple[int, ...]]) -> tuple[np.ndarray, np.ndarray]:
        kept = [[storage for storage in dict.fromkeys(x) if storage in graph.producer] for x in lists]
        start = np.cumsum([0, *map(len, kept)]).astype(np.int32)
        return start, np.array([storage for x in kept for storage in x], np.int32)

    costs = [profile.cost(implementation) for implementation in first]
    again_costs = [None if x is None else profile.cost(x) for x in again]
    return PlanArrays(
        graph.forward_count,
        *listed([x.reads for x in first]),
        *listed([x.writes for x in first]),
        *listed([() if x is None else x.reads for x in again]),
        *listed([() if x is None else x.writes for x in again]),
        np.array([x.time_ms for x in costs]),
        np.array([0.0 if x is None else x.time_ms for x in again_costs]),
        np.array([profile.workspace_bytes(x) for x in first], np.int64),
        np.array([0 if x is None else profile.workspace_bytes(x) for x in again], np.int64),
        storage_bytes,
        held,
        optional,
        producer,
        np.concatenate([[0], np.cumsum(genes)]).astype(np.int32),
        choices[np.argsort(producer[choices], kind="stable")],
        profile.fixed_bytes,
    )


def _families(arrays: PlanArrays) -> Iterator[np.ndarray]:
    """Plans from all to nothing kept: by cost per byte, by size, and by segments of the forward pass."""
    choices, starts = arrays.choices, arrays.gene_start[arrays.choices]

    def plan(kept: np.ndarray, *, later: int) -> np.ndarray:
        genes = np.full(int(arrays.gene_start[-1]), later, np.uint8)
        genes[starts] = kept
        return genes

    sizes = arrays.storage_bytes[choices]
    per_byte = arrays.again_ms[arrays.producer[choices]] / np.maximum(sizes, 1)
    for later in (1, 0):
        for worth in (per_byte, -sizes, sizes):
            rank = np.argsort(np.argsort(worth, kind="stable"), kind="stable")
            for share in np.linspace(0, 1, 17):
                yield plan(rank >= share * choices.size, later=later)
        for segments in range(2, 40):
            yield plan(np.isin(choices, _cuts(arrays, segments)), later=later)


def _cuts(arrays: PlanArrays, segments: int) -> np.ndarray:
    """What is alive at the narrowest places near the ends of ``segments`` equal parts of the forward pass."""
    forward = arrays.forward_count
    made = arrays.producer[arrays.choices]
    last = np.zeros(arrays.storage_bytes.size, np.int32)
    for operator in range(forward):
        last[arrays.first_reads[arrays.first_read_start[operator] : arrays.first_read_start[operator + 1]]] = operator
    sizes = arrays.storage_bytes[arrays.choices]
    alive = np.zeros(forward + 1)
    np.add.at(alive, made, sizes)
    np.add.at(alive, np.maximum(last[arrays.choices], made), -sizes)
    width = np.cumsum(alive)[:forward]
    total = np.cumsum(np.bincount(made, weights=sizes, minlength=forward)[:forward])
    kept = np.zeros(arrays.choices.size, bool)
    reach = max(1, forward // (4 * segments))
    for part in range(1, segments):
        centre = int(np.searchsorted(total, total[-1] * part / segments))
        low, high = max(0, centre - reach), min(forward, centre + reach + 1)
        cut = low + int(width[low:high].argmin())
        kept |= (made <= cut) & (last[arrays.choices] > cut)
    return arrays.choices[kept]
