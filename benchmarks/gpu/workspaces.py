"""Do schedules of estimated profiles keep their budget with cuDNN's own plans for the device? Without a GPU.

    python -m benchmarks.gpu.workspaces [PROFILE …] [--shares 0.7 0.5 0.33] [--json benchmarks/results/workspaces.json]

Each bundled estimate is solved at shares of its peak, and the schedule simulated again with the workspaces of cuDNN's
plans for the device (``benchmarks.gpu.described`` says what that needs). Besides: of all its convolutions by PyTorch's
own choice, in how many the estimate lies below the plan, and the sums of both. The file takes rows of further profiles;
those for a P100 want another cuDNN.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks.bundled_profiles import DEVICES_OF_TRANSFORMERS
from benchmarks.cases import Whole, budget_bytes
from benchmarks.gpu.described import DescribedPlans, library
from benchmarks.provenance import Provenance, add_rows, record
from explorer import load_profile, simulate, solve
from explorer.capture.attention import Architecture
from explorer.capture.depth import capture_in_depth
from explorer.device_profile import Profile
from explorer.models import MODELS, TRANSFORMERS, model_spec
from explorer.profiles.loading import PRECISIONS
from explorer.profiling.convolutions import Convolutions
from explorer.profiling.devices import DeviceSpec, device_spec
from explorer.profiling.estimating import estimate_capture, precisions_of

_NOISE_BYTES = 2**20


@dataclass(frozen=True)
class Kept:
    """One budget of one profile.

    Attributes:
        profile: name.
        share: of its peak without recomputation.
        budget_bytes: that share.
        peak_bytes: of the schedule found, by the estimate; None where none was found.
        planned_peak_bytes: with cuDNN's plans.
        keeps: does that keep the budget?
        convolutions: calls of PyTorch's own choice that were asked for.
        below: so many of which are estimated more than 1 MiB too low.
        estimated_bytes: sum of their workspaces.
        planned_bytes: the same by the plans.
        cudnn: version.
    """

    profile: str
    share: float
    budget_bytes: int
    peak_bytes: int | None
    planned_peak_bytes: int | None
    keeps: bool
    convolutions: int
    below: int
    estimated_bytes: int
    planned_bytes: int
    cudnn: int


def main() -> None:
    """A row for each budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", default=list(estimates()))
    parser.add_argument("--shares", type=float, nargs="*", default=[0.7, 0.5, 0.33])
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for each schedule")
    parser.add_argument("--json", type=Path, help="add the results to this file")
    arguments = parser.parse_args()
    library()
    run = record(arguments)
    for name in arguments.profiles:
        rows = list(_kept(name, arguments.shares, arguments.time_limit))
        for row in rows:
            print(_said(row), flush=True)
        if arguments.json is not None:
            _added(arguments.json, rows, run)


def estimates() -> dict[str, tuple[str, str, str]]:
    """Every bundled estimate: of which model, for which device, in which precision."""
    found = {}
    for model in (*MODELS, *TRANSFORMERS):
        for device, precision in (PRECISIONS if model in MODELS else DEVICES_OF_TRANSFORMERS).items():
            found[f"{model}-{device}"] = (model, device, precision)
    return found


def planned(name: str) -> tuple[Profile, DescribedPlans, DeviceSpec]:
    """A bundled estimate made again with the workspaces of cuDNN's plans."""
    model_name, device, precision = estimates()[name]
    spec = device_spec(device)
    model_of = model_spec(model_name)
    with torch.device("meta"):
        model, batch = model_of.build(), model_of.batch()
    half = torch.bfloat16 if precision == "bfloat16" else None
    kernels = Architecture(spec.compute_capability, spec.cudnn_attention)
    captured, graph = capture_in_depth(model, batch, loss=model_of.loss, dtype=half, architecture=kernels)
    plans = DescribedPlans(spec)
    profile = estimate_capture(captured, spec=spec, precisions=precisions_of(spec, precision), plans=plans)
    return replace(profile, graph=graph), plans, spec


def _kept(name: str, shares: list[float], time_limit_s: float) -> Iterator[Kept]:
    bundled = load_profile(name)
    again, plans, spec = planned(name)
    convolutions = Convolutions(spec, precisions_of(spec, estimates()[name][2]))
    pairs = [
        (convolutions.part(part, geometry, result).workspace_bytes, planned_bytes)
        for (part, geometry, result, _), planned_bytes in plans.asked.items()
        if planned_bytes is not None
    ]
    for share in shares:
        budget = budget_bytes(bundled, share, of=Whole.PEAK)
        schedule = solve(bundled, budget=budget, time_limit=time_limit_s, remember=False).schedule
        peak = None if schedule is None else simulate(bundled, schedule).peak_bytes
        planned_peak = None if schedule is None else simulate(again, schedule).peak_bytes
        yield Kept(
            profile=name,
            share=share,
            budget_bytes=budget,
            peak_bytes=peak,
            planned_peak_bytes=planned_peak,
            keeps=planned_peak is None or planned_peak <= budget,
            convolutions=len(pairs),
            below=sum(mine + _NOISE_BYTES < theirs for mine, theirs in pairs),
            estimated_bytes=sum(mine for mine, _ in pairs),
            planned_bytes=sum(theirs for _, theirs in pairs),
            cudnn=library().backend_version(),
        )


def _said(row: Kept) -> str:
    if row.peak_bytes is None or row.planned_peak_bytes is None:
        return f"{row.profile} at {row.share:g}: no schedule"
    return (
        f"{row.profile} at {row.share:g}: budget {row.budget_bytes / 2**20:.0f} MiB, estimated "
        f"{row.peak_bytes / 2**20:.0f}, with plans {row.planned_peak_bytes / 2**20:.0f} "
        f"({row.planned_peak_bytes / row.budget_bytes - 1:+.2%} of the budget){'' if row.keeps else ': OVER'}"
    )


def _added(path: Path, rows: list[Kept], run: Provenance) -> None:
    add_rows(path, [asdict(x) for x in rows], run, by="profile")


if __name__ == "__main__":
    main()
