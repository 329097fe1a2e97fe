"""Everything there is to measure on a GPU, by one command that can be stopped and taken up again.

    python -m benchmarks.gpu.agenda FOLDER [--device cuda] [--minutes 25] [--items checks layer …] [--models resnet50 …]

Items, in this order: ``checks`` (those of ``python -m tests.gpu``), ``layer`` (the algorithms of the layer of MONeT's
figure 7, with TF32 and without), ``profiles`` (every model at full size), ``schedules`` (four budgets each), ``runs``
(each schedule run: peak and time, predicted and measured), ``rivals`` (other ways to save memory, and ours within the
memory that each took), ``timeline`` (memory over a step, predicted and measured). Each piece of work is a file in
FOLDER, written when it is done: what is there is not done again, and no piece begins after ``--minutes``. A folder is
of one device: where another's results are in it, nothing is done. A piece that
fails leaves its error in a file, and the others go on; one that is impossible (a budget below every schedule's) says so
in another file, and is not tried again.

Needs PyTorch and NumPy; ``schedules`` needs what the explorer needs: without that, solve elsewhere (the same command
with ``--items schedules`` on a copy of FOLDER, without a GPU) and come back with the files. With ``--device cpu``, or
``--small``, all of it runs with small batches.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Blocks of the default allocator, which splits large ones only above 1 MiB, are counted whole.
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import explorer
from benchmarks.cases import Sample
from benchmarks.execution.convolution import choices
from benchmarks.gpu.asking import ITEMS, add_options
from benchmarks.gpu.measuring import (
    POINTS,
    Options,
    alone,
    best_within,
    curve_path,
    differences,
    others_in,
    profile_path,
    rival_path,
    row_of,
    run_row,
    sample_of,
    schedule_path,
    solution_within,
    write,
)
from benchmarks.gpu.plans import plans_of_layer
from benchmarks.provenance import record
from explorer.device_profile import Profile
from explorer.execution.device import describe_device
from explorer.execution.out_of_memory import release
from explorer.models import MODELS
from explorer.operators import cudnn_plans
from explorer.solution import Status
from explorer.torch_private import forget_cublas_workspaces

SHARES = (0.33, 0.4, 0.5, 0.7)
RIVALS = ("checkpoint-sequential", "rotor", "checkmate")
COMPILED = (1.0, 0.5, 0.1)
SMALLEST = 0.2


Piece = tuple[str, Path, Callable[[Path], None]]
"""What it is called, the file that it makes, and how."""


class Impossible(Exception):  # noqa: N818 - it is no error
    """There is nothing to make, however often it is tried; says why."""


def main() -> int:
    """Do what is left to do, in the time given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=25.0, help="no piece begins after these")
    add_options(parser, models=MODELS)
    parser.set_defaults(device="cuda", items=list(ITEMS), models=list(MODELS), time_limit=10.0, steps=5)
    asked = parser.parse_args()
    solving_alone = set(asked.items) == {"schedules"}
    if asked.device == "cuda" and not torch.cuda.is_available() and not solving_alone:
        parser.error(f"PyTorch {torch.__version__} sees no CUDA device here; --device cpu tries everything out")
    if not solving_alone and (others := others_in(asked.folder, asked.device)):
        parser.error(
            f"{asked.folder} has results of {', '.join(others)}, and this is "
            f"{describe_device(torch.device(asked.device)).name}: name another folder"
        )
    options = Options(
        folder=asked.folder,
        device=asked.device,
        models=tuple(asked.models),
        small=asked.small or asked.device == "cpu",
        tf32=asked.tf32,
        time_limit=asked.time_limit,
        steps=asked.steps,
        run=record(asked),
    )
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = asked.tf32
    deadline = time.monotonic() + 60 * asked.minutes
    failed = 0
    for item in ITEMS:
        if item in asked.items:
            for piece in PIECES[item](options):
                failed += not done(piece, deadline)
    return int(failed > 0)


def done(piece: Piece, deadline: float) -> bool:
    """Do a piece unless it is done, or the time is over; False where it failed."""
    name, path, make = piece
    why_none = path.with_name(path.name + ".none.txt")
    known = path.exists() or why_none.exists()
    if known or time.monotonic() > deadline:
        print(f"{name}: {'there already' if known else 'no time left'}", flush=True)
        return True
    path.parent.mkdir(parents=True, exist_ok=True)
    error_path = path.with_name(path.name + ".error.txt")
    began = time.monotonic()
    try:
        make(path)
    except Impossible as reason:
        why_none.write_text(f"{reason}\n", encoding="utf-8")
        print(f"{name}: {reason}", flush=True)
        return True
    except Exception as error:  # noqa: BLE001 - the other pieces are worth having all the same
        error_path.write_text(traceback.format_exc(), encoding="utf-8")
        print(f"{name}: failed after {time.monotonic() - began:.1f} s, {type(error).__name__}: {error}", flush=True)
        return False
    finally:
        release()
    error_path.unlink(missing_ok=True)
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)
    return True


