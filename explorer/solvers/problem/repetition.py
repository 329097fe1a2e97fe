"""Stretches of the forward pass that repeat themselves: the blocks of a transformer, the units of a residual stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from explorer.solvers.problem.problem import Form, Problem

LEAST_BLOCKS = 3
_LEAST_OPERATORS = 4  # of a block
_PERIODS = 4  # that are looked at: the likeliest, as far as equal operators are apart


@dataclass(frozen=True, slots=True)
class Repetition:
    """Consecutive blocks of forward operators that call the same, cost the same, and read alike.

    Operator ``i`` of a block is the *twin* of operator ``i`` of every other.

    Attributes:
        start: the first operator of the first block.
        length: operators of a block.
        blocks: how many there are.
    """

    start: int
    length: int
    blocks: int

    @property
    def stop(self) -> int:
        """After the last operator of the last block."""
        return self.start + self.length * self.blocks

    def twins(self, operator: int) -> range:
        """The operators at the same place of each block, for one of the first."""
        return range(operator, self.stop, self.length)


def repetitions(problem: Problem) -> tuple[Repetition, ...]:
    """What repeats itself, in order; nothing overlaps.

    Operators are alike whose forms read and write activations of equal sizes, by implementations of equal names, times
    and memory: equal calls of equal shapes. Twins read each other's twins, or the very same (a mask that all blocks
    read). The longest repetition is found first; of two periods that cover as much, the shorter one counts.
    """
    kinds = _kinds(problem)
    found: list[Repetition] = []
    free = np.ones(kinds.size, bool)
    while best := max((_longest(problem, kinds, free, x) for x in _periods(kinds, free)), key=_rank, default=None):
        found.append(best)
        free[best.start : best.stop] = False
    return tuple(sorted(found, key=lambda x: x.start))


def _rank(found: Repetition | None) -> tuple[int, int]:
    return (0, 0) if found is None else (found.length * found.blocks, -found.length)


def _kinds(problem: Problem) -> np.ndarray:
    """int64, shape (forward operators,): equal for operators that are alike."""

    def form(of: Form) -> object:
        sizes = tuple(tuple(problem.activations[x].bytes for x in found) for found in (of.reads, of.writes))
        options = ((x.implementation, x.time_ms, x.workspace_bytes, x.overwrites is None) for x in of.options)
        return sizes, tuple(options)

    numbers: dict[object, int] = {}
    kinds = []
    for operator in problem.forward:
        kind = operator.optional, tuple(map(form, operator.first)), tuple(map(form, operator.again))
        kinds.append(numbers.setdefault(kind, len(numbers)))
    return np.array(kinds, np.int64)


def _periods(kinds: np.ndarray, free: np.ndarray) -> list[int]:
    """How far equal operators are apart, the distances that most of them have."""
    latest: dict[int, int] = {}
    distances: Counter[int] = Counter()
    for i in np.flatnonzero(free).tolist():
        kind = int(kinds[i])
        if kind in latest:
            distances[i - latest[kind]] += 1
        latest[kind] = i
    # An operator that stands twice in a block has other distances, which add up to the block's.
    sums = Counter({period: count for period, count in distances.items() if period >= _LEAST_OPERATORS})
    return [period for period, _ in sums.most_common(_PERIODS)]


def _longest(problem: Problem, kinds: np.ndarray, free: np.ndarray, period: int) -> Repetition | None:
    """The longest stretch in which every operator is like the one a period later."""
    alike = (kinds[:-period] == kinds[period:]) & free[:-period] & free[period:]
    best, start = None, 0
    for i in range(alike.size + 1):
        goes_on = i < alike.size and bool(alike[i])
        if goes_on and _read_alike(problem, i, period, since=start):
            continue
        blocks = (i - start) // period + 1
        best = max(best, Repetition(start, period, blocks) if blocks >= LEAST_BLOCKS else None, key=_rank)
        start = i if goes_on else i + 1
    return best


def _read_alike(problem: Problem, operator: int, period: int, *, since: int) -> bool:
    """Does the twin a period later read twins, or the very same? The first block may read what it likes instead."""
    here, later = problem.forward[operator], problem.forward[operator + period]
    for one, other in zip((*here.first, *here.again), (*later.first, *later.again), strict=True):
        for x, y in zip(one.reads, other.reads, strict=True):
            made, made_later = problem.activations[x].producer, problem.activations[y].producer
            if x != y and made_later - made != period and made >= since:
                return False
    return True
