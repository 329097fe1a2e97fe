"""What kernels of chains of calls and of normalisations are worth, by estimates for GPUs.

    python -m benchmarks.methods.fusing [MODEL …] [--device A100-80GB] [--seconds 4] [--json FILE]

Each model in bfloat16, captured with chains apart and joined. At shares of plain PyTorch's peak: the fastest schedule
that is found with chains apart; joined; and joined with kernels alone that compute all that the calls do, so that
nothing is left out in the forward pass, and nothing made again in the backward pass. Times are over plain PyTorch's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

import explorer
from benchmarks.provenance import add_rows, record
from explorer.graph import Implementation, Optimization
from explorer.models import TRANSFORMERS, model_spec

_SHARES = (1.0, 0.5, 0.25)
_WAYS: dict[str, Callable[[Implementation], bool]] = {
    "joined": lambda _: True,
    "whole kernels alone": lambda x: x.name == "fused",
    "not from source": lambda x: not x.name.startswith(("fused, from source", "fused, from statistics")),
}


@dataclass(frozen=True)
class Row:
    """One model on one device.

    Attributes:
        model: its name.
        device: for which it is estimated.
        operators: with chains apart, and joined.
        chains: how many operators have a kernel: chains that were joined, and normalisations.
        kernels: how many of them are different.
        shares: of plain PyTorch's peak.
        times: by what may be chosen, at these shares, over plain PyTorch's time; None: no schedule.
        smallest: budgets over plain PyTorch's peak, by what may be chosen.
    """

    model: str
    device: str
    operators: tuple[int, int]
    chains: int
    kernels: int
    shares: tuple[float, ...]
    times: dict[str, tuple[float | None, ...]]
    smallest: dict[str, float]


def main() -> None:
    """Print a row for each model, and put them among those of a JSON file if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["gpt2", *TRANSFORMERS])
    parser.add_argument("--device", default="A100-80GB")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each solve")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    provenance = record(arguments, seeds=(0,))
    for name in arguments.models:
        row = of_model(name, device=arguments.device, seconds=arguments.seconds)
        print(
            f"{row.model:>18} {row.chains:5} chains, {row.kernels:3} different, operators {row.operators}", flush=True
        )
        for way, times in row.times.items():
            shown = "  ".join("     -" if x is None else f"{x:6.3f}" for x in times)
            print(f"{way:>38}  {shown}   smallest {row.smallest[way]:.3f}", flush=True)
        if arguments.json is not None:
            add_rows(arguments.json, [asdict(row)], provenance, by="model")


def of_model(name: str, *, device: str, seconds: float) -> Row:
    """Estimate and solve in all ways."""
    spec = model_spec(name)
    with torch.device("meta"):
        model, batch = spec.build(), spec.batch()
    apart, joined = (
        explorer.estimate(model, batch, loss=spec.loss, device=device, precision="bfloat16", fuse=x)
        for x in (False, True)
    )
    plain = explorer.simulate(apart, explorer.keep_all(apart.graph))
    profiles = {"apart": apart} | {way: _with(joined, allowed) for way, allowed in _WAYS.items()}
    times: dict[str, tuple[float | None, ...]] = {}
    for way, profile in profiles.items():
        solved = [
            explorer.solve(profile, budget=int(x * plain.peak_bytes), time_limit=seconds, remember=False)
            for x in _SHARES
        ]
        times[way] = tuple(None if x.time_ms is None else x.time_ms / plain.time_ms for x in solved)
    ways = [[y.cost for y in x.implementations if _is_fused(y)] for x in joined.graph.operators]
    groups = [x[0] for x in ways if x]
    return Row(
        model=name,
        device=device,
        operators=(len(apart.graph.operators), len(joined.graph.operators)),
        chains=len(groups),
        kernels=len(set(groups)),
        shares=_SHARES,
        times=times,
        smallest={way: _smallest(profile, seconds) / plain.peak_bytes for way, profile in profiles.items()},
    )


def _is_fused(way: Implementation) -> bool:
    return way.optimization is Optimization.FUSED


def _smallest(profile: explorer.Profile, seconds: float) -> int:
    found = explorer.smallest_budget(profile, time_limit=seconds).minimum
    assert found is not None, "there is a smallest budget"
    return found.budget_bytes


def _with(profile: explorer.Profile, allowed: Callable[[Implementation], bool]) -> explorer.Profile:
    """The profile with some of the fused ways."""
    operators = tuple(
        replace(x, implementations=tuple(y for y in x.implementations if not _is_fused(y) or allowed(y)))
        for x in profile.graph.operators
    )
    return replace(profile, graph=replace(profile.graph, operators=operators))


if __name__ == "__main__":
    main()
