"""Compiled annealing over plans; every plan on the way may serve another budget."""

# numba has its own generator behind np.random's old names; and one loop with one place that evaluates compiles sooner.
# ruff: noqa: C901, NPY002

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from explorer.solvers.search.arrays import PlanArrays
from explorer.solvers.search.kernel import decode, judge
from explorer.solvers.search.machine_code import compiled, kept_files
from explorer.solvers.search.moves import vary
from explorer.solvers.search.trace import Change, PlanMemory, adopt, difference, inner, is_known, note_marks

_ADAPTATIONS = 100
_ADAPTATION = (0.97, 1.05)
"""The penalty changes this often in a search, by these factors: where the plan fits, and where it does not."""
_PENALTY_RANGE = (0.2, 50.0)
"""How far it may go from the first one."""
_INLINED = ("annealing", "arrays", "kernel", "moves", "trace")
"""The modules whose code becomes part of ``anneal``."""
_ALL_EVENTS = 32  # plans that are adopted before it is found out anew when activations are of interest


class Course(NamedTuple):
    """How to anneal.

    Attributes:
        tries: plans; 0 only evaluates the starts.
        first, last: temperature in ms; it falls geometrically.
        penalty: the first one, ms per byte of excess (``judge``). It rises while plans exceed the budget and falls
            while they fit: good plans are near the budget, and the way to them leads along both sides of it.
        seed: of the random moves.
    """

    tries: int
    first: float
    last: float
    penalty: float
    seed: int


class Archive(NamedTuple):
    """The quickest plan found in each range of peaks.

    Attributes:
        edges: int64 (cells,), increasing: cell c is for peaks in (edges[c − 1], edges[c]].
        genes: uint16 (cells, genes).
        peaks: int64 (cells,), of the plans in ``genes``.
        times_ms: float64 (cells,), infinite where a cell is empty.
    """

    edges: np.ndarray
    genes: np.ndarray
    peaks: np.ndarray
    times_ms: np.ndarray


class Found(NamedTuple):
    """What a plan needs and takes.

    Attributes:
        peak_bytes: infinite if it cannot run.
        time_ms: likewise.
        excess_bytes: above the budget, summed over runs; likewise.
        dead_ms: of runs that are left out because nobody reads what they make.
        peak_at: as in ``PlanMemory``.
    """

    peak_bytes: float
    time_ms: float
    excess_bytes: float
    dead_ms: float
    peak_at: int


@inner
def evaluate(
    arrays: PlanArrays,
    genes: np.ndarray,
    budget: float,
    penalty: float,
    limit: float,
    change: Change,
    known: Found,
    work: PlanMemory,
    archive: Archive,
) -> tuple[Found, bool]:
    """What a plan needs and takes, archived if it is the best of its cell; and whether its order is not the known one.

    All infinite if it cannot run, or as soon as its time and its penalty are seen to be above ``limit``.
    """
    count, quickest_ms = decode(arrays, genes, work, change, limit)
    if count < 0:
        return Found(np.inf, np.inf, np.inf, 0.0, 0), True
    if change.begin >= 0 and is_known(work):
        return known, False
    peak, time_ms, excess = judge(arrays, work, quickest_ms, budget, penalty, limit)
    cell = np.searchsorted(archive.edges, peak)
    if cell < archive.times_ms.size and time_ms < archive.times_ms[cell]:
        archive.times_ms[cell] = time_ms
        archive.peaks[cell] = peak
        archive.genes[cell] = genes
    return Found(float(peak), time_ms, excess, work.dead_ms[0], work.peak_at[0]), True


