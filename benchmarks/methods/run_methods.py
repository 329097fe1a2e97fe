"""Every method's schedules on real models: predicted against measured peak, gradients against eager mode's.

    python -m benchmarks.methods.run_methods [MODEL …] [--tier quick] [--methods rotor checkpoint-blocks] [--json FILE]

Every method is asked for three budgets of its own range: near its smallest peak, halfway, and that of plain PyTorch;
or, where it does not know its smallest peak, of the range of MONeT's checkpointing. ``--rival 3`` also gives the time
of MONeT's checkpointing alone within the same peak, after so many seconds, and how far that is from optimal at most.
``torch.compile``'s partitioner is asked for three shares instead; ``--compiled`` also measures its real step. A JSON
file is added to: a model's rows replace those it has.

Gradients have to be the same bits. Where a method may choose implementations that round otherwise, they may differ by
what eager mode's own do when every parameter is off by the last of its bits: in a ResNet with its weights as they were
drawn, and small images, that can be a percent.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch import nn

import explorer
from benchmarks.cases import Sample, Size, Tier, add_tier, model_cases, model_names
from benchmarks.provenance import add_rows, record
from explorer.solvers.methods.table import METHODS
from explorer.solvers.options import Options

SHARES = (1.0, 0.5, 0.1)
WIDTHS = (10, 10, 8, 9, 7, 7, 6)
MOST_ERROR = 0.01
MOST_DIFFERENCE = 1e-4  # relative, of gradients that were rounded otherwise, where eager mode's own are off by less
ROUNDING_OTHERWISE = ("monet", "checkmate-o")
Row = dict[str, Any]


def main() -> None:
    """Print one table per model; exit with 1 where a peak or a gradient is off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.TINY))
    add_tier(parser)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), help=", ".join(METHODS))
    parser.add_argument("--seconds", type=float, help="for each method and budget (default: 3, or 0.5 if quick)")
    parser.add_argument("--rival", type=float, default=0.0, help="seconds for MONeT at each schedule's peak")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument(
        "--compiled", action="store_true", help="also measure what torch.compile makes (needs a compiler)"
    )
    options = parser.parse_args()
    run = record(options)
    seconds = options.seconds or (0.5 if options.tier is Tier.QUICK else 3.0)
    rows: list[Row] = []
    for case in model_cases(options.tier, Size.TINY, options.models):
        name, sample = case.name, case.sample()
        profile = explorer.profile(sample[0], sample[1], loss=sample[2])
        plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
        print(f"\n{name}: without recomputation {plain.peak_bytes / 2**20:.1f} MiB, {plain.time_ms:.1f} ms")
        heads = ("predicted", "measured", "error", "gradients", "/plain", "MONeT", "gap")
        print(f"{'method':>22}", *(f"{x:>{width}}" for x, width in zip(heads, WIDTHS, strict=True)))
        for method in options.methods:
            found = answers(profile, method, seconds=seconds)
            rows += (report(name, profile, sample, solution, rival_s=options.rival) for solution in found)
        for share in SHARES:
            schedule = explorer.compiled_schedule(sample[0], sample[1], loss=sample[2], activation_memory_budget=share)
            rows.append(report(name, profile, sample, as_solution(profile, schedule), rival_s=options.rival))
            if options.compiled:
                measured = explorer.measure_compiled(
                    sample[0], sample[1], loss=sample[2], activation_memory_budget=share, steps=1
                )
                print(f"{'compiled by inductor':>22} {'':>10} {measured.peak_bytes / 2**20:10.1f}", flush=True)
        if options.json:
            add_rows(options.json, rows, run, by="model")
    raise SystemExit(any(map(is_off, rows)))


def is_off(row: Row) -> bool:
    """Does it miss what is claimed of peaks and gradients?"""
    error = abs(row["measured_peak_bytes"] / row["predicted_peak_bytes"] - 1)
    otherwise = row["method"] in ROUNDING_OTHERWISE
    most = max(MOST_DIFFERENCE, row["rounding_difference"]) if otherwise else 0.0
    return error > MOST_ERROR or row["gradient_difference"] > most


