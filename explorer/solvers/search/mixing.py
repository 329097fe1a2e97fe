"""Quicker schedules that an allocator has room for, between one that it has room for and quicker ones that it has not.

What is reserved, or what a device needs, follows from the order of all sizes: of two schedules of one peak, one may
need a fifth more than the other, and no sum over operators says which. But what the quicker one does in a stretch of
the network is rarely what makes it too large everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from explorer.schedule import Schedule
from explorer.solution import Finder
from explorer.solvers.problem.frontier import Point
from explorer.solvers.search.from_schedule import genes_of, places_of
from explorer.solvers.search.plan_search import PlanSearch

_QUICKER = 6  # schedules from which something is taken over, at most: the quickest
_FRUITLESS = 400  # mixtures in a row, after which nothing more is expected


def mixed(
    search: PlanSearch,
    best: Point,
    *,
    budget_bytes: int,
    enough: Callable[[Schedule], bool],
    until: float,
    seed: int = 0,
) -> Point:
    """Take over from quicker schedules, stretch by stretch, what leaves the budget enough.

    Args:
        search: whose schedules those are.
        best: a schedule for which the budget is enough.
        budget_bytes: of their peaks, which are less than what is reserved for them.
        enough: is the budget enough for a schedule?
        until: by the monotonic clock.
        seed: of the stretches.

    Returns:
        ``best``, or a quicker one.
    """
    arrays, random = search.arrays, np.random.default_rng(seed)
    genes, places = genes_of(search.problem, arrays, best.schedule), places_of(arrays)
    known = [x for x in search.frontier.points() if x.time_ms < best.time_ms and x.peak_bytes <= budget_bytes]
    others = [genes_of(search.problem, arrays, x.schedule) for x in sorted(known, key=lambda x: x.time_ms)[:_QUICKER]]
    quicker = [x for x in others if x is not None]
    tried: set[tuple[int, float]] = set()
    fruitless = 0
    while genes is not None and quicker and fruitless < _FRUITLESS and time.monotonic() < until:
        fruitless += 1
        other = quicker[random.integers(len(quicker))]
        mixture = _with_a_stretch(genes, other, places, random)
        # Forms are chosen by the room there is: with less of it, a plan is another schedule.
        room_bytes = int(random.uniform(best.peak_bytes, budget_bytes))
        found = search.tried(mixture, room_bytes, finder=Finder.MIXTURE, quicker_than_ms=best.time_ms)
        if found is None or (found.peak_bytes, found.time_ms) in tried:
            continue
        tried.add((found.peak_bytes, found.time_ms))
        if enough(found.schedule):
            best, genes, fruitless = found, mixture, 0
    return best


def _with_a_stretch(
    genes: np.ndarray, other: np.ndarray, places: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """The first plan, with what the other one does within a stretch of the operators about which they differ."""
    differing = np.unique(places[genes != other])
    if not differing.size:
        return genes
    length = max(1, int(differing.size * random.uniform() ** random.integers(1, 4)))
    first = int(random.integers(differing.size - length + 1))
    within = (places >= differing[first]) & (places <= differing[first + length - 1])
    return np.where(within, other, genes)
