"""How near predicted step times are to measured ones, relative to plain PyTorch in the same run.

Run: ``python benchmarks/predicted_times.py [MODEL …] [--json FILE]``. Many short operators (an EfficientNet of small
images) are the hard case: each takes as long as it does because of what stands around it. Plain steps and those of the
schedules take turns.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from turns import median_times_ms

import explorer
from explorer.execution.steps import step_of, unchanged
from explorer.models import MODELS

BATCHES = {"efficientnet": (4, 64), "mobilenet_v2": (8, 64), "resnet50": (8, 64)}
KINDS = (("none", 0.8), ("all", 0.9), ("all", 0.7))
ROUNDS = 15


class Squeeze(nn.Module):
    """Scales channels by what their means say."""

    def __init__(self, width: int, inner: int) -> None:
        """Of ``width`` channels, by way of ``inner``."""
        super().__init__()
        self.inner = nn.Conv2d(width, inner, 1)
        self.outer = nn.Conv2d(inner, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        means = F.silu(self.inner(F.adaptive_avg_pool2d(x, 1)), inplace=True)
        return x * torch.sigmoid(self.outer(means))


class Block(nn.Module):
    """An inverted bottleneck: expand, depthwise convolution, squeeze, project."""

    def __init__(self, width: int, out: int, *, expand: int, kernel: int, stride: int) -> None:
        """From ``width`` to ``out`` channels, by way of ``expand`` times as many."""
        super().__init__()
        inner = width * expand
        first = _normed(nn.Conv2d(width, inner, 1, bias=False), inner) if expand > 1 else []
        depthwise = nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False)
        last = [Squeeze(inner, max(1, width // 4)), nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)]
        self.body = nn.Sequential(*first, *_normed(depthwise, inner), *last)
        self.skips = width == out and stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As the class says."""
        return x + self.body(x) if self.skips else self.body(x)


def _normed(convolution: nn.Conv2d, width: int) -> list[nn.Module]:
    return [convolution, nn.BatchNorm2d(width), nn.SiLU(inplace=True)]


def efficientnet() -> nn.Module:
    """EfficientNet-B0 at half its width."""
    stages = ((1, 8, 1, 1, 3), (6, 8, 2, 2, 3), (6, 16, 2, 2, 5), (6, 40, 3, 2, 3), (6, 56, 3, 1, 5), (6, 96, 4, 2, 5))
    layers = _normed(nn.Conv2d(3, 16, 3, 2, 1, bias=False), 16)
    width = 16
    for expand, out, count, stride, kernel in (*stages, (6, 160, 1, 1, 3)):
        for number in range(count):
            layers.append(Block(width, out, expand=expand, kernel=kernel, stride=stride if number == 0 else 1))
            width = out
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(640, 100)]
    return nn.Sequential(*layers, *_normed(nn.Conv2d(width, 640, 1, bias=False), 640), *head)


@dataclass(frozen=True)
class Row:
    """One model and schedule.

    Attributes:
        model: its name.
        schedule: ``"keep-all"``, or optimizations and the budget's share of PyTorch's peak.
        predicted: step time over plain PyTorch's, by the profile.
        measured: the same of real steps that took turns.
        error: the first over the second, less 1.
    """

    model: str
    schedule: str
    predicted: float
    measured: float
    error: float


def main() -> None:
    """Print a table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=list(BATCHES))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    report: dict[str, Any] = {"threads": 1, "profiling_cpu_s": {}, "rows": []}
    for name in options.models:
        torch.manual_seed(0)
        size, side = BATCHES[name]
        batch: Any = (torch.randn(size, 3, side, side), torch.randint(0, 100, (size,)))
        model = efficientnet() if name == "efficientnet" else MODELS[name].build()
        began = time.process_time()
        profile = explorer.profile(model.train(), batch, loss=F.cross_entropy)
        report["profiling_cpu_s"][name] = round(time.process_time() - began, 1)
        report["rows"] += [asdict(row) for row in rows(name, model, batch, profile)]
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def rows(name: str, model: nn.Module, batch: Any, profile: explorer.Profile) -> list[Row]:
    """Predicted and measured, for keeping everything and for a few budgets."""
    assert profile.eager_time_ms is not None
    assert profile.eager_peak_bytes is not None
    schedules = {"keep-all": explorer.keep_all(profile.graph)}
    for optimizations, share in KINDS:
        budget = round(share * profile.eager_peak_bytes)
        solution = explorer.solve(profile, budget=budget, optimizations=optimizations, time_limit=5)
        if solution.schedule is not None:
            schedules[f"{optimizations} {share:.0%}"] = solution.schedule
    runs = {"plain": step_of(model, batch, loss=F.cross_entropy)}
    for label, schedule in schedules.items():
        runs[label] = step_of(explorer.apply(model, schedule, batch, loss=F.cross_entropy), batch)
    with unchanged(model):
        median_times_ms(runs, rounds=2)
        times_ms = median_times_ms(runs, rounds=ROUNDS)
    found = []
    for label, schedule in schedules.items():
        predicted = explorer.simulate(profile, schedule).time_ms / profile.eager_time_ms
        measured = times_ms[label] / times_ms["plain"]
        found.append(Row(name, label, round(predicted, 3), round(measured, 3), round(predicted / measured - 1, 3)))
        print(f"{name:14} {label:10} predicted {predicted:.2f}  measured {measured:.2f}  error {found[-1].error:+.1%}")
    return found


if __name__ == "__main__":
    main()
