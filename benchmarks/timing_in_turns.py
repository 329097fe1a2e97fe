"""Times of runs that take turns, so that whatever else the machine does slows all of them alike.

Freed memory stays in the process, for what goes back to the operating system costs page faults when it is taken again
(GPT-2's table of words: up to 100 ms of a step of 400), and whose turn that falls into is luck: ResNet-50's compiled
steps took 0.3 to 6 % of their time for 2,000 to 25,000 faults. Every other round goes backwards.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable, Mapping

from explorer.profiling.comparing import median_with_error

_TRIM_THRESHOLD, _MOST_MAPPED = -1, -4  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Have the C library keep all that is freed, where it can be told."""
    tell = getattr(ctypes.CDLL(None), "mallopt", None)
    if tell is not None:
        tell(_TRIM_THRESHOLD, -1)
        tell(_MOST_MAPPED, 0)


def times_in_turns_ms(runs: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, list[float]]:
    """Times of each run in ``rounds`` rounds, in each of which every run has one turn, in either order."""
    keep_freed_memory()
    times_ms: dict[str, list[float]] = {name: [] for name in runs}
    turns = list(runs.items())
    for _ in range(rounds):
        for name, run in turns:
            start = time.perf_counter()
            run()
            times_ms[name].append((time.perf_counter() - start) * 1e3)
        turns.reverse()
    return times_ms


def median_times_ms(runs: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """The median time of each run over ``rounds`` rounds."""
    return {name: statistics.median(seen) for name, seen in times_in_turns_ms(runs, rounds=rounds).items()}


def paired_ratio(times_ms: list[float], base_ms: list[float]) -> tuple[float, float]:
    """How many times as long as its neighbour a run took, which no slow minute of the machine touches.

    Returns:
        The median over rounds, and its standard error, from the middle 80 % of them.
    """
    return median_with_error([x / base for x, base in zip(times_ms, base_ms, strict=True)])
