"""Our choice of what ``torch.compile`` saves beside PyTorch's own, at equal measured peaks.

    python -m benchmarks.execution.compiled_choice [MODEL …] [--rounds 21] [--threads 1] [--peaks] [--json FILE]

One run for each model: the peaks of PyTorch's own ``activation_memory_budget`` at seven ratios; three budgets that one
of them keeps, from its smallest peak up, and one that none does; for each, our step within it, the quickest of
PyTorch's that fit, and the one that a user would choose by interpolation between its peak at 1 and its smallest. Peaks
are measured, PyTorch's without computing loops; ours are those of real steps, but with ``--peaks``. Steps take turns,
and what counts is the median ratio of neighbours: medians of 7 steps each swung by 4 % either way for one program.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

import explorer
from benchmarks.execution.beside_compile import WithLoss
from benchmarks.provenance import add_rows, record
from benchmarks.timing_in_turns import paired_ratio, times_in_turns_ms
from explorer.compiling.fitting import Planner
from explorer.compiling.running import rehearsed_peak_bytes
from explorer.execution.steps import step_of, unchanged
from explorer.models import model_spec
from explorer.models.gpt import GPT, GPTConfig
from explorer.models.unet import UNet
from explorer.models.vit import ViT
from explorer.torch_private import activation_budget

RATIOS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1, 0.0)
SHARES = (0.67, 0.33, 0.0)
"""Budgets, of the way from PyTorch's smallest peak at any of these to that at 1."""
BELOW = 0.95
"""Another budget, of its smallest peak."""
Made = tuple[nn.Module, Any]


class Classifier(nn.Module):
    """A network and the cross entropy of what it returns."""

    def __init__(self, model: nn.Module) -> None:
        """Of any network."""
        super().__init__()
        self.model = model

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return nn.functional.cross_entropy(self.model(source), target)


def resnet50() -> Made:
    """Small images."""
    spec = model_spec("resnet50")
    return WithLoss(spec), spec.batch(batch_size=16, image_size=64)


def unet() -> Made:
    """Encoder and decoder joined at each level; a quarter as wide, so that weights are not most of its memory."""
    spec = replace(model_spec("unet"), build=partial(UNet, width=16))
    return WithLoss(spec), spec.batch(batch_size=4, image_size=96)


def gpt() -> Made:
    """Four layers of width 128."""
    config = GPTConfig(layers=4, width=128, heads=4, context=128, vocabulary=1000)
    tokens = torch.randint(0, config.vocabulary, (8, config.context))
    return GPT(config), (tokens, tokens.roll(1, 1))


def vit() -> Made:
    """Four layers of width 128."""
    model = ViT(image_size=64, patch=8, width=128, layers=4, heads=4, classes=100)
    return Classifier(model), (torch.randn(16, 3, 64, 64), torch.randint(0, 100, (16,)))


MODELS: dict[str, Callable[[], Made]] = {x.__name__: x for x in (gpt, vit, unet, resnet50)}


@dataclass(frozen=True)
class Row:
    """One model at one budget; None: no step of that kind keeps it, or it was not timed.

    Attributes:
        case: model and budget: a share of the way from the smallest peak of PyTorch's, or ``"below"`` that.
        budget_bytes: asked for.
        plain_bytes: PyTorch's peak at a ratio of 1.
        least_bytes: its smallest at any of the ratios.
        predicted_bytes: ours, before anything was measured, …
        first_bytes: … and what that took.
        measured_bytes: ours.
        margin_bytes: that the tool took.
        ratio: PyTorch's quickest that fits.
        ratio_bytes: its measured peak.
        interpolated: the ratio that interpolation says.
        interpolated_bytes: its measured peak.
        ours_ms: our step.
        ratio_ms: PyTorch's quickest that fits.
        plain_ms: at a ratio of 1.
        time_ratio: ours / PyTorch's quickest that fits, the median over rounds, …
        time_ratio_error: … and its standard error.
    """

    case: str
    budget_bytes: int
    plain_bytes: int
    least_bytes: int
    predicted_bytes: int | None
    first_bytes: int | None
    measured_bytes: int | None
    margin_bytes: int | None
    ratio: float | None
    ratio_bytes: int | None
    interpolated: float
    interpolated_bytes: int
    ours_ms: float | None
    ratio_ms: float | None
    plain_ms: float | None
    time_ratio: float | None
    time_ratio_error: float | None


