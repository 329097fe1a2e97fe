"""Estimates beside what was measured on an H200: workspace of every call, time by kind of call, peaks of schedules.

    python -m benchmarks.gpu.estimates [PROFILE …] [--json benchmarks/results/gpu/estimates.json]

No GPU is needed: the measured profiles come with the package. Schedules are solved on the estimate, at shares of its
peak, and simulated on the measured profile: do they keep their budget there?
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.cases import Whole, budget_bytes
from benchmarks.provenance import add_rows, record
from explorer import estimate, keep_all, load_profile, simulate, solve
from explorer.device_profile import Profile
from explorer.models import MODELS

PROFILES = {
    "resnet50-h200": "float32",
    "resnet50-h200-tf32": "tf32",
    "unet-h200": "float32",
    "mobilenet_v2-h200": "float32",
    "gpt2-h200": "bfloat16",
    "vit_b16-h200": "bfloat16",
}
SHARES = (0.7, 0.5, 0.33)
_NOISE_BYTES = 2**20
_NONE = 2**37
"""A workspace that stands for "does not fit": what an implementation has that ran out of memory."""


@dataclass(frozen=True)
class Compared:
    """One measured profile and its estimate.

    Attributes:
        profile: name of the measured one.
        calls: that both have.
        below: so many workspaces are estimated more than 1 MiB too low.
        estimated_peak_bytes: with nothing recomputed.
        measured_peak_bytes: the same by measured costs.
        estimated_ms: of that step.
        measured_ms: the same by measured costs.
        kinds: of operators: how many, ms estimated, ms measured.
        schedules: share, budget, estimated peak, the same schedule's by measured costs.
    """

    profile: str
    calls: int
    below: int
    estimated_peak_bytes: int
    measured_peak_bytes: int
    estimated_ms: float
    measured_ms: float
    kinds: dict[str, tuple[int, float, float]]
    schedules: list[tuple[float, int, int, int]]


def main() -> None:
    """A row for each profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", default=list(PROFILES))
    parser.add_argument("--time-limit", type=float, default=5.0, help="seconds for each schedule")
    parser.add_argument("--json", type=Path, help="add the results to this file")
    arguments = parser.parse_args()
    run = record(arguments)
    for name in arguments.profiles:
        row = _compared(name, arguments.time_limit)
        print(_said(row), flush=True)
        if arguments.json is not None:
            add_rows(arguments.json, [asdict(row)], run, by="profile")


def estimated(name: str) -> Profile:
    """The estimate of a measured profile's model on its device."""
    spec = MODELS[name.partition("-")[0]]
    with torch.device("meta"):
        model, batch = spec.build(), spec.batch()
    return estimate(model, batch, loss=spec.loss, device="H200", precision=PROFILES[name])


def _compared(name: str, time_limit_s: float) -> Compared:
    measured, like = load_profile(name), estimated(name)
    assert like.graph.identity.difference(measured.graph.identity) is None, "estimates are of the graph that is run"
    pairs = [
        (like.costs[key].workspace_bytes, cost.workspace_bytes)
        for key, cost in measured.costs.items()
        if key in like.costs and cost.workspace_bytes < _NONE
    ]
    plain = keep_all(measured.graph)
    there, here = simulate(measured, plain), simulate(like, plain)
    return Compared(
        profile=name,
        calls=len(pairs),
        below=sum(mine + _NOISE_BYTES < theirs for mine, theirs in pairs),
        estimated_peak_bytes=here.peak_bytes,
        measured_peak_bytes=there.peak_bytes,
        estimated_ms=here.time_ms,
        measured_ms=there.time_ms,
        kinds=_kinds(measured, like, PROFILES[name]),
        schedules=list(_schedules(measured, like, time_limit_s)),
    )


def _kinds(measured: Profile, like: Profile, precision: str) -> dict[str, tuple[int, float, float]]:
    found: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for operator in measured.graph.operators:
        if operator.optional:
            continue
        key = operator.default().cost
        kind = operator.target.removesuffix(".default").split(".")[-1 if operator.target.startswith("explorer") else 1]
        if kind.startswith("convolution"):
            kind += f", {precision}"
        for place, amount in enumerate((1, like.costs[key].time_ms, measured.costs[key].time_ms)):
            found[kind][place] += amount
    return {kind: (int(x[0]), x[1], x[2]) for kind, x in found.items()}


def _schedules(measured: Profile, like: Profile, time_limit_s: float) -> Iterator[tuple[float, int, int, int]]:
    for share in SHARES:
        budget = budget_bytes(like, share, of=Whole.PEAK)
        schedule = solve(like, budget=budget, time_limit=time_limit_s).schedule
        if schedule is not None:
            yield share, budget, simulate(like, schedule).peak_bytes, simulate(measured, schedule).peak_bytes


def _said(row: Compared) -> str:
    kept = ", ".join(
        f"{share:g}: {there / budget - 1:+.2%} of the budget{'' if there <= budget else ' OVER'}"
        for share, budget, _, there in row.schedules
    )
    return (
        f"{row.profile}: {row.below} of {row.calls} workspaces too low; peak {row.estimated_peak_bytes / 2**30:.3f} "
        f"GiB ({row.estimated_peak_bytes / row.measured_peak_bytes - 1:+.2%}), step {row.estimated_ms:.1f} ms "
        f"({row.estimated_ms / row.measured_ms:.2f} of measured); {kept}"
    )


if __name__ == "__main__":
    main()
