"""The best plan found for each range of peaks, and the compiled kernel that finds them."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from explorer.exclusion import TRACING
from explorer.solvers.problem.frontier import Point
from explorer.solvers.problem.peak_bound import PeakBound
from explorer.solvers.search.annealing import Archive, Course, anneal, forget_compiled
from explorer.solvers.search.arrays import GENE, PlanArrays
from explorer.solvers.search.simple_plans import starting_plans
from explorer.solvers.search.trace import PlanMemory, workspace

_LOG = logging.getLogger(__name__)
_COMPILED_S = 600.0  # compiling takes ten seconds, and much longer beside others
_ARCHIVE_CELLS = 128
_SEED_BUDGETS = 4  # each simple plan is judged for these: options are chosen by budget
_SEEDING_WORK = 6_000_000  # plans × budgets × operators before a first answer: about 0.2 s
_LEAST_SEEDS = 100
_ORDER_FACTOR = 12  # an order may have this many times as many runs as there are operators
HOT = (0.006, 0.00005)  # first and last temperature of a search from scratch, in keep-all times
COLD = (0.0015, 0.00002)  # of one from a good plan
PENALTY = 1.0  # the first of a search, see ``_per_byte``
_WORK = 3_000_000  # tries × operators of one search at effort 1: about 0.1 s
_LEAST_OPERATORS = 150  # below that a try takes no less time


class PlanArchive:
    """The kernel, compiled or loaded on another thread, and what it came across; seeded with simple plans.

    Args:
        arrays: the problem.
        floor: of all peaks.
        keep: what recomputes nothing.
    """

    def __init__(self, arrays: PlanArrays, *, floor: PeakBound, keep: Point) -> None:
        """Begins to seed the archive."""
        self.arrays, self.floor = arrays, floor
        self.keep_all_peak_bytes, self.keep_all_ms = keep.peak_bytes, keep.time_ms
        self._operators = arrays.forward_count + arrays.backward_count
        self._work = workspace(arrays, length=_ORDER_FACTOR * self._operators)
        self._lock = threading.Lock()
        low = min(floor.peak_bytes, keep.peak_bytes - _ARCHIVE_CELLS)
        self._archive = Archive(
            edges=np.linspace(low, keep.peak_bytes, _ARCHIVE_CELLS).round().astype(np.int64),
            genes=np.zeros((_ARCHIVE_CELLS, arrays.gene_count), GENE),
            peaks=np.zeros(_ARCHIVE_CELLS, np.int64),
            times_ms=np.full(_ARCHIVE_CELLS, np.inf),
        )
        self._loaded = threading.Event()
        # Where the kernel was never compiled before, that takes ten seconds: ``PlanSearch.sketch`` answers meanwhile.
        pool = ThreadPoolExecutor(1, "plan search")
        self._begun = pool.submit(self._seed)
        self._seeded = pool.submit(self._judge_others)
        pool.shutdown(wait=False)

    @property
    def has_choices(self) -> bool:
        """Is there anything to search for?"""
        return bool(self.arrays.choices.size or self.arrays.switches.size)

    def ready(self, *, timeout: float = _COMPILED_S) -> bool:
        """Is the kernel compiled? Waits up to ``timeout`` seconds for that, and then until the archive is seeded.

        Raises:
            Exception: whatever kept it from being compiled or loaded.
        """
        if self._loaded.wait(timeout):
            self._seeded.result()
        return self._loaded.is_set()

    def loaded(self, *, timeout: float) -> bool:
        """Is the kernel compiled, or was it tried in vain? Waits up to ``timeout`` seconds, and not for the archive."""
        return self._loaded.wait(max(0.0, timeout))

    def seeded(self, *, timeout: float) -> bool:
        """Is the archive seeded too? As ``ready``, but waits no longer than ``timeout`` seconds for all of it.

        Raises:
            Exception: as ``ready``.
        """
        wait([self._seeded], max(0.0, timeout))
        if self._seeded.done():
            self._seeded.result()
        return self._seeded.done()

    def begun(self, *, timeout: float) -> bool:
        """Is so much in the archive that it has an answer? All of it, but of a deep network; as ``seeded``.

        Raises:
            Exception: as ``ready``.
        """
        wait([self._begun], timeout)
        if self._begun.done():
            self._begun.result()
        return self._begun.done()

    def _seed(self) -> np.ndarray:
        """Load the kernel and judge simple plans; those that are left for later."""
        with self._lock:
            try:
                with TRACING:
                    self._load()
            finally:  # what came in its way is for those who wait for it
                self._loaded.set()
            plans = np.stack(list(starting_plans(self.arrays)))
            first = _spread(len(plans), self._first_seeds)
            self._judge(plans[first])
        return plans[~first]

    def _judge(self, plans: np.ndarray, beside: tuple[PlanMemory, Archive] | None = None) -> None:
        for budget in np.linspace(self.floor.peak_bytes, self.keep_all_peak_bytes, _SEED_BUDGETS, dtype=np.int64):
            self._kernel(plans.copy(), int(budget), beside=beside)

    def _judge_others(self) -> None:
        """Judge the other simple plans while the archive may be looked at, and archive them afterwards."""
        plans, archive = self._begun.result(), self._archive
        if not len(plans):
            return
        own = archive._replace(
            genes=archive.genes.copy(), peaks=archive.peaks.copy(), times_ms=np.full(_ARCHIVE_CELLS, np.inf)
        )
        self._judge(plans, (workspace(self.arrays, length=self._work.trial.order.size), own))
        with self._lock:
            better = own.times_ms < archive.times_ms
            for ours, theirs in zip(archive[1:], own[1:], strict=True):
                ours[better] = theirs[better]

    def _load(self) -> None:
        """Load the kernel, or compile it; also where the file that holds it is damaged, which numba takes for fatal."""
        try:
            self._kernel(self._keep_everything(), self.keep_all_peak_bytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is raised again if it is not that
            _LOG.warning("the search's kernel cannot be loaded (%s: %s): compiled anew", type(error).__name__, error)
            forget_compiled()
            self._kernel(self._keep_everything(), self.keep_all_peak_bytes)

    @property
    def _first_seeds(self) -> int:
        """How many simple plans are judged at once: all, but of a deep network."""
        return max(_LEAST_SEEDS, _SEEDING_WORK // (_SEED_BUDGETS * self._operators))

    def _tries(self, effort: float) -> int:
        return max(200, int(effort * _WORK / max(self._operators, _LEAST_OPERATORS)))

    def _no_archive(self) -> Archive:
        """An archive that no plan is good enough for."""
        return self._archive._replace(times_ms=np.zeros_like(self._archive.times_ms))

    def _start(self, budget_bytes: int, *, fitting: bool, penalty: float) -> np.ndarray:
        """The quickest plan in the archive that fits; or one that need not fit.

        What fits can sit in a trap (everything recomputed each time): something quicker may be the better start.
        """
        archive = self._archive
        excess = np.maximum(0, archive.peaks - budget_bytes)
        if fitting and np.isfinite(archive.times_ms[excess == 0]).any():
            return archive.genes[np.where(excess == 0, archive.times_ms, np.inf).argmin()]
        return archive.genes[(archive.times_ms + self._per_byte(penalty) * excess).argmin()]

    def _keep_everything(self) -> np.ndarray:
        """The plan, shape (1, genes)."""
        genes = np.zeros((1, self.arrays.gene_count), GENE)
        genes[:, : self.arrays.gene_start[-1]] = 1
        return genes

    def _per_byte(self, penalty: float) -> float:
        """Penalties are for an excess as large as all activations, in keep-all times."""
        return penalty * self.keep_all_ms / max(1, self.keep_all_peak_bytes - self.arrays.fixed_bytes)

    def _arrays(self, *, echoes: bool) -> PlanArrays:
        """The problem, to be searched with changes of many blocks at once or without."""
        return self.arrays if echoes else self.arrays._replace(twins=self.arrays.twins[:0])

    def _kernel(
        self,
        starts: np.ndarray,
        budget_bytes: int,
        *,
        tries: int = 0,
        temperatures: tuple[float, float] = COLD,
        seed: int = 0,
        penalty: float = PENALTY,
        stop: np.ndarray | None = None,
        arrays: PlanArrays | None = None,
        beside: tuple[PlanMemory, Archive] | None = None,
    ) -> tuple[float, float, int]:
        """Anneal, as ``anneal`` says; peak, time and number of runs. The caller holds the lock, or is ``beside``."""
        work, archive = beside or (self._work, self._archive)
        return anneal(
            arrays or self.arrays,
            starts,
            float(budget_bytes),
            Course(
                tries,
                max(1e-9, temperatures[0] * self.keep_all_ms),
                max(1e-9, temperatures[1] * self.keep_all_ms),
                max(1e-12, self._per_byte(penalty)),
                seed,
            ),
            np.zeros(1, np.uint8) if stop is None else stop,
            work,
            archive,
        )


def _spread(size: int, count: int) -> np.ndarray:
    """bool, shape (size,): at most ``count`` of them, evenly spread."""
    chosen = np.zeros(size, bool)
    chosen[np.linspace(0, size - 1, min(count, size), dtype=np.int64)] = True
    return chosen
