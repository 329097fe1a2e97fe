"""How long a budget takes, from ``SolveSession.request`` to the first schedule and to proven gaps.

    python benchmarks/solve_latency.py resnet50.json unet.json --shares 0.7 0.5 --beside 2

Budgets are shares of the no-recompute peak; one below the smallest known is replaced by one just above it, and said so.
``--beside``: with so many other processes that take all the processor they get.
"""

from __future__ import annotations

import argparse
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from explorer import format_bytes, keep_all, load_profile, simulate, trade_off
from explorer.device_profile import Profile
from explorer.solution import BoundScope, Solution, Status
from explorer.solvers import SolveEvent, SolveSession

SCOPES = (BoundScope.PROBLEM, BoundScope.GROUPING)
GAPS = (0.05, 0.01)


def main() -> None:
    """Print one table per profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+", help="paths or bundled names")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.7, 0.5])
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--beside", type=int, default=0)
    arguments = parser.parse_args()
    with others(arguments.beside):
        for path in arguments.profiles:
            measure(path, load_profile(path), arguments.shares, arguments.time_limit)


@contextmanager
def others(count: int) -> Iterator[None]:
    """Processes that count until the end."""
    counters = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for counter in counters:
            counter.kill()
            counter.wait()


def measure(path: str, profile: Profile, shares: list[float], time_limit: float) -> None:
    """Solve for each share twice: by a worker that just started, and by one that is warm."""
    keep = simulate(profile, keep_all(profile.graph))
    began = time.perf_counter()
    curve = trade_off(profile)
    smallest = curve[0].budget_bytes
    print(f"{path}: no-recompute peak {format_bytes(keep.peak_bytes)}, smallest {smallest / keep.peak_bytes:.3f} of it")
    print(f"  trade-off of {len(curve)} points {time.perf_counter() - began:.2f} s")
    for share in shares:
        asked = round(share * keep.peak_bytes)
        budget = max(asked, smallest + (keep.peak_bytes - smallest) // 50)
        note = "" if budget == asked else f" (asked {share:.3f}, below the smallest)"
        print(f"  budget {budget / keep.peak_bytes:.3f}{note}")
        events: queue.Queue[tuple[float, SolveEvent]] = queue.Queue()

        def heard(event: SolveEvent, events: queue.Queue = events) -> None:
            events.put((time.perf_counter(), event))

        with SolveSession(profile, on_event=heard, time_limit=time_limit, remember=False) as session:
            began = time.perf_counter()
            print("    cold:", follow(session.request(budget), began, events, keep.time_ms))
        with SolveSession(profile, on_event=heard, time_limit=time_limit, remember=False) as session:
            follow(session.request(keep.peak_bytes), began, events, keep.time_ms)
            time.sleep(3)
            began = time.perf_counter()
            print("    warm:", follow(session.request(budget), began, events, keep.time_ms))


def follow(request: int, began: float, events: queue.Queue[tuple[float, SolveEvent]], base_ms: float) -> str:
    """Read events to the final one; the moments at which something was reached, as text."""
    reached, end_s, solution = moments(request, began, events)
    text = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in reached.items())
    return f"{text}; end {end_s:.2f} s: {describe(solution, base_ms)}"


def moments(
    request: int, began: float, events: queue.Queue[tuple[float, SolveEvent]]
) -> tuple[dict[str, float], float, Solution]:
    """Read events to the final one: seconds until each milestone and until the end, and what it was."""
    reached: dict[str, float] = {}
    while True:
        at, event = events.get()
        if event.request != request:
            continue
        for name in milestones(event.solution):
            reached.setdefault(name, at - began)
        if event.final:
            return reached, at - began, event.solution


def milestones(solution: Solution) -> list[str]:
    """What this solution reaches."""
    found = [] if solution.schedule is None or solution.status is Status.FAILED else ["schedule"]
    for scope in SCOPES:
        gap = solution.gap(scope)
        found += [f"{limit:.0%} {scope.name.lower()}" for limit in GAPS if gap is not None and gap <= limit]
    return found


def describe(solution: Solution, base_ms: float) -> str:
    """Status, time over the no-recompute time, and gaps."""
    time_text = "no schedule" if solution.time_ms is None else f"time ×{solution.time_ms / base_ms:.4f}"
    gaps = {scope: solution.gap(scope) for scope in SCOPES}
    gap_text = ", ".join(f"{scope.name.lower()} gap {gap:.2%}" for scope, gap in gaps.items() if gap is not None)
    return f"{solution.status}, {time_text}, {gap_text}"


if __name__ == "__main__":
    main()
