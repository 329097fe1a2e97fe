"""What the guards of a scheduled step cost: the time of all checks at a call, as a share of the step's.

Run: ``python benchmarks/guards.py``. Both are medians, taken in turn within one run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from torch import nn

import explorer
from explorer.capture import capture
from explorer.capture.batch import call_arguments, flatten
from explorer.execution.scheduled import ScheduledModule
from explorer.execution.steps import step_of, unchanged
from explorer.models import MODELS

_BATCHES: dict[str, dict[str, Any]] = {
    "resnet50": {"batch_size": 8, "image_size": 64},
    "mobilenet_v2": {"batch_size": 8, "image_size": 64},
    "unet": {"batch_size": 1, "image_size": 128},
    "gpt2": {"batch_size": 1, "sequence_length": 64},
}


def main() -> None:
    """Print a row for each model."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(f"{'model':>14} {'modules':>8} {'step, ms':>9} {'guards, ms':>11} {'share':>7}")
    for name, sizes in _BATCHES.items():
        spec = MODELS[name]
        show(name, spec.build().train(), spec.batch(**sizes), spec.loss)
    network = nn.Sequential(*(x for _ in range(8) for x in (nn.Linear(256, 256), nn.ReLU())))
    show("perceptron", network, torch.randn(64, 256), None)


def show(name: str, model: nn.Module, batch: Any, loss: Any) -> None:
    """Time steps and checks in turn."""
    schedule = explorer.keep_all(capture(model, batch, loss=loss).graph)
    module = explorer.apply(model, schedule, batch, loss=loss, check=False)
    steps_ms, guards_ms = times_ms(module, batch, loss)
    modules = len(list(model.modules()))
    print(f"{name:>14} {modules:>8} {steps_ms:>9.2f} {guards_ms:>11.3f} {guards_ms / steps_ms:>7.2%}", flush=True)


def times_ms(module: ScheduledModule, batch: Any, loss: Any, *, rounds: int = 15) -> tuple[float, float]:
    """Medians of a whole step, and of what is checked before it."""
    run = step_of(module, batch, loss=loss)
    binding = type(module).plan.bindings[module]
    args, kwargs = call_arguments(batch, loss=loss)
    steps, guards = [], []
    with unchanged(module):
        run()
        for _ in range(rounds):
            began = time.perf_counter()
            run()
            steps.append(time.perf_counter() - began)
            began = time.perf_counter()
            binding.values(flatten(args, kwargs))
            guards.append(time.perf_counter() - began)
    return statistics.median(steps) * 1e3, statistics.median(guards) * 1e3


if __name__ == "__main__":
    main()