def main() -> None:
    """Print a row for each case, and put them among those of a JSON file if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=", ".join(MODELS))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each plan")
    parser.add_argument("--peaks", action="store_true", help="no times, and no compiler for C++")
    parser.add_argument("--json", type=Path, help="also put the rows here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = record(options)
    for name in options.models or MODELS:
        rows = measured(name, options)
        if options.json:
            add_rows(options.json, [asdict(row) for row in rows], run, by="case")


def measured(name: str, options: argparse.Namespace) -> list[Row]:
    """All budgets of one model."""
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    peaks = {x: peak_at(model, batch, x) for x in RATIOS}
    print(name, {x: f"{y / 2**20:.1f}" for x, y in peaks.items()}, "MiB by ratio", flush=True)
    planner = Planner.of(model, batch, loss=None, time_limit=options.seconds)
    least, most = min(peaks.values()), peaks[1.0]
    budgets = {f"{x:g}": least + int(x * (most - least)) for x in SHARES} | {"below": int(BELOW * least)}
    rows = []
    for label, budget_bytes in budgets.items():
        row = case(f"{name} {label}", planner, peaks, budget_bytes, options)
        show(row)
        rows.append(row)
    return rows


def case(label: str, planner: Planner, peaks: dict[float, int], budget_bytes: int, options: argparse.Namespace) -> Row:
    """One budget."""
    model, batch = planner.model, planner.batch
    try:
        ours = planner.within(budget_bytes, rehearse=options.peaks)
    except ValueError as error:
        print(label, error, flush=True)
        ours = None
    least = min(peaks, key=lambda x: peaks[x])
    share = (budget_bytes - peaks[least]) / max(1, peaks[1.0] - peaks[least])
    said = min(1.0, max(least, least + share * (1.0 - least)))
    fitting = [x for x in RATIOS if peaks[x] <= budget_bytes]
    rounds_ms: dict[str, list[float]] = {}
    best = max(fitting, default=None)
    if not options.peaks:
        rounds_ms, best = timed(model, batch, ours, fitting, rounds=options.rounds)
    times = {name: statistics.median(seen) for name, seen in rounds_ms.items()}
    both = ours is not None and f"{best}" in rounds_ms
    ratio, error = paired_ratio(rounds_ms["ours"], rounds_ms[f"{best}"]) if both else (None, None)
    return Row(
        case=label,
        budget_bytes=budget_bytes,
        plain_bytes=peaks[1.0],
        least_bytes=min(peaks.values()),
        predicted_bytes=None if ours is None else ours.rounds[0].predicted_peak_bytes,
        first_bytes=None if ours is None else ours.rounds[0].measured_peak_bytes,
        measured_bytes=None if ours is None else ours.measured_peak_bytes,
        margin_bytes=None if ours is None else ours.margin_bytes,
        ratio=best,
        ratio_bytes=None if best is None else peaks[best],
        interpolated=said,
        interpolated_bytes=peak_at(model, batch, said),
        ours_ms=times.get("ours"),
        ratio_ms=None if best is None else times.get(f"{best}"),
        plain_ms=times.get("1.0"),
        time_ratio=ratio,
        time_ratio_error=error,
    )


def timed(
    model: nn.Module, batch: Any, ours: explorer.Compiled | None, fitting: list[float], *, rounds: int
) -> tuple[dict[str, list[float]], float | None]:
    """Times of our step, PyTorch's at a ratio of 1, and the two largest that fit; the quicker of these."""
    steps: dict[str, Callable[[], None]] = {}
    some = sorted(fitting)[-2:]
    with unchanged(model):
        torch.compiler.reset()
        for ratio in dict.fromkeys((*some, 1.0)):
            with activation_budget(ratio):
                steps[f"{ratio}"] = step_of(compiled_at(model), batch)
                steps[f"{ratio}"]()
        if ours is not None:
            steps["ours"] = step_of(ours.module, batch)
            steps["ours"]()
        times = times_in_turns_ms(steps, rounds=rounds)
    torch.compiler.reset()
    return times, min(some, key=lambda x: statistics.median(times[f"{x}"]), default=None)


def compiled_at(model: nn.Module) -> nn.Module:
    """By PyTorch's own partitioner, at the ratio that is set."""
    module: Any = torch.compile(model, fullgraph=True, dynamic=False)
    return module


def peak_at(model: nn.Module, batch: Any, ratio: float) -> int:
    """PyTorch's measured peak at a ratio."""
    with activation_budget(ratio):
        return rehearsed_peak_bytes(compiled_at(model), batch)


def show(row: Row) -> None:
    """One line."""

    def mib(amount: int | None) -> str:
        return "none" if amount is None else f"{amount / 2**20:.1f}"

    over = "" if row.time_ratio is None else f"{row.time_ratio:.3f} ± {row.time_ratio_error:.3f} x"
    print(
        f"{row.case:>14}: budget {mib(row.budget_bytes)}, predicted {mib(row.predicted_bytes)}, ours "
        f"{mib(row.measured_bytes)} {row.ours_ms or 0:.1f} ms; ratio {row.ratio} {mib(row.ratio_bytes)} "
        f"{row.ratio_ms or 0:.1f} ms, {over}; interpolated {row.interpolated:.2f} {mib(row.interpolated_bytes)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
