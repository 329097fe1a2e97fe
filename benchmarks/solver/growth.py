"""How solving grows with a network's depth, and what large networks take; estimated for an A100.

    python -m benchmarks.solver.growth [--tier quick] [--time-limit 15]
    python -m benchmarks.solver.growth --networks gpt:12 gpt:24 gpt:48 --share 0.6

A network is a name of ``benchmarks.deep_networks.NETWORKS``, with a number of blocks where it has such. Budgets are a
share of the peak without recomputation, or lie just above the smallest known where that is more. By a worker that is
warm: seconds from the request to the first schedule, and to one proven within 5 % of the fastest.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.cases import add_tier
from benchmarks.deep_networks import GROWTH, deep_network
from benchmarks.provenance import record
from benchmarks.session_events import Heard
from explorer import SolveSession, keep_all, simulate, trade_off
from explorer.solution import BoundScope

_WIDTHS = 10, 11, 8, 10, 10, 9, 8, 9
_WARM_S = 6.0
_NEAR = "5% problem"


def main() -> None:
    """Print a line for each network; the last column is the first one's time, scaled by the number of operators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_tier(parser)
    parser.add_argument("--networks", nargs="+", help="these instead of the tier's")
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--time-limit", type=float, default=30.0)
    options = parser.parse_args()
    record(options, seeds=())
    columns = zip(
        ("network", "operators", "budget", "smallest", "schedule", "5 %", "gap", "linear"), _WIDTHS, strict=True
    )
    print("".join(f"{name:>{width}}" for name, width in columns))
    first: tuple[int, float] | None = None
    for network in options.networks or GROWTH[options.tier]:
        operators, near_s = measure(network, share=options.share, time_limit=options.time_limit)
        first = first or (operators, near_s)
        print(f"{first[1] * operators / first[0]:7.2f} s", flush=True)


def measure(network: str, *, share: float, time_limit: float) -> tuple[int, float]:
    """Solve once by a warm worker and print the line; the number of operators, and seconds to a proven 5 %."""
    profile = deep_network(network)
    keep = simulate(profile, keep_all(profile.graph))
    smallest = trade_off(profile)[0].budget_bytes
    budget = max(round(share * keep.peak_bytes), smallest + (keep.peak_bytes - smallest) // 50)
    heard = Heard()
    with SolveSession(profile, on_event=heard.note, time_limit=time_limit, remember=False) as session:
        heard.moments(session.request(keep.peak_bytes), 0.0)
        time.sleep(_WARM_S)  # that is proven at once, before everything is loaded
        began = time.perf_counter()
        reached, _, solution = heard.moments(session.request(budget), began)
    near_s = reached.get(_NEAR, float("inf"))
    gap = solution.gap(BoundScope.PROBLEM)
    shares = f"{budget / keep.peak_bytes:8.3f}{smallest / keep.peak_bytes:10.3f}"
    moment = f"{reached.get('schedule', float('inf')):8.2f} s{near_s:7.2f} s"
    print(
        f"{network:>10}{len(profile.graph.operators):11}{shares}{moment}{'-' if gap is None else f'{gap:.1%}':>8}",
        end="",
    )
    return len(profile.graph.operators), near_s


if __name__ == "__main__":
    main()
