"""What the guards of a scheduled step cost: the time of all checks at a call, as a share of the step's.

    python -m benchmarks.execution.guards [MODEL …] [--tier quick]

Medians, taken in turn within one run: steps; checks and look-ups, right after a step, when nothing of theirs is in the
processor's caches; and the look-ups that a step without checks needs too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

import explorer
from benchmarks.cases import Size, add_tier, model_cases, model_names
from benchmarks.provenance import record
from explorer.capture import capture
from explorer.capture.batch import call_arguments
from explorer.capture.traced import Source
from explorer.execution.scheduled import ScheduledModule
from explorer.execution.steps import step_of, unchanged

_HELD = (Source.PARAMETER, Source.BUFFER)


def main() -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.TINY))
    add_tier(parser)
    arguments = parser.parse_args()
    record(arguments)
    print(f"{'model':>14} {'modules':>8} {'step, ms':>9} {'all, ms':>9} {'look-ups, ms':>13} {'checks':>7}")
    for case in model_cases(arguments.tier, Size.TINY, arguments.models):
        show(case.name, *case.sample())
    network = nn.Sequential(*(x for _ in range(8) for x in (nn.Linear(256, 256), nn.ReLU())))
    show("perceptron", network, torch.randn(64, 256), None)


def show(name: str, model: nn.Module, batch: Any, loss: Any) -> None:
    """Time steps and checks in turn."""
    schedule = explorer.keep_all(capture(model, batch, loss=loss).graph)
    module = explorer.apply(model, schedule, batch, loss=loss, check=False)
    steps_ms, all_ms, lookups_ms = times_ms(module, batch, loss)
    modules, share = len(list(model.modules())), (all_ms - lookups_ms) / steps_ms
    print(f"{name:>14} {modules:>8} {steps_ms:>9.2f} {all_ms:>9.3f} {lookups_ms:>13.3f} {share:>7.2%}", flush=True)


def times_ms(module: ScheduledModule, batch: Any, loss: Any, *, total_s: float = 8.0) -> list[float]:
    """Medians of a whole step, of what is checked and looked up before it, and of looking up alone."""
    run = step_of(module, batch, loss=loss)
    plan = type(module).plans[0]
    binding = plan.bindings[module]
    args, kwargs = call_arguments(batch, loss=loss)
    tensors = [x.name.split(".", 1)[1] for x in plan.capture.traced.inputs if x.source in _HELD]
    held = [(*_holder(module, x), x.rpartition(".")[2]) for x in tensors]

    def lookups() -> None:
        tree_flatten((args, kwargs))
        for parameters, buffers, name in held:
            parameters[name] if name in parameters else buffers[name]

    parts = (lambda: binding.values(args, kwargs), lookups)
    times: list[list[float]] = [[], [], []]
    with unchanged(module):
        run()
        began = time.perf_counter()
        while time.perf_counter() - began < total_s:
            for part, seen in zip(parts, times[1:], strict=True):
                times[0].append(_seconds(run))
                seen.append(_seconds(part))
    return [statistics.median(x) * 1e3 for x in times]


def _holder(module: nn.Module, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    owner = module.get_submodule(path.rpartition(".")[0])
    return vars(owner)["_parameters"], vars(owner)["_buffers"]


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
