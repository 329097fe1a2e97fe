"""Schedules as files of their own, beside the executor: bits, bytes, and time of a step.

    python -m benchmarks.execution.exported [MODEL …] [--tier quick] [--json FILE]

Each model at three budgets between its smallest and the peak without recomputation. Steps of the file take turns with
those of two modules of ``apply`` with the same schedule, whose difference is chance.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import explorer
from benchmarks.cases import Sample, Size, Tier, add_tier, model_cases, model_names
from benchmarks.provenance import add_rows, record
from benchmarks.timing_in_turns import paired_ratio, times_in_turns_ms
from explorer.capture.batch import call_arguments
from explorer.execution.memory import watch_cpu_memory

SHARES = (0.75, 0.5, 0.25)
ROUNDS = {Tier.QUICK: 4, Tier.FULL: 8}


@dataclass(frozen=True)
class Row:
    """A schedule."""

    model: str
    budget_bytes: int
    lines: int
    same_bits: bool
    peak_bytes: int
    peak_of_file_bytes: int
    ratio: float
    error: float
    ratio_of_equals: float


def main() -> None:
    """Print a row for each, and write those of a model as JSON if asked, in the place of its earlier ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.SMALL))
    add_tier(parser)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    run = record(options)
    with tempfile.TemporaryDirectory() as folder:
        for case in model_cases(options.tier, Size.SMALL, options.models):
            rows = [*rows_of(case.name, case.sample(), Path(folder), rounds=ROUNDS[options.tier])]
            print(*rows, sep="\n", flush=True)
            if options.json:
                add_rows(options.json, [asdict(x) for x in rows], run, by="model")


def rows_of(name: str, sample: Sample, folder: Path, *, rounds: int) -> Iterator[Row]:
    """Of a model."""
    model, batch, loss = sample
    profile = explorer.profile(model, batch, loss=loss)
    peak = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    least = explorer.smallest_budget(profile).budget_bytes
    for share in SHARES:
        budget = int(least + share * (peak - least))
        schedule = explorer.solve(profile, budget=budget, time_limit=5, remember=False).schedule
        assert schedule is not None, "it is more than the smallest"
        path = explorer.export(model, schedule, batch, loss=loss, path=folder / f"{name}_{int(100 * share)}.py")
        ours, again = (explorer.apply(model, schedule, batch, loss=loss) for _ in range(2))
        steps = {
            "file": Stepping(loaded(path).scheduled(model), batch, loss),
            "ours": Stepping(ours, batch, loss),
            "again": Stepping(again, batch, loss),
        }
        results = {key: (x.watched(), x.kept) for key, x in steps.items()}
        same = all(torch.equal(x, y) for x, y in zip(results["file"][1], results["ours"][1], strict=True))
        times_ms = times_in_turns_ms(steps, rounds=rounds)
        ratio, error = paired_ratio(times_ms["file"], times_ms["ours"])
        equals, _ = paired_ratio(times_ms["again"], times_ms["ours"])
        lines = len(path.read_text(encoding="utf-8").splitlines())
        peaks = results["ours"][0], results["file"][0]
        yield Row(name, budget, lines, same, *peaks, ratio, error, equals)


class Stepping:
    """A training step of a module, the same each time."""

    def __init__(self, module: nn.Module, batch: Any, loss: Any) -> None:
        """Of a module, on a batch."""
        self.module = module
        self.arguments = call_arguments(batch, loss=loss)
        self.kept: list[torch.Tensor] = []

    def __call__(self) -> None:
        """Run it."""
        torch.manual_seed(0)
        args, kwargs = self.arguments
        value = self.module(*args, **kwargs)
        value.backward()
        self.kept = [value.detach(), *(x.grad for x in self.module.parameters() if x.grad is not None)]
        self.module.zero_grad()

    def watched(self) -> int:
        """Run it after another; the memory that it took beyond what was there."""
        self()
        self.kept = []
        return watch_cpu_memory(self).peak_bytes()


def loaded(path: Path) -> Any:
    """An exported file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
