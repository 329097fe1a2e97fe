"""How solving grows with a network's depth: decoders like GPT-2 with 12, 24 and 48 blocks, estimated for an A100.

    python benchmarks/growth.py

Budgets are a share of the peak without recomputation, or lie just above the smallest known where that is more. By a
worker that is warm: seconds from the request to the first schedule, and to one proven within 5 % of the fastest.
"""

from __future__ import annotations

import argparse
import queue
import time

import torch
from solve_latency import moments

from explorer import SolveSession, estimate, keep_all, simulate, trade_off
from explorer.models import MODELS
from explorer.models.gpt import GPT, GPTConfig
from explorer.solution import BoundScope
from explorer.solvers import SolveEvent

_NEAR = "5% problem"


def main() -> None:
    """Print a line for each depth; the last column is the time of the shallowest, scaled by the number of operators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", type=int, default=[12, 24, 48])
    parser.add_argument("--share", type=float, default=0.5)
    parser.add_argument("--time-limit", type=float, default=30.0)
    options = parser.parse_args()
    print(
        f"{'blocks':>7}{'operators':>11}{'budget':>8}{'smallest':>10}{'schedule':>10}{'5 %':>9}{'gap':>8}{'linear':>9}"
    )
    first: tuple[int, float] | None = None
    for layers in options.layers:
        operators, near_s = measure(layers, share=options.share, time_limit=options.time_limit)
        first = first or (operators, near_s)
        print(f"{first[1] * operators / first[0]:7.2f} s", flush=True)


def measure(layers: int, *, share: float, time_limit: float) -> tuple[int, float]:
    """Solve once by a warm worker and print the line; the number of operators, and seconds to a proven 5 %."""
    with torch.device("meta"):
        model, batch = GPT(GPTConfig(layers=layers)), MODELS["gpt2"].batch()
    profile = estimate(model, batch, device="A100-80GB")
    keep = simulate(profile, keep_all(profile.graph))
    smallest = trade_off(profile)[0].budget_bytes
    budget = max(round(share * keep.peak_bytes), smallest + (keep.peak_bytes - smallest) // 50)
    events: queue.Queue[tuple[float, SolveEvent]] = queue.Queue()
    with SolveSession(
        profile, on_event=lambda x: events.put((time.perf_counter(), x)), time_limit=time_limit, remember=False
    ) as session:
        moments(session.request(keep.peak_bytes), 0.0, events)
        began = time.perf_counter()
        reached, _, solution = moments(session.request(budget), began, events)
    near_s = reached.get(_NEAR, float("inf"))
    gap = solution.gap(BoundScope.PROBLEM)
    shares = f"{budget / keep.peak_bytes:8.3f}{smallest / keep.peak_bytes:10.3f}"
    moment = f"{reached.get('schedule', float('inf')):8.2f} s{near_s:7.2f} s"
    print(
        f"{layers:7}{len(profile.graph.operators):11}{shares}{moment}{'-' if gap is None else f'{gap:.1%}':>8}", end=""
    )
    return len(profile.graph.operators), near_s


if __name__ == "__main__":
    main()
