"""What the pieces of the GPU agenda share: where results lie, what is measured, and how it is written down."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import explorer
from benchmarks.cases import MODEL_CASES, Sample, Size
from benchmarks.provenance import Provenance
from explorer.device_profile import Profile
from explorer.execution.device import describe_device
from explorer.execution.out_of_memory import release
from explorer.models import MODELS
from explorer.solution import Solution

# Of one so large that activations are most of the step's memory: fractions of its peak have schedules.
SMALL = {x.name: x.batch for x in MODEL_CASES[Size.SMALL]} | {"resnet50": {"batch_size": 24, "image_size": 112}}
FULL: dict[str, dict[str, Any]] = {"unet3d": {"batch_size": 22}}
BFLOAT16 = ("gpt2", "vit_b16")
POINTS = 16
ALLOCATOR = "expandable" if "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "") else "caching"


@dataclass(frozen=True)
class Options:
    """What was asked for.

    Attributes:
        folder: of the results.
        device: ``"cuda"`` or ``"cpu"``.
        models: by name.
        small: small batches.
        tf32: products of float32 in TF32.
        time_limit: seconds for each solve.
        steps: timed for each measurement.
        run: under which circumstances.
    """

    folder: Path
    device: str
    models: tuple[str, ...]
    small: bool
    tf32: bool
    time_limit: float
    steps: int
    run: Provenance


@contextmanager
def alone(options: Options) -> Iterator[None]:
    """While open, no other process with this folder measures; what was used is given back to the device."""
    with (options.folder / "measuring.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
        release()


def write(path: Path, content: Any, options: Options) -> None:
    """Write a result as JSON, with what it was measured on; the file appears when it is complete."""
    described = describe_device(torch.device(options.device))
    where = {**asdict(described), "driver": driver(), "tf32": options.tf32}
    written = {"provenance": [asdict(options.run)], "device": where, "results": content}
    partial_path = path.with_name(path.name + ".partial")
    partial_path.write_text(json.dumps(written, indent=1), encoding="utf-8")
    partial_path.replace(path)


def others_in(folder: Path, device: str) -> list[str]:
    """The names of other devices than the one here whose results or profiles a folder has."""
    here = describe_device(torch.device(device)).name
    read = (json.loads(x.read_text(encoding="utf-8")) for x in sorted(folder.rglob("*.json")))
    names = {x["device"]["name"] for x in read if isinstance(x, dict) and "results" in x and "device" in x}
    names |= {explorer.load_profile(x).device.name for x in sorted(folder.glob("profiles/*.json.gz"))}
    return sorted(names - {here})


def driver() -> str:
    """Version of the GPU's driver, where its tool is there to ask."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    asked = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, check=False, capture_output=True, text=True).stdout.strip()


def sample_of(name: str, options: Options) -> Sample:
    """A model with its batch on the device, and its loss; at full size in bfloat16 where that is how it is trained."""
    release()  # so that it lies as in a process that did nothing before, not in the rests of other things' segments
    spec = MODELS[name]
    sizes = SMALL[name] if options.small else FULL.get(name, {})
    dtype = torch.bfloat16 if name in BFLOAT16 and not options.small else torch.float32
    torch.manual_seed(0)

    def placed(x: torch.Tensor) -> torch.Tensor:
        return x.to(options.device, dtype if x.is_floating_point() else x.dtype)

    batch = pytree.tree_map_only(torch.Tensor, placed, spec.batch(**sizes))
    return spec.build().to(options.device, dtype).train(), batch, spec.loss


def profile_path(name: str, options: Options) -> Path:
    """Of a model's profile; TF32 makes another one."""
    return options.folder / "profiles" / f"{name}{'-tf32' if options.tf32 else ''}.json.gz"


def curve_path(name: str, number: int, options: Options) -> Path:
    """Of a point of a model's trade-off curve."""
    return options.folder / "curves" / f"{name}{'-tf32' if options.tf32 else ''}-{number:02}.json"


def rival_path(name: str, method: str, options: Options) -> Path:
    """Of another method's schedule."""
    return options.folder / "rivals" / f"{name}{'-tf32' if options.tf32 else ''}-{method}.json"


def schedule_path(name: str, share: float, options: Options) -> Path:
    """Of a schedule for a share of the peak without recomputation."""
    return options.folder / "schedules" / f"{name}{'-tf32' if options.tf32 else ''}-{share:.2f}.json"


def solution_within(profile: Profile, budget_bytes: int, options: Options) -> Solution:
    """The best schedule that can be found in the time given, by SCIP and search."""
    return explorer.solve(profile, budget=budget_bytes, time_limit=options.time_limit, remember=False)


def best_within(name: str, profile: Profile, budget_bytes: int, options: Options) -> explorer.Schedule | None:
    """Of the schedules that are there for a model, the quickest that fits."""
    paths = sorted({*options.folder.glob(f"curves/{name}-*.json"), *options.folder.glob(f"schedules/{name}-*.json")})
    found = [explorer.load_schedule(path) for path in paths]
    fitting = [(explorer.simulate(profile, x), x) for x in found]
    fitting = [(x, y) for x, y in fitting if x.peak_bytes <= budget_bytes]
    return min(fitting, key=lambda x: x[0].time_ms)[1] if fitting else None


def differences(row: dict[str, Any]) -> str:
    """Measured against predicted, as people read it."""
    peak, time_ms = row["peak_bytes"], row["step_time_ms"]
    return (
        f"peak {explorer.format_bytes(peak)} ({peak / row['predicted_peak_bytes'] - 1:+.2%} of the prediction), "
        f"{time_ms:.1f} ms ({time_ms / row['predicted_time_ms'] - 1:+.1%})"
    )


def run_row(what: str, profile: Profile, schedule: explorer.Schedule, sample: Sample, options: Options) -> dict:
    """A schedule, run: predicted and measured."""
    model, batch, loss = sample
    predicted = explorer.simulate(profile, schedule, allocator=ALLOCATOR)
    assert predicted.reservation is not None, "an allocator was asked for"
    # Schedules are checked by ``checks``, each kind of implementation by itself.
    module = explorer.apply(model, schedule, batch, loss=loss, check=False)
    with alone(options):
        measured = explorer.measure(module, batch, steps=options.steps)
    return {
        **row_of(measured, what=what),
        "predicted_peak_bytes": predicted.peak_bytes,
        "predicted_time_ms": predicted.time_ms,
        "allocator": ALLOCATOR,
        "predicted_reserved_bytes": predicted.reservation.peak_bytes,
        "residual": asdict(explorer.residual(profile, schedule, measured)),
    }


def row_of(measured: explorer.Measurement, *, what: str) -> dict[str, Any]:
    """The figures of a measurement."""
    return {
        "what": what,
        "peak_bytes": measured.peak_bytes,
        "reserved_peak_bytes": measured.reserved_peak_bytes,
        "step_time_ms": measured.step_time_ms,
    }
