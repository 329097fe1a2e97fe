"""Steps in one buffer beside those in PyTorch's memory: buffer against load and prediction, misses, bits, time.

python -m benchmarks.execution.one_buffer [MODEL …] [--size small] [--share 0.7] [--rounds 20]
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch
from torch import nn

from benchmarks.cases import Size, Tier, Whole, add_tier, budget_bytes, model_cases, model_names
from benchmarks.provenance import record
from benchmarks.timing_in_turns import paired_ratio, times_in_turns_ms
from explorer import apply, measure, place, profile, smallest_budget, solve
from explorer.capture.results import tensors_of_result
from explorer.device_profile import Profile
from explorer.schedule import Schedule


def main() -> None:
    """Print one row per model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.TINY, Size.SMALL))
    add_tier(parser)
    parser.add_argument("--size", type=Size, choices=list(Size), default=Size.SMALL)
    parser.add_argument("--share", type=float, default=0.7, help="of plain PyTorch's peak")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    record(arguments)
    tier: Tier = arguments.tier
    for case in model_cases(tier, arguments.size, arguments.models):
        model, batch, loss = case.sample()
        measured = profile(model, batch, loss=loss)
        budget = budget_bytes(measured, arguments.share, of=Whole.PEAK)
        solution = solve(measured, budget=budget)
        smallest = solution.schedule is None
        if smallest:  # parameters and gradients alone take more
            budget = smallest_budget(measured).budget_bytes
            solution = solve(measured, budget=budget)
        assert solution.schedule is not None, "there is a smallest budget"
        plain = apply(model, solution.schedule, batch, loss=loss)
        within = apply(model, solution.schedule, batch, loss=loss, buffer=True)
        use = measure(within, batch, steps=1).buffer
        assert use is not None, "it runs in one"
        runs = {name: partial(_step, module, batch) for name, module in (("plain", plain), ("buffer", within))}
        above = use.buffer_bytes / _predicted_bytes(measured, solution.schedule) - 1
        same = all(map(torch.equal, _step(plain, batch, seed=0), _step(within, batch, seed=0)))
        times_ms = times_in_turns_ms(runs, rounds=arguments.rounds)
        ratio, error = paired_ratio(times_ms["buffer"], times_ms["plain"])
        print(
            f"{case.name:14} budget {budget:12} B{' (smallest)' if smallest else ''}  buffer {use.buffer_bytes:12}  "
            f"over the load {use.fragmentation:.2%}  over the predicted one {above:.4%}  "
            f"served {use.served}  misses {use.misses}  "
            f"{'same bits' if same else 'OTHER BITS'}  time {ratio:.3f} ± {error:.3f}",
            flush=True,
        )


def _predicted_bytes(measured: Profile, schedule: Schedule) -> int:
    """Most that is predicted to be alive at once of what does not outlive the step."""
    placement = place(measured, schedule)
    alive_bytes = np.zeros(placement.runs + 1, np.int64)
    for block in placement.blocks:
        if not any(measured.graph.storages[x].held for x in block.storages):
            alive_bytes[block.first] += block.bytes
            alive_bytes[block.last + 1] -= block.bytes
    return int(alive_bytes.cumsum().max())


def _step(module: nn.Module, batch: object, *, seed: int | None = None) -> list[torch.Tensor]:
    """One step; its gradients."""
    if seed is not None:
        torch.manual_seed(seed)
    module.zero_grad()
    args = batch if isinstance(batch, tuple) else (batch,)
    (loss,) = (x for x in tensors_of_result(module(*args)) if x.requires_grad and x.ndim == 0)
    loss.backward()
    return [x.grad for x in module.parameters() if x.grad is not None]


if __name__ == "__main__":
    main()