def answers(profile: explorer.Profile, method: str, *, seconds: float) -> Iterator[explorer.Solution]:
    """The method's different schedules at three budgets of its range."""
    ask, options = METHODS[method], Options(method, time_limit=seconds)
    (nothing,) = ask.solve(profile, [1], options=options)
    if nothing.status is explorer.Status.UNSUITED:
        print(f"{method:>22} {nothing.message}")
        return
    smallest = nothing.minimum or explorer.smallest_budget(profile, time_limit=seconds, optimizations="none").minimum
    assert smallest is not None, "a smallest budget was asked for"
    least = smallest.budget_bytes
    most = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    budgets = [max(least, round(least + share * (most - least))) for share in SHARES]
    seen = set()
    for solution in ask.solve(profile, budgets, options=options):
        if solution.schedule is None:
            print(f"{method:>22} {solution.message}")
        elif solution.schedule.steps not in seen:
            seen.add(solution.schedule.steps)
            yield replace(solution, schedule=replace(solution.schedule, method=method))


def as_solution(profile: explorer.Profile, schedule: explorer.Schedule) -> explorer.Solution:
    """A schedule, judged."""
    timeline = explorer.simulate(profile, schedule)
    return explorer.Solution(
        explorer.Status.FEASIBLE, timeline.peak_bytes, schedule, timeline.time_ms, timeline.peak_bytes
    )


def report(name: str, profile: explorer.Profile, sample: Sample, solution: explorer.Solution, *, rival_s: float) -> Row:
    """Run a schedule beside eager mode, and print a row."""
    assert solution.schedule is not None
    assert solution.peak_bytes is not None
    assert solution.time_ms is not None
    model, batch, loss = sample
    scheduled = explorer.apply(copy.deepcopy(model), solution.schedule, batch, loss=loss)
    difference = gradient_difference(scheduled, copy.deepcopy(model), batch, loss)
    measured = explorer.measure(scheduled, batch, steps=1).peak_bytes
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    # Where rounding is of no concern it need not be known.
    rounding = 0.0 if difference <= MOST_DIFFERENCE else rounding_difference(model, batch, loss)
    row: Row = {
        "model": name,
        "method": solution.schedule.method,
        "predicted_peak_bytes": solution.peak_bytes,
        "measured_peak_bytes": measured,
        "gradient_difference": difference,
        "rounding_difference": rounding,
        "time_over_plain": solution.time_ms / plain.time_ms,
        "peak_over_plain": solution.peak_bytes / plain.peak_bytes,
    }
    rival_text = gap_text = ""
    if rival_s:
        rival = explorer.solve(
            profile, budget=solution.peak_bytes, method="monet-checkpointing", time_limit=rival_s, remember=False
        )
        gap = rival.gap()
        row |= {"rival_over_plain": rival.time_ms and rival.time_ms / plain.time_ms, "rival_gap": gap}
        rival_text = "" if rival.time_ms is None else f"{rival.time_ms / plain.time_ms:.4f}"
        gap_text = "" if gap is None else f"{gap:.1%}"
    cells = (
        f"{solution.peak_bytes / 2**20:.1f}",
        f"{measured / 2**20:.1f}",
        f"{measured / solution.peak_bytes - 1:.3%}",
        "same bits" if difference == 0 else f"{difference:.0e}",
        f"{row['time_over_plain']:.4f}",
        rival_text,
        gap_text,
    )
    texts = (f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))
    print(f"{solution.schedule.method:>22}", *texts, "OFF" if is_off(row) else "", flush=True)
    return row


def gradient_difference(scheduled: nn.Module, plain: nn.Module, batch: Any, loss: Any) -> float:
    """One step each from the same random state: the largest relative difference of loss and gradients; 0: same bits."""
    return largest_difference(results(scheduled, batch, None), results(plain, batch, loss))


def rounding_difference(model: nn.Module, batch: Any, loss: Any) -> float:
    """The same for eager mode with every parameter, and with the next number above or below it."""
    nearby = copy.deepcopy(model)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in nearby.parameters():
            up = torch.rand(parameter.shape, generator=random) < 0.5
            parameter.copy_(torch.nextafter(parameter, torch.where(up, torch.inf, -torch.inf)))
    return largest_difference(results(nearby, batch, loss), results(copy.deepcopy(model), batch, loss))


def results(module: nn.Module, batch: Any, loss: Any) -> list[torch.Tensor]:
    """Loss and gradients of a step; ``loss``: None where the module makes it."""
    torch.manual_seed(0)
    result = module(*batch) if loss is None else loss(module(batch[0]), batch[1])
    result.backward()
    return [result.detach(), *(x.grad for x in module.parameters() if x.grad is not None)]


def largest_difference(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> float:
    """Of any element, relative to the largest of theirs."""
    assert len(ours) == len(theirs), "the schedule makes every gradient"
    scale = max(float(x.abs().max()) for x in theirs)
    return max(float((a - b).abs().max()) / scale for a, b in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    main()
