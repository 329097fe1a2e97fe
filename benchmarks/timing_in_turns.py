"""Times of runs that take turns, so that whatever else the machine does slows all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def median_times_ms(runs: Mapping[str, Callable[[], object]], *, rounds: int) -> dict[str, float]:
    """The median time of each run over ``rounds`` rounds, in each of which every run has one turn."""
    times_ms: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times_ms[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(seen) for name, seen in times_ms.items()}
