"""How long a budget takes, from ``SolveSession.request`` to the first schedule and to proven gaps.

    python -m benchmarks.solver.latency [PROFILE …] [--tier quick] [--shares 0.7 0.5] [--beside 2]

Budgets are shares of the no-recompute peak; one below the smallest known is replaced by one just above it, and said so.
``--beside``: with so many other processes that take all the processor they get.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.cases import ProfileCase, Tier, Whole, add_tier, profile_cases
from benchmarks.provenance import record
from benchmarks.session_events import SCOPES, Heard
from explorer import format_bytes, keep_all, simulate, trade_off
from explorer.solution import Solution
from explorer.solvers import SolveSession

_SHARES = (0.5, 0.7)


def main() -> None:
    """Print one table per profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help="paths or bundled names, instead of the tier's")
    add_tier(parser)
    parser.add_argument("--shares", nargs="+", type=float, default=[], help="instead of the tier's")
    parser.add_argument("--time-limit", type=float, default=10.0)
    parser.add_argument("--beside", type=int, default=0)
    arguments = parser.parse_args()
    record(arguments, seeds=())
    shares = arguments.shares or (() if arguments.tier is Tier.QUICK else _SHARES)
    cases = profile_cases(arguments.tier, of=Whole.PEAK, profiles=arguments.profiles, shares=shares)
    with others(arguments.beside):
        for case in cases:
            measure(case, arguments.time_limit)


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


def measure(case: ProfileCase, time_limit: float) -> None:
    """Solve for each share twice: by a worker that just started, and by one that is warm."""
    profile = case.load()
    keep = simulate(profile, keep_all(profile.graph))
    began = time.perf_counter()
    curve = trade_off(profile)
    smallest = curve[0].budget_bytes
    print(f"{case.name}: no-recompute peak {format_bytes(keep.peak_bytes)}, ", end="")
    print(f"smallest {smallest / keep.peak_bytes:.3f} of it")
    print(f"  trade-off of {len(curve)} points {time.perf_counter() - began:.2f} s")
    for share, asked in zip(case.shares, case.budgets(profile), strict=True):
        budget = max(asked, smallest + (keep.peak_bytes - smallest) // 50)
        note = "" if budget == asked else f" (asked {share:.3f}, below the smallest)"
        print(f"  budget {budget / keep.peak_bytes:.3f}{note}")
        heard = Heard()
        with SolveSession(profile, on_event=heard.note, time_limit=time_limit, remember=False) as session:
            began = time.perf_counter()
            print("    cold:", follow(heard, session.request(budget), began, keep.time_ms))
        heard = Heard()  # requests of another session are counted anew
        with SolveSession(profile, on_event=heard.note, time_limit=time_limit, remember=False) as session:
            follow(heard, session.request(keep.peak_bytes), began, keep.time_ms)
            time.sleep(3)
            began = time.perf_counter()
            print("    warm:", follow(heard, session.request(budget), began, keep.time_ms), flush=True)


def follow(heard: Heard, request: int, began: float, base_ms: float) -> str:
    """Read events to the final one; the moments at which something was reached, as text."""
    reached, end_s, solution = heard.moments(request, began)
    text = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in reached.items())
    return f"{text}; end {end_s:.2f} s: {describe(solution, base_ms)}"


def describe(solution: Solution, base_ms: float) -> str:
    """Status, time over the no-recompute time, and gaps."""
    time_text = "no schedule" if solution.time_ms is None else f"time ×{solution.time_ms / base_ms:.4f}"
    gaps = {scope: solution.gap(scope) for scope in SCOPES}
    gap_text = ", ".join(f"{scope.name.lower()} gap {gap:.2%}" for scope, gap in gaps.items() if gap is not None)
    return f"{solution.status}, {time_text}, {gap_text}"


if __name__ == "__main__":
    main()
