"""Schedules of other systems on real models: predicted against measured peak, gradients against eager mode's.

    python benchmarks/run_methods.py [MODEL …] --methods rotor checkpoint-blocks

Every method is asked for three budgets of its own range: near its smallest peak, halfway, and that of plain PyTorch.
Beside each stands the time of MONeT's checkpointing alone within the same peak, and how far that is from proven optimal
at most. ``torch.compile``'s partitioner is asked for three shares instead; ``--compiled`` also measures its real step.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import explorer
from explorer.models import MODELS
from explorer.models.gpt import GPT, GPTConfig
from explorer.solvers.methods import METHODS
from explorer.solvers.options import Options

OURS = ("rotor", "rotor-revolve", "checkpoint-sequential", "checkpoint-blocks", "eager")
SHARES = (1.0, 0.5, 0.1)
Sample = tuple[nn.Module, Any, Any]


def main() -> None:
    """Print one table per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SAMPLES), help=", ".join(SAMPLES))
    parser.add_argument("--methods", nargs="*", default=list(OURS), help=", ".join(METHODS))
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds for MONeT at each budget")
    parser.add_argument(
        "--compiled", action="store_true", help="also measure what torch.compile makes (needs a compiler)"
    )
    options = parser.parse_args()
    for name in options.models:
        torch.manual_seed(0)
        sample = SAMPLES[name]()
        profile = explorer.profile(sample[0], sample[1], loss=sample[2])
        plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
        print(f"\n{name}: without recomputation {plain.peak_bytes / 2**20:.1f} MiB, {plain.time_ms:.1f} ms")
        heads = ("predicted", "measured", "error", "bits", "/plain", "MONeT", "gap")
        print(f"{'method':>22}", *(f"{x:>{width}}" for x, width in zip(heads, (10, 10, 8, 6, 7, 7, 6), strict=True)))
        for method in options.methods:
            for solution in answers(profile, method):
                report(profile, sample, solution, time_limit=options.time_limit)
        for share in SHARES:
            schedule = explorer.compiled_schedule(sample[0], sample[1], loss=sample[2], activation_memory_budget=share)
            report(profile, sample, as_solution(profile, schedule), time_limit=options.time_limit)
            if options.compiled:
                found = explorer.measure_compiled(
                    sample[0], sample[1], loss=sample[2], activation_memory_budget=share, steps=1
                )
                print(f"{'compiled by inductor':>22} {'':>10} {found.peak_bytes / 2**20:10.1f}", flush=True)


def answers(profile: explorer.Profile, method: str) -> Iterator[explorer.Solution]:
    """The method's different schedules at three budgets of its range."""
    ask = METHODS[method]
    (nothing,) = ask.solve(profile, [1], options=Options(method))
    if nothing.minimum is None:
        print(f"{method:>22} {nothing.message}")
        return
    least = nothing.minimum.budget_bytes
    most = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    budgets = [max(least, round(least + share * (most - least))) for share in SHARES]
    seen = set()
    for solution in ask.solve(profile, budgets, options=Options(method)):
        assert solution.schedule is not None
        if solution.schedule.steps not in seen:
            seen.add(solution.schedule.steps)
            yield solution


def as_solution(profile: explorer.Profile, schedule: explorer.Schedule) -> explorer.Solution:
    """A schedule, judged."""
    timeline = explorer.simulate(profile, schedule)
    return explorer.Solution(
        explorer.Status.FEASIBLE, timeline.peak_bytes, schedule, timeline.time_ms, timeline.peak_bytes
    )


def report(profile: explorer.Profile, sample: Sample, solution: explorer.Solution, *, time_limit: float) -> None:
    """Run a schedule beside eager mode, and print a row."""
    assert solution.schedule is not None
    assert solution.peak_bytes is not None
    assert solution.time_ms is not None
    model, batch, loss = sample
    scheduled = explorer.apply(copy.deepcopy(model), solution.schedule, batch, loss=loss)
    equal = gradients_equal(scheduled, copy.deepcopy(model), batch, loss)
    measured = explorer.measure(scheduled, batch, steps=1).peak_bytes
    plain_ms = explorer.simulate(profile, explorer.keep_all(profile.graph)).time_ms
    rival = explorer.solve(
        profile, budget=solution.peak_bytes, method="monet-checkpointing", time_limit=time_limit, remember=False
    )
    rival_text = "" if rival.time_ms is None else f"{rival.time_ms / plain_ms:7.4f}"
    gap = rival.gap()
    print(
        f"{solution.schedule.method:>22} {solution.peak_bytes / 2**20:10.1f} {measured / 2**20:10.1f}"
        f" {measured / solution.peak_bytes - 1:8.3%} {'equal' if equal else 'DIFFER':>6}"
        f" {solution.time_ms / plain_ms:7.4f} {rival_text:>7} {'' if gap is None else f'{gap:.1%}':>6}",
        flush=True,
    )


def gradients_equal(scheduled: nn.Module, plain: nn.Module, batch: Any, loss: Any) -> bool:
    """One step each from the same random state: are loss and gradients the same bits?"""
    losses = []
    for module in (scheduled, plain):
        torch.manual_seed(0)
        result = module(*batch) if module is scheduled or loss is None else loss(module(batch[0]), batch[1])
        result.backward()
        losses.append(result.detach())
    pairs = [(a.grad, b.grad) for a, b in zip(scheduled.parameters(), plain.parameters(), strict=True)]
    return torch.equal(*losses) and all(torch.equal(a, b) for a, b in pairs if a is not None and b is not None)


def decoder() -> Sample:
    """GPT-2's architecture with dropout, 6 layers of width 256."""
    model = GPT(GPTConfig(vocabulary=2000, context=128, layers=6, heads=4, width=256, dropout=0.1)).train()
    tokens = torch.randint(2000, (4, 129))
    return model, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), None


def bundled(name: str, **sizes: int) -> Sample:
    """A bundled model with a batch of these sizes."""
    spec = MODELS[name]
    return spec.build().train(), spec.batch(**sizes), spec.loss


SAMPLES = {
    "resnet50": lambda: bundled("resnet50", batch_size=8, image_size=64),
    "unet": lambda: bundled("unet", batch_size=1, image_size=128),
    "gpt": decoder,
}

if __name__ == "__main__":
    main()