def _compiled(sources: str) -> Any:
    """``anneal``, compiled; ``sources`` becomes part of the key under which numba keeps the machine code on disk.

    That key knows this file only, while the code has what it calls inlined: without more, a change elsewhere would go
    unnoticed.
    """

    @compiled
    def anneal(
        arrays: PlanArrays,
        starts: np.ndarray,
        budget: float,
        course: Course,
        stop: np.ndarray,
        work: PlanMemory,
        archive: Archive,
    ) -> tuple[float, float, int]:
        """Anneal from the best of ``starts``; every plan on the way is archived.

        The objective is time plus a penalty times what exceeds the budget. Runs that are left out because nobody reads
        them count too: else genes that do nothing would gather.

        Args:
            arrays: the problem.
            starts: uint16, shape (plans, genes); the first becomes what was found.
            budget: peak allowed, bytes.
            course: how.
            stop: uint8 (1,), ends it when another thread sets it.
            work: its memory.
            archive: learns the best plans.

        Returns:
            peak and time of the plan found: the quickest that fits, else the one of least peak; and how many entries of
            ``work.trial.order`` are its runs, −1 if there is no room for them.
        """
        assert sources
        np.random.seed(course.seed)
        tries, penalty = course.tries, course.penalty
        current, best, trial = starts[0].copy(), starts[0].copy(), starts[0].copy()
        here = Found(np.inf, np.inf, np.inf, 0.0, 0)
        best_peak = best_ms = np.inf
        adopted = 0
        least, most = penalty * _PENALTY_RANGE[0], penalty * _PENALTY_RANGE[1]
        every = max(1, tries // _ADAPTATIONS)
        temperature = course.first
        cooling = (course.last / course.first) ** (1.0 / max(1, tries))
        # The starts, the tries, and the best once more: with one place that evaluates, this compiles sooner.
        for number in range(-starts.shape[0], tries + 1):
            change, limit = Change(True, -1, -1, 0.0), np.inf
            ending = number >= 0 and (number == tries or stop[0] > 0)
            if number < 0:
                trial[:] = starts[number + starts.shape[0]]
                limit = here.time_ms + here.dead_ms + penalty * here.excess_bytes
            elif ending:
                trial[:] = best
            else:
                temperature *= cooling
                if number % every == 0:
                    penalty = min(max(penalty * _ADAPTATION[1 if here.excess_bytes > 0 else 0], least), most)
                trial[:] = current
                vary(arrays, trial, current, here.excess_bytes > 0, here.peak_at, 1 - number / tries)
                # What is accepted is drawn first (Metropolis), so that most plans need not be evaluated to the end.
                value = here.time_ms + here.dead_ms + penalty * here.excess_bytes
                limit = value - temperature * np.log(np.random.random())
                if np.isfinite(here.time_ms):
                    change = difference(arrays, current, trial, work)
                    if not change.forward and change.begin > change.until and work.counts[0] == 0:
                        current, trial = trial, current
                        continue
            found, reordered = evaluate(arrays, trial, budget, penalty, limit, change, here, work, archive)
            if found.time_ms + found.dead_ms + penalty * found.excess_bytes <= limit:
                current, trial = trial, current
                here = found
                if np.isfinite(here.time_ms):
                    adopted += 1
                    adopt(arrays, current, work, reordered, change.begin < 0 or adopted % _ALL_EVENTS == 0)
                over, best_over = max(0.0, here.peak_bytes - budget), max(0.0, best_peak - budget)
                if over < best_over or (over == best_over and here.time_ms < best_ms):
                    best[:] = current
                    best_peak, best_ms = here.peak_bytes, here.time_ms
            elif change.begin < 0 and np.isfinite(here.time_ms):
                note_marks(arrays, current, work)
            if ending:
                break
        starts[0] = best
        return best_peak, best_ms, work.trial.position[-1]

    return anneal


def _sources() -> str:
    """Hash of all that ``anneal`` inlines."""
    files = (Path(__file__).with_name(f"{name}.py") for name in _INLINED)
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


anneal = _compiled(_sources())


def was_compiled() -> bool:
    """Does numba keep ``anneal`` on disk?"""
    return bool(kept_files(anneal, "nbc"))


def forget_compiled() -> None:
    """Delete what numba keeps of ``anneal`` on disk."""
    for file in kept_files(anneal, "nb[ci]"):
        with suppress(OSError):
            file.unlink()
