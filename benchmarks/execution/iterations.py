"""Whole iterations on real models: predicted against measured peak, and bits against eager mode's after three of them.

    python -m benchmarks.execution.iterations [MODEL …] [--tier quick] [--json FILE]

Optimizers (SGD with momentum, AdamW over lists, AdamW one by one), with and without accumulation over two microbatches,
updates at the end and within the backward pass; each at a budget halfway from the smallest to the plain step's peak.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

import explorer
from benchmarks.cases import ModelCase, Size, Tier, add_tier, model_cases, model_names
from benchmarks.provenance import record, write_results

MODELS = ("resnet50", "unet", "gpt")
_ITERATIONS = (("end", False), ("end", True), ("within", False))
_OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD, momentum": lambda x: optim.SGD(x, lr=0.01, momentum=0.9),
    "AdamW, foreach": lambda x: optim.AdamW(x, lr=1e-3, foreach=True),
    "AdamW, plain": lambda x: optim.AdamW(x, lr=1e-3, foreach=False),
}


@dataclass(frozen=True)
class Row:
    """One iteration of one model."""

    model: str
    optimizer: str
    accumulated: bool
    update: str
    budget_bytes: int
    plain_peak_bytes: int
    predicted_peak_bytes: int
    measured_peak_bytes: int
    peak_in: str
    bit_equal: bool


def main() -> None:
    """Print a row for each, and write them if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=model_names(Size.TINY))
    add_tier(parser)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    run = record(options)
    cases = model_cases(Tier.FULL, Size.TINY, options.models[: 1 if options.tier is Tier.QUICK else None])
    print(
        f"{'model':>10} {'optimizer':>15} {'microbatches':>12} {'update':>7} {'plain':>9} {'budget':>9} "
        f"{'predicted':>11} {'measured':>11} {'peak in':>9} bits"
    )
    rows = []
    for case in cases:
        for optimizer in _OPTIMIZERS:
            for update, accumulate in _ITERATIONS:
                rows.append(row := run_case(case, optimizer, update=update, accumulate=accumulate))
                print(
                    f"{row.model:>10} {row.optimizer:>15} {1 + row.accumulated:>12} {row.update:>7} "
                    f"{row.plain_peak_bytes / 2**20:>9.2f} {row.budget_bytes / 2**20:>9.2f} "
                    f"{row.predicted_peak_bytes:>11} {row.measured_peak_bytes:>11} {row.peak_in:>9} "
                    f"{'equal' if row.bit_equal else 'DIFFERENT'}",
                    flush=True,
                )
    exact = sum(x.predicted_peak_bytes == x.measured_peak_bytes for x in rows)
    print(f"{len(rows)} rows: {exact} predicted to the byte, {sum(x.bit_equal for x in rows)} bit-equal")
    if options.json:
        write_results(options.json, [asdict(x) for x in rows], run)


def run_case(case: ModelCase, optimizer: str, *, update: str, accumulate: bool) -> Row:
    """Profile, solve, measure, and train beside eager mode."""
    model, batch, loss = case.sample()
    make = _OPTIMIZERS[optimizer]
    profile = explorer.profile(model, batch, loss=loss, optimizer=make, update=update, accumulate=accumulate)
    peak = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    least = explorer.smallest_budget(profile, time_limit=2.0).minimum
    assert least is not None
    budget_bytes = (least.budget_bytes + peak) // 2
    solution = explorer.solve(profile, budget=budget_bytes, time_limit=3.0, exact=True, remember=False)
    assert solution.schedule is not None, solution.message
    predicted = explorer.simulate(profile, solution.schedule)
    module = explorer.apply(copy.deepcopy(model), solution.schedule, batch, loss=loss)
    measured = explorer.measure(module, batch, steps=1, optimizer=make, accumulate=accumulate)
    assert profile.eager_peak_bytes is not None
    return Row(
        model=case.name,
        optimizer=optimizer,
        accumulated=accumulate,
        update=update,
        budget_bytes=budget_bytes,
        plain_peak_bytes=profile.eager_peak_bytes,
        predicted_peak_bytes=predicted.peak_bytes,
        measured_peak_bytes=measured.peak_bytes,
        peak_in=predicted.stages[predicted.peak_run].value,
        bit_equal=trains_equally(module, copy.deepcopy(model), batch, loss, make, update=update, accumulate=accumulate),
    )


def trains_equally(
    module: nn.Module,
    eager: nn.Module,
    batch: Any,
    loss: Any,
    make: Callable[..., optim.Optimizer],
    *,
    update: str,
    accumulate: bool,
) -> bool:
    """Three iterations of both, from the same random numbers: are parameters and buffers the same bits?"""
    for step in (module, eager):
        optimizer = make(list(step.parameters()))
        if update == "within" and step is module:
            explorer.update_within(module, optimizer)
        for number in range(3):
            for microbatch in range(1 + accumulate):
                torch.manual_seed(10 * number + microbatch)
                loss_of(step, batch, loss, scheduled=step is module).backward()
            optimizer.step()
            optimizer.zero_grad()
    mine, theirs = module.state_dict(), eager.state_dict()
    return all(torch.equal(mine[name], theirs[name]) for name in theirs)


def loss_of(step: nn.Module, batch: Any, loss: Any, *, scheduled: bool) -> torch.Tensor:
    """Of one step of either."""
    if loss is None:
        return step(**batch) if isinstance(batch, dict) else step(*batch)
    return step(*batch) if scheduled else loss(step(batch[0]), batch[1])


if __name__ == "__main__":
    main()
