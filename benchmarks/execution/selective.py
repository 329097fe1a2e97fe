"""Schedules as selective checkpointing, beside what was simulated: how near PyTorch's coarser tool comes to a schedule.

    python -m benchmarks.execution.selective [MODEL …] [--tier quick] [--json FILE]

Each model with repeated blocks at three budgets between its smallest and the peak without recomputation.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType

import explorer
from benchmarks.cases import Sample, Size, add_tier, model_cases, model_names
from benchmarks.provenance import add_rows, record
from explorer.units import format_bytes

SHARES = (0.75, 0.5, 0.25)


@dataclass(frozen=True)
class Row:
    """A schedule.

    Attributes:
        schedule_bytes: peak of the schedule, simulated.
        simulated_bytes: of selective checkpointing after it.
        measured_bytes: of a real step of the exported file.
        schedule_ms: simulated.
        simulated_ms: of selective checkpointing.
        measured_ms: of the file's steps.
        plain_ms: of plain PyTorch's, measured.
    """

    model: str
    budget_bytes: int
    schedule_bytes: int
    simulated_bytes: int
    measured_bytes: int
    plain_bytes: int
    schedule_ms: float
    simulated_ms: float
    measured_ms: float
    plain_ms: float

    def __str__(self) -> str:
        """On one line."""
        error = self.measured_bytes / self.simulated_bytes - 1
        away = self.simulated_bytes / self.schedule_bytes - 1
        return (
            f"{self.model} within {format_bytes(self.budget_bytes)}: schedule {format_bytes(self.schedule_bytes)}, "
            f"selective {format_bytes(self.simulated_bytes)} ({away:+.1%}), measured "
            f"{format_bytes(self.measured_bytes)} ({error:+.2%} of that), plain {format_bytes(self.plain_bytes)}; step "
            f"{self.schedule_ms:.0f}, {self.simulated_ms:.0f}, measured {self.measured_ms:.0f}, plain "
            f"{self.plain_ms:.0f} ms"
        )


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
            try:
                rows = [*rows_of(case.name, case.sample(), Path(folder))]
            except ValueError as error:
                print(f"{case.name}: {error}", flush=True)
                continue
            print(*rows, sep="\n", flush=True)
            if options.json:
                add_rows(options.json, [asdict(x) for x in rows], run, by="model")


def rows_of(name: str, sample: Sample, folder: Path) -> Iterator[Row]:
    """Of a model."""
    model, batch, loss = sample
    profile = explorer.profile(model, batch, loss=loss)
    peak = explorer.simulate(profile, explorer.keep_all(profile.graph)).peak_bytes
    least = explorer.smallest_budget(profile).budget_bytes
    plain = explorer.measure(model, batch, loss=loss)
    for share in SHARES:
        budget = int(least + share * (peak - least))
        schedule = explorer.solve(profile, budget=budget, steps=4).schedule
        assert schedule is not None, "it is more than the smallest"
        path = folder / f"{name}_{int(100 * share)}.py"
        explorer.export(model, schedule, batch, loss=loss, form="selective", profile=profile, path=path)
        planned = explorer.simulate(profile, schedule)
        simulated = explorer.simulate(profile, explorer.selective_schedule(model, schedule, batch, loss=loss))
        measured = explorer.measure(loaded(path).scheduled(copy.deepcopy(model)), batch, loss=loss)
        yield Row(
            name,
            budget,
            planned.peak_bytes,
            simulated.peak_bytes,
            measured.peak_bytes,
            plain.peak_bytes,
            planned.time_ms,
            simulated.time_ms,
            measured.step_time_ms,
            plain.step_time_ms,
        )


def loaded(path: Path) -> ModuleType:
    """The file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "it was just written"  # noqa: PT018 - of one thing
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main()