def checks(options: Options) -> Iterator[Piece]:
    """Each of ``python -m tests.gpu``, with how it ended; a failed one is a result too."""
    from tests.gpu.__main__ import run_checks
    from tests.gpu.checks import CHECKS, Check

    def make(path: Path, *, check: Check) -> None:
        before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = True, False  # as PyTorch has it
        try:
            (outcome,) = run_checks([check], options.device)
        finally:
            torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
            if options.device == "cuda":
                forget_cublas_workspaces()
        write(path, asdict(outcome), options)

    for check in CHECKS:
        name = re.sub(r"[^a-z0-9]+", "-", check.name.lower())
        yield f"check: {check.name}", options.folder / "checks" / f"{name}.json", partial(make, check=check)


class Layer(nn.Module):
    """MONeT's figure 7: 64 channels in and out, 3×3; a layer before it, so that it has an input gradient."""

    def __init__(self) -> None:
        """With random weights."""
        super().__init__()
        self.before = nn.Conv2d(64, 64, 1)
        self.layer = nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A scalar."""
        # Its gradient is written out as in a network: that of a sum would be one number that stands for all.
        return self.layer(self.before(x)).relu().sum()


def layer(options: Options) -> Iterator[Piece]:
    """All implementations of one convolution, with TF32 and without."""

    def make(path: Path, *, tf32: bool) -> None:
        before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = tf32
        try:
            batch = torch.randn(8 if options.small else 256, 64, 56, 56, device=options.device)
            found = choices(explorer.profile(Layer().to(options.device), batch), "layer")
        finally:
            torch.backends.cudnn.allow_tf32 = before
        write(path, [{**asdict(x), "tf32": tf32} for x in found], options)

    for tf32 in (False, True):
        name = f"layer-{'tf32' if tf32 else 'float32'}"
        yield name, options.folder / f"{name}.json", partial(make, tf32=tf32)
    if options.device == "cuda" and cudnn_plans.available():
        path = options.folder / "plans.json"
        yield "cuDNN's plans for the layer", path, lambda path: write(path, plans_of_layer(256), options)


def profiles(options: Options) -> Iterator[Piece]:
    """Every model, measured with all implementations."""

    def make(path: Path, *, name: str) -> None:
        model, batch, loss = sample_of(name, options)
        with alone(options):
            found = explorer.profile(model, batch, loss=loss)
        found.save(path)

    for name in options.models:
        yield f"profile of {name}", profile_path(name, options), partial(make, name=name)


def schedules(options: Options) -> Iterator[Piece]:
    """Four budgets for each profile that is there."""
    for name in options.models:
        if not profile_path(name, options).exists():
            continue
        for share in SHARES:
            make = partial(_make_schedule, name=name, share=share, options=options)
            yield f"schedule for {name} at {share}", schedule_path(name, share, options), make
    for name in options.models[:1]:
        if profile_path(name, options).exists():
            for number in range(POINTS):
                share = SMALLEST + (1 - SMALLEST) * number / POINTS
                make = partial(_make_schedule, name=name, share=share, options=options)
                yield f"point of {name} at {share:.2f}", curve_path(name, number, options), make
            for method in RIVALS:
                make = partial(_make_rival, name=name, method=method, options=options)
                yield f"schedule for {name} by {method}", rival_path(name, method, options), make


def _peak_of(profile: Profile) -> int:
    return explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes


def _make_schedule(path: Path, *, name: str, share: float, options: Options) -> None:
    profile = explorer.load_profile(profile_path(name, options))
    peak = _peak_of(profile)
    found = solution_within(profile, int(share * peak), options)
    if found.schedule is None:
        said = f"{name} has no schedule within {share:.2f} of {explorer.format_bytes(peak)}"
        raise Impossible(said) if found.status is Status.INFEASIBLE else ValueError(said)
    found.schedule.save(path)


def _make_rival(path: Path, *, name: str, method: str, options: Options) -> None:
    """Within half the peak, or as little as the method can."""
    from explorer.solvers.methods.table import METHODS
    from explorer.solvers.options import Options as SolveOptions

    profile = explorer.load_profile(profile_path(name, options))
    asked = SolveOptions(method, time_limit=6 * options.time_limit)
    (found,) = METHODS[method].solve(profile, [_peak_of(profile) // 2], options=asked)
    if found.schedule is None and found.minimum is not None:
        (found,) = METHODS[method].solve(profile, [found.minimum.budget_bytes], options=asked)
    if found.schedule is None:
        said = found.message or f"{method} has no schedule: {found.status.value}"
        raise Impossible(said) if found.status in (Status.INFEASIBLE, Status.UNSUITED) else ValueError(said)
    found.schedule.save(path)


def runs(options: Options) -> Iterator[Piece]:
    """The schedules that are there for a model, on the device, and plain PyTorch beside them."""

    def make(path: Path, *, name: str, shares: list[float]) -> None:
        model, batch, loss = sample_of(name, options)
        profile = explorer.load_profile(profile_path(name, options))
        with alone(options):
            rows = [row_of(explorer.measure(model, batch, loss=loss, steps=options.steps), what="plain PyTorch")]
        for share in shares:
            schedule = explorer.load_schedule(schedule_path(name, share, options))
            rows.append(run_row(f"{share} of the peak", profile, schedule, (model, batch, loss), options))
            slower = rows[-1]["step_time_ms"] / rows[0]["step_time_ms"] - 1
            print(f"  {name} at {share}: {differences(rows[-1])}; {slower:+.1%} time", flush=True)
        write(path, rows, options)

    for name in options.models:
        shares = [x for x in SHARES if schedule_path(name, x, options).exists()]
        if shares:
            path = options.folder / "runs" / f"{name}{'-tf32' if options.tf32 else ''}.json"
            yield f"runs of {name}", path, partial(make, name=name, shares=shares)


def rivals(options: Options) -> Iterator[Piece]:
    """Other ways to save memory, each beside our schedule within the memory that it took."""

    def make(path: Path, *, name: str) -> None:
        sample = sample_of(name, options)
        profile = explorer.load_profile(profile_path(name, options))
        rows = []
        for what, measure in ways_to_save(name, profile, sample, options):
            try:
                row = measure()
            except Exception as error:  # noqa: BLE001 - a compiler that is not there, memory that is not enough
                rows.append({"what": what, "error": f"{type(error).__name__}: {error}"})
                continue
            rows.append(row)
            ours = best_within(name, profile, row["peak_bytes"], options)
            if ours is not None:
                rows.append(run_row(f"ours within {what}", profile, ours, sample, options))
            print(f"  {what}: {row['peak_bytes'] / 2**30:.2f} GiB, {row['step_time_ms']:.1f} ms", flush=True)
        write(path, rows, options)

    for name in options.models[:1]:
        if profile_path(name, options).exists():
            yield f"rivals on {name}", options.folder / f"rivals-{name}.json", partial(make, name=name)


def ways_to_save(
    name: str, profile: Profile, sample: Sample, options: Options
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Plain PyTorch, its own checkpoints, its compiler, and other systems' schedules, with how to measure each."""
    model, batch, loss = sample

    def plain(what: str, module: nn.Module) -> dict[str, Any]:
        with alone(options):
            return row_of(explorer.measure(module, batch, loss=loss, steps=options.steps), what=what)

    def compiled(what: str, share: float) -> dict[str, Any]:
        if options.device == "cuda" and find_spec("triton") is None:
            raise ModuleNotFoundError("the compiler's kernels for a GPU are Triton's, and that is not installed here")
        budget: dict[str, Any] = {"activation_memory_budget": share}
        with alone(options):
            return row_of(explorer.measure_compiled(model, batch, loss=loss, steps=options.steps, **budget), what=what)

    def scheduled(what: str) -> dict[str, Any]:
        schedule = explorer.load_schedule(rival_path(name, what, options))
        return run_row(what, profile, schedule, sample, options)

    yield "plain PyTorch", partial(plain, "plain PyTorch", model)
    yield "torch.utils.checkpoint", lambda: plain("torch.utils.checkpoint", with_checkpoints(model))
    for share in COMPILED:
        what = f"torch.compile, budget {share}"
        yield what, partial(compiled, what, share)
    for method in RIVALS:
        if rival_path(name, method, options).exists():
            yield method, partial(scheduled, method)


