"""The whole flow on real models, bit-exact: predicted against measured peak and time, at several budgets.

    python -m benchmarks.execution.end_to_end [MODEL …] [--tier quick] [--json FILE]

Times are compared within one run, plain and scheduled steps taking turns. Budgets are shares of the no-recompute peak
and, since parameters and their gradients may take most of that whatever the schedule, shares of the way from the
smallest feasible budget to it.
"""

from __future__ import annotations

import argparse
import copy
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import explorer
from benchmarks.cases import ModelCase, Sample, Size, Tier, add_tier, model_cases, model_names
from benchmarks.provenance import record, write_results
from benchmarks.timing_in_turns import median_times_ms
from explorer.execution.steps import step_of, unchanged

SHARES_OF_PEAK = {Tier.QUICK: (1.0,), Tier.FULL: (1.0, 0.7, 0.5)}
SHARES_OF_RANGE = {Tier.QUICK: (0.5,), Tier.FULL: (0.7, 0.5, 0.25)}


@dataclass(frozen=True)
class Row:
    """One model at one budget."""

    model: str
    budget: str
    budget_bytes: int
    status: str
    gap: float | None
    solve_s: float
    bit_equal: bool
    predicted_peak_bytes: int
    measured_peak_bytes: int
    predicted_time_ms: float
    measured_time_ms: float
    time_over_eager: float


def main() -> None:
    """Print a table per model, and write it as JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.SMALL))
    add_tier(parser)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--time-limit", type=float, help="seconds per solve (default: 10, or 1 if quick)")
    options = parser.parse_args()
    run = record(options)
    time_limit = options.time_limit or (1.0 if options.tier is Tier.QUICK else 10.0)
    cases = model_cases(options.tier, Size.SMALL, options.models)
    rows = [row for case in cases for row in run_model(case, options.tier, time_limit=time_limit)]
    if options.json:
        write_results(options.json, [asdict(row) for row in rows], run)


def run_model(case: ModelCase, tier: Tier, *, time_limit: float) -> list[Row]:
    """Profile, then solve, run and measure at every budget."""
    name = case.name
    model, batch, loss = case.sample()
    start = time.perf_counter()
    profile = explorer.profile(model, batch, loss=loss)
    print(
        f"\n{name} {case.batch}: {len(profile.graph.operators)} operators, capture and profile "
        f"{time.perf_counter() - start:.1f} s, calibration {profile.calibration:.2f}"
    )
    peak = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    smallest = explorer.smallest_budget(profile, exact=True)
    assert smallest.minimum is not None
    least = smallest.minimum.budget_bytes
    budgets = {f"{share:.1f} peak": int(share * peak) for share in SHARES_OF_PEAK[tier]}
    budgets |= {f"{share:.2f} range": int(least + share * (peak - least)) for share in SHARES_OF_RANGE[tier]}
    budgets["smallest"] = least
    print(f"no-recompute peak {explorer.format_bytes(peak)}; {smallest.minimum}")
    print(
        f"{'budget':>10} {'MiB':>8} {'status':>9} {'gap':>6} {'bits':>5}"
        f" {'predicted':>10} {'measured':>10} {'error':>8}"
        f" {'pred. ms':>9} {'meas. ms':>9} {'error':>7} {'/eager':>7}"
    )
    rows = []
    for label, budget_bytes in budgets.items():
        row = run_budget(name, label, budget_bytes, profile, (model, batch, loss), time_limit)
        if isinstance(row, str):
            print(f"{label:>10} {budget_bytes / 2**20:8.1f} {row}", flush=True)
            continue
        rows.append(row)
        gap = "" if row.gap is None else f"{row.gap:.1%}"
        print(
            f"{label:>10} {budget_bytes / 2**20:8.1f} {row.status:>9} {gap:>6}"
            f" {'equal' if row.bit_equal else 'DIFF':>5}"
            f" {row.predicted_peak_bytes / 2**20:10.3f} {row.measured_peak_bytes / 2**20:10.3f}"
            f" {row.predicted_peak_bytes / row.measured_peak_bytes - 1:8.3%} {row.predicted_time_ms:9.1f}"
            f" {row.measured_time_ms:9.1f} {row.predicted_time_ms / row.measured_time_ms - 1:7.1%}"
            f" {row.time_over_eager:7.3f}",
            flush=True,
        )
    return rows


def run_budget(
    name: str, label: str, budget_bytes: int, profile: explorer.Profile, sample: Sample, time_limit: float
) -> Row | str:
    """Solve, train three steps beside eager mode, and measure; without a schedule, what the solver says of that."""
    model, batch, loss = sample
    solution = explorer.solve(profile, budget=budget_bytes, time_limit=time_limit, exact=True, remember=False)
    if solution.schedule is None:
        return solution.message
    assert solution.time_ms is not None
    assert solution.peak_bytes is not None
    scheduled = explorer.apply(copy.deepcopy(model), solution.schedule, batch, loss=loss)
    bit_equal = trains_equally(scheduled, copy.deepcopy(model), batch, loss)
    measurement = explorer.measure(scheduled, batch, steps=1)
    scheduled_ms, eager_ms = taking_turns(scheduled, model, batch, loss)
    # The profile was calibrated against a plain step then; this compares with a plain step now.
    drift = eager_ms / (profile.eager_time_ms or eager_ms)
    return Row(
        model=name,
        budget=label,
        budget_bytes=budget_bytes,
        status=solution.status.value,
        gap=solution.gap(),
        solve_s=solution.elapsed_s,
        bit_equal=bit_equal,
        predicted_peak_bytes=solution.peak_bytes,
        measured_peak_bytes=measurement.peak_bytes,
        predicted_time_ms=solution.time_ms * drift,
        measured_time_ms=scheduled_ms,
        time_over_eager=scheduled_ms / eager_ms,
    )


def trains_equally(scheduled: nn.Module, plain: nn.Module, batch: Any, loss: Any) -> bool:
    """Three SGD steps each; are loss, gradients and buffers the same bits throughout?"""
    optimizers = [torch.optim.SGD(x.parameters(), lr=0.01, momentum=0.9) for x in (scheduled, plain)]
    equal = True
    for number in range(3):
        losses = []
        for module in (scheduled, plain):
            torch.manual_seed(number)
            if module is scheduled:
                result = module(*batch)
            else:
                result = loss(module(batch[0]), batch[1]) if loss else module(*batch)
            result.backward()
            losses.append(result.detach())
        pairs = list(zip(scheduled.parameters(), plain.parameters(), strict=True))
        equal &= torch.equal(losses[0], losses[1])
        equal &= all(torch.equal(a.grad, b.grad) for a, b in pairs if a.grad is not None and b.grad is not None)
        equal &= all(torch.equal(a, b) for a, b in zip(scheduled.buffers(), plain.buffers(), strict=True))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return equal


def taking_turns(
    scheduled: nn.Module, plain: nn.Module, batch: Any, loss: Any, *, rounds: int = 7
) -> tuple[float, float]:
    """Median step times in ms of both, measured alternately."""
    runs = {"scheduled": step_of(scheduled, batch), "plain": step_of(plain, batch, loss=loss)}
    with unchanged(scheduled), unchanged(plain):
        for run in runs.values():
            run()
        times_ms = median_times_ms(runs, rounds=rounds)
    return times_ms["scheduled"], times_ms["plain"]


if __name__ == "__main__":
    main()
