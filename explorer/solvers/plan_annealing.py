"""Compiled annealing over plans; every plan on the way may serve another budget."""

# numba has its own generator behind np.random's old names.
# ruff: noqa: NPY002

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from explorer.solvers.plan_arrays import PlanArrays
from explorer.solvers.plan_kernel import Work, decode, inner, judge
from explorer.solvers.plan_moves import move, relieve

_RELIEVE = (0.3, 0.05)
"""How often something at the peak is let go: of plans that exceed the budget, and of others."""


class Archive(NamedTuple):
    """The quickest plan found in each range of peaks.

    Attributes:
        edges: int64 (cells,), increasing: cell c is for peaks in (edges[c − 1], edges[c]].
        genes: int16 (cells, genes).
        peaks: int64 (cells,), of the plans in ``genes``.
        times_ms: float64 (cells,), infinite where a cell is empty.
    """

    edges: np.ndarray
    genes: np.ndarray
    peaks: np.ndarray
    times_ms: np.ndarray


@inner
def evaluate(
    arrays: PlanArrays, genes: np.ndarray, budget: float, work: Work, archive: Archive
) -> tuple[float, float, float]:
    """Peak, time and excess of a plan (infinite if it cannot run), archived if it is the best of its cell."""
    count = decode(arrays, genes, work)
    if count < 0:
        return np.inf, np.inf, np.inf
    peak, time_ms, excess = judge(arrays, work, count, budget)
    cell = np.searchsorted(archive.edges, peak)
    if cell < archive.times_ms.size and time_ms < archive.times_ms[cell]:
        archive.times_ms[cell] = time_ms
        archive.peaks[cell] = peak
        archive.genes[cell] = genes
    return float(peak), time_ms, excess


def _compiled(sources: str) -> Any:
    """``anneal``, compiled; ``sources`` becomes part of the key under which numba keeps the machine code on disk.

    That key knows this file only, while the code has what it calls inlined: without more, a change elsewhere would go
    unnoticed.
    """

    @njit(cache=True, nogil=True)
    def anneal(
        arrays: PlanArrays,
        genes: np.ndarray,
        budget: float,
        tries: int,
        temperatures: tuple[float, float],
        penalties: tuple[float, float],
        seed: int,
        work: Work,
        archive: Archive,
    ) -> tuple[float, float, int]:
        """Anneal ``genes`` in place for ``tries`` plans (0 only evaluates them); every plan on the way is archived.

        The objective is time plus a penalty (ms per byte) times what exceeds the budget (``judge``). Over the tries the
        temperature (ms) falls and the penalty rises geometrically, each from its first to its second value. Even seeds
        make far moves as well.

        Returns:
            peak and time of the plan that ``genes`` is then: the quickest that fits, else the one of least peak; and
            how many entries of ``work.order`` are its runs, −1 if there is no room for them.
        """
        assert sources
        np.random.seed(seed)
        far = seed % 2 == 0
        current, best, trial = genes.copy(), genes.copy(), genes.copy()
        peak, time_ms, excess = evaluate(arrays, current, budget, work, archive)
        best_peak, best_ms, peak_at = peak, time_ms, work.peak_at[0]
        cooling = (temperatures[1] / temperatures[0]) ** (1.0 / max(1, tries))
        tightening = (penalties[1] / penalties[0]) ** (1.0 / max(1, tries))
        temperature, penalty = temperatures[0], penalties[0]
        for _ in range(tries):
            temperature *= cooling
            penalty *= tightening
            trial[:] = current
            if np.random.random() < (_RELIEVE[0] if excess > 0 else _RELIEVE[1]):
                relieve(arrays, trial, peak_at)
            else:
                move(arrays, trial, far)
            if np.random.random() < 0.3:
                move(arrays, trial, far)
            found_peak, found_ms, found_excess = evaluate(arrays, trial, budget, work, archive)
            value = time_ms + penalty * excess
            found = found_ms + penalty * found_excess
            if found <= value or np.random.random() < np.exp((value - found) / temperature):
                current, trial = trial, current
                peak, time_ms, excess, peak_at = found_peak, found_ms, found_excess, work.peak_at[0]
                over, best_over = max(0.0, peak - budget), max(0.0, best_peak - budget)
                if over < best_over or (over == best_over and time_ms < best_ms):
                    best[:] = current
                    best_peak, best_ms = peak, time_ms
        genes[:] = best
        return best_peak, best_ms, decode(arrays, genes, work)

    return anneal


def _sources() -> str:
    """Hash of all that ``anneal`` inlines."""
    files = sorted(Path(__file__).parent.glob("plan_*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


anneal = _compiled(_sources())