def with_checkpoints(model: nn.Module) -> nn.Module:
    """A copy with PyTorch's own checkpoints around the blocks of its sequences, as people put them there."""
    copied = copy.deepcopy(model)
    for container in copied.modules():
        if isinstance(container, nn.Sequential | nn.ModuleList):
            for block in container:
                if any(True for _ in block.children()) and not isinstance(block, nn.Sequential):
                    block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    return copied


def timeline(options: Options) -> Iterator[Piece]:
    """Memory over a step at half the peak (or the next share that has a schedule): predicted, measured, by operator."""

    def make(path: Path, *, name: str, share: float) -> None:
        model, batch, loss = sample_of(name, options)
        profile = explorer.load_profile(profile_path(name, options))
        schedule = explorer.load_schedule(schedule_path(name, share, options))
        module = explorer.apply(model, schedule, batch, loss=loss, check=False)
        predicted = explorer.simulate(profile, schedule)
        with alone(options):
            measured = explorer.measure(module, batch, steps=options.steps)
            by_run = explorer.residual_by_run(profile, schedule, explorer.measure_runs(module, batch))
        content = {
            "measured_times_ms": measured.times_ms.tolist(),
            "measured_bytes": measured.allocated_bytes.tolist(),
            "predicted_bytes": predicted.total_bytes.tolist(),
            "runs": [asdict(x) for x in by_run],
        }
        write(path, content, options)

    for name in options.models[:1]:
        share = next((x for x in SHARES if x >= 0.5 and schedule_path(name, x, options).exists()), None)
        if share is not None:
            path = options.folder / f"timeline-{name}-{share:.2f}.json"
            yield f"timeline of {name} at {share}", path, partial(make, name=name, share=share)


PIECES: dict[str, Callable[[Options], Iterator[Piece]]] = {
    "checks": checks,
    "layer": layer,
    "profiles": profiles,
    "schedules": schedules,
    "runs": runs,
    "rivals": rivals,
    "timeline": timeline,
}


if __name__ == "__main__":
    sys.exit(main())
