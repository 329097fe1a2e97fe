"""Answers without an integer program: families of plans, then annealing over plans (``plan_kernel``).

Nothing here is proven; every answer is a plan that the simulator judges like any other schedule.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from explorer.device_profile import Profile
from explorer.graph import Implementation
from explorer.schedule import Run, Schedule, keep_all, with_frees
from explorer.simulation import simulate
from explorer.solvers import plan_kernel
from explorer.solvers.frontier import Frontier, Point
from explorer.solvers.minimum import peak_lower_bound
from explorer.solvers.plan_kernel import Archive, PlanArrays

_ARCHIVE_CELLS = 128
_SKETCHES = 20
_ORDER_FACTOR = 12  # an order may have this many times as many runs as there are operators
_PENALTIES = (3.0, 100.0)  # first and last of one search, see ``_per_byte``
_SUSPICIOUS = 1.25  # times the keep-all time: such a plan is probably a trap, so try …
_STARTS = 4  # … this many searches
_WORK = 3_000_000  # tries × operators of one search at effort 1: about 0.1 s


class PlanSearch:
    """Searches plans for one profile and remembers the best for every peak.

    Args:
        profile: graph and costs.
        frontier: where the schedules found are kept; a new one by default.
    """

    def __init__(self, profile: Profile, *, frontier: Frontier | None = None) -> None:
        """Begins to seed the archive with the families, on another thread."""
        self.profile = profile
        self.frontier = Frontier() if frontier is None else frontier
        self.floor = peak_lower_bound(profile)
        self._first = [operator.default() for operator in profile.graph.operators]
        self._again = [x.default(again=True) if x.recomputable else None for x in profile.graph.forward]
        # In-place runs are the joint problem's; PyTorch's own captured operators never overwrite.
        assert all(x is None or x.overwrites is None for x in (*self._first, *self._again))
        self.arrays = _plan_arrays(profile, self._first, self._again)
        genes = int(self.arrays.gene_start[-1])
        self._order = np.empty(_ORDER_FACTOR * len(self._first), np.int32)
        self._lock = threading.Lock()
        keep = self._add(keep_all(profile.graph))
        self.keep_all_peak_bytes, self.keep_all_ms = keep.peak_bytes, keep.time_ms
        low = min(self.floor.peak_bytes, self.keep_all_peak_bytes - _ARCHIVE_CELLS)
        self._archive = Archive(
            edges=np.linspace(low, self.keep_all_peak_bytes, _ARCHIVE_CELLS).round().astype(np.int64),
            genes=np.zeros((_ARCHIVE_CELLS, genes), np.uint8),
            peaks=np.zeros(_ARCHIVE_CELLS, np.int64),
            times_ms=np.full(_ARCHIVE_CELLS, np.inf),
        )
        # Where the kernel was never compiled before, that takes ten seconds: ``sketch`` answers meanwhile.
        pool = ThreadPoolExecutor(1, "plan search")
        self._seeded = pool.submit(self._seed)
        pool.shutdown(wait=False)

    def ready(self, *, timeout: float) -> bool:
        """Is the kernel compiled and the archive seeded? Waits up to ``timeout`` seconds for that."""
        return bool(wait([self._seeded], timeout).done)

    def sketch(self, budget_bytes: int) -> Point | None:
        """Answer without the compiled kernel, from a few plans decoded by the interpreter."""
        order = np.empty_like(self._order)
        plans = list(_families(self.arrays))
        for genes in plans[:: len(plans) // _SKETCHES]:
            count = plan_kernel.decode.py_func(self.arrays, genes, order)
            if count >= 0:
                self._add(self._schedule(order[:count].tolist(), budget_bytes))
        return self.frontier.best(budget_bytes)

    def best(self, budget_bytes: int) -> Point | None:
        """The quickest schedule known that fits the budget, without searching; None if none is known."""
        self._seeded.result()
        with self._lock:
            times_ms = np.where(self._archive.peaks <= budget_bytes, self._archive.times_ms, np.inf)
            cell = times_ms.argmin()
            genes = self._archive.genes[cell].copy()
        if np.isfinite(times_ms[cell]):
            self._remember(genes, budget_bytes)
        return self.frontier.best(budget_bytes)

    def improve(self, budget_bytes: int, *, effort: float = 1.0, seed: int = 1) -> Point | None:
        """Anneal from the best plan known for the budget (or the smallest one), then answer as ``best``.

        Args:
            budget_bytes: the peak allowed.
            effort: of one search; 1 takes about 0.1 s whatever the graph's size. Where it finds nothing good, a few
                more follow.
            seed: of the random moves; equal seeds on equal histories give equal answers. Odd seeds start from the best
                plan known, even ones from the plan that keeps everything.
        """
        if self.arrays.choices.size:
            for start in range(_STARTS):
                self._remember(self._anneal(budget_bytes, effort, seed + start), budget_bytes)
                point = self.best(budget_bytes)
                if point is not None and point.time_ms <= _SUSPICIOUS * self.keep_all_ms:
                    break
        return self.best(budget_bytes)

    def shrink(self, *, effort: float = 1.0, seed: int = 1) -> Point:
        """Search for the smallest peak, whatever the time; the smallest schedule known."""
        if self.arrays.choices.size:
            self._remember(self._anneal(self.floor.peak_bytes, effort, seed=seed), None)
            with self._lock:
                smallest = np.flatnonzero(np.isfinite(self._archive.times_ms))[0]
                genes = self._archive.genes[smallest].copy()
            self._remember(genes, None)
        return self.frontier.points()[0]

    def fill(self, points: int, *, effort: float = 1.0) -> None:
        """Search at ``points`` budgets spread from the smallest known peak to the no-recompute peak."""
        # Downwards: a plan for a large budget is a good start for the next smaller one.
        for budget in np.linspace(self.keep_all_peak_bytes, self.floor.peak_bytes, points, dtype=np.int64):
            self.improve(int(budget), effort=effort)
        self.shrink(effort=effort)

    def collect(self) -> Frontier:
        """Turn everything remembered into schedules; the frontier that holds them."""
        self._seeded.result()
        with self._lock:
            plans = self._archive.genes[np.isfinite(self._archive.times_ms)]
        for genes in plans:
            self._remember(genes, None)
        return self.frontier

    def _seed(self) -> None:
        with self._lock:
            for plan in _families(self.arrays):
                self._kernel(plan, 0, tries=0, seed=0)

    def _anneal(self, budget_bytes: int, effort: float, seed: int) -> np.ndarray:
        """Anneal from the best start in the archive (odd seeds) or from keeping everything (even ones)."""
        self._seeded.result()
        tries = max(200, int(effort * _WORK / len(self._first)))
        with self._lock:
            # What fits can sit in a trap (everything recomputed each time): something quicker may be the better start.
            excess = np.maximum(0, self._archive.peaks - budget_bytes)
            cell = (self._archive.times_ms + self._per_byte(_PENALTIES[0]) * excess).argmin()
            genes = self._archive.genes[cell].copy() if seed % 2 else np.ones_like(self._archive.genes[cell])
            self._kernel(genes, budget_bytes, tries=tries, seed=seed)
        return genes

    def _per_byte(self, penalty: float) -> float:
        """Penalties are for an excess as large as all activations, in keep-all times."""
        return penalty * self.keep_all_ms / max(1, self.keep_all_peak_bytes - self.arrays.fixed_bytes)

    def _kernel(self, genes: np.ndarray, budget_bytes: int, *, tries: int, seed: int) -> tuple[float, float, int]:
        start_ms = max(1e-9, 0.003 * self.keep_all_ms)
        return plan_kernel.anneal(
            self.arrays,
            genes,
            float(budget_bytes),
            tries,
            (start_ms, start_ms / 150),
            (max(1e-12, self._per_byte(_PENALTIES[0])), max(1e-12, self._per_byte(_PENALTIES[1]))),
            seed,
            self._order,
            self._archive,
        )

    def _judge(self, genes: np.ndarray) -> tuple[int, float, list[int]]:
        """Peak, time and order of a plan."""
        peak, time_ms, count = self._kernel(genes, 0, tries=0, seed=0)
        assert count >= 0, "a plan that is archived or annealed fits the order"
        return int(peak), time_ms, self._order[:count].tolist()

    def _remember(self, genes: np.ndarray, budget_bytes: int | None) -> None:
        with self._lock:
            peak, time_ms, order = self._judge(genes)
        known = self.frontier.best(peak)
        if known is not None and known.time_ms <= time_ms:
            return
        point = self._add(self._schedule(order, budget_bytes))
        assert point.peak_bytes == peak, "the kernel and the simulator disagree"

    def _add(self, schedule: Schedule) -> Point:
        timeline = simulate(self.profile, schedule)
        point = Point(timeline.peak_bytes, timeline.time_ms, schedule)
        self.frontier.add(point)
        return point

    def _schedule(self, order: list[int], budget_bytes: int | None) -> Schedule:
        forward = self.profile.graph.forward_count
        runs = []
        for position, operator in enumerate(order):
            again = operator < forward <= position
            implementation = self._again[operator] if again else self._first[operator]
            assert implementation is not None, "a plan recomputes only what can be recomputed"
            runs.append(Run(operator, implementation.name))
        return with_frees(self.profile.graph, runs, method="plan search", budget_bytes=budget_bytes)


def _plan_arrays(profile: Profile, first: list[Implementation], again: list[Implementation | None]) -> PlanArrays:
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
    choices = choices[np.argsort(producer[choices], kind="stable")]

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
        choices,
        np.cumsum(storage_bytes[choices], dtype=np.float64),
        profile.fixed_bytes,
    )


def _families(arrays: PlanArrays) -> Iterator[np.ndarray]:
    """Plans from all to nothing kept: by cost per byte, by size, by segments and by stretches of the forward pass."""
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
    yield from _stretches(arrays)


def _stretches(arrays: PlanArrays) -> Iterator[np.ndarray]:
    """Plans in three stretches: dropped after each use, recomputed once and kept, kept from the start.

    They suit tight budgets: when the backward pass reaches the first operators, all gradients are in memory. What is
    alive where the first two stretches meet may stay, so that the second need not begin at the input.
    """
    choices, starts = arrays.choices, arrays.gene_start[arrays.choices]
    ends = arrays.gene_start[choices + 1]
    made, last = arrays.producer[choices], _last_reads(arrays)[choices]
    places = np.linspace(0, arrays.forward_count, 17, dtype=np.int64)
    for kept_from in places:
        for dropped_to in places[places <= kept_from]:
            for bridge in (False, True):
                genes = np.zeros(int(arrays.gene_start[-1]), np.uint8)
                across = bridge & (made < dropped_to) & (last >= dropped_to)
                for position in np.flatnonzero((made >= dropped_to) | across):
                    genes[starts[position] : ends[position]] = 1
                genes[starts] = (made >= kept_from) | across
                yield genes


def _last_reads(arrays: PlanArrays) -> np.ndarray:
    """For each storage, the last forward operator that reads it; 0 without one."""
    last = np.zeros(arrays.storage_bytes.size, np.int32)
    for operator in range(arrays.forward_count):
        last[arrays.first_reads[arrays.first_read_start[operator] : arrays.first_read_start[operator + 1]]] = operator
    return last


def _cuts(arrays: PlanArrays, segments: int) -> np.ndarray:
    """What is alive at the narrowest places near the ends of ``segments`` equal parts of the forward pass."""
    forward = arrays.forward_count
    made = arrays.producer[arrays.choices]
    last = _last_reads(arrays)
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
