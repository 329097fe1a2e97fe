"""What compiled steps are predicted to take, and what they take, over the architectures of the zoo.

    python -m benchmarks.execution.compiled_peaks [ARCHITECTURE …] [--jobs 2] [--seconds 2] [--json FILE]

Each step is compiled with what PyTorch's minimum cut saves, with nothing saved that can be computed again, and for a
budget halfway between what these two take. Peaks are measured in steps whose loops compute nothing; each architecture
has a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks.provenance import add_rows, record
from benchmarks.zoo import ZOO
from explorer.compiling.choosing import tagged
from explorer.compiling.fitting import Planner
from explorer.compiling.partitioning import Step, compiled
from explorer.compiling.predicting import predicted_peak_bytes
from explorer.compiling.running import rehearsed_peak_bytes

_SAID = 400


@dataclass(frozen=True)
class Row:
    """An architecture; None: there is no such step.

    Attributes:
        case: its name in the zoo.
        refusal: why there is no compiled step of it.
        own: do convolutions run in its own layout?
        saved_predicted_bytes: with what PyTorch's minimum cut saves, …
        saved_bytes: … and measured.
        bare_predicted_bytes: with nothing saved that can be computed again, …
        bare_bytes: … and measured.
        budget_bytes: halfway between the two that were measured.
        first_predicted_bytes: of the first step planned for it, …
        first_bytes: … and measured.
        kept_bytes: of the step that was found in the end, measured.
        rounds: that it took.
    """

    case: str
    refusal: str | None = None
    own: bool = False
    saved_predicted_bytes: int | None = None
    saved_bytes: int | None = None
    bare_predicted_bytes: int | None = None
    bare_bytes: int | None = None
    budget_bytes: int | None = None
    first_predicted_bytes: int | None = None
    first_bytes: int | None = None
    kept_bytes: int | None = None
    rounds: int = 0


def main() -> None:
    """Print a row for each architecture, and put them among those of a JSON file if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*", help="those of benchmarks.zoo (default: all that it captures)")
    parser.add_argument("--jobs", type=int, default=2, help="architectures at a time")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each plan")
    parser.add_argument("--json", type=Path, help="also put the rows here")
    options = parser.parse_args()
    run = record(options)
    names = options.architectures or [x.name for x in ZOO.values() if not x.refused]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context, max_tasks_per_child=1) as pool:
        running = {pool.submit(measured, name, seconds=options.seconds): name for name in names}
        for done in as_completed(running):
            if (error := done.exception()) is not None:
                print(running[done], "FAILED", repr(error)[:_SAID], flush=True)
                continue
            row = done.result()
            print(row, flush=True)
            if options.json:
                add_rows(options.json, [asdict(row)], run, by="case")


def measured(name: str, *, seconds: float) -> Row:
    """One architecture."""
    torch.set_num_threads(1)
    specimen = ZOO[name]
    with specimen.precision():
        try:
            planner = Planner.of(specimen.model(), specimen.sample(0), loss=specimen.loss, time_limit=seconds)
        except ValueError as error:
            return Row(name, refusal=str(error))
        saved_predicted, saved = _taken(planner, planner.traced.built.saved)
        bare_predicted, bare = _taken(planner, frozenset())
        row = Row(name, None, _own(planner), saved_predicted, saved, bare_predicted, bare)
        return _planned(row, planner, (saved + bare) // 2) if bare < saved else row


def _own(planner: Planner) -> bool:
    return planner.traced.is_own_layout(planner.profile.graph.identity)


def _taken(planner: Planner, names: frozenset[str]) -> tuple[int, int]:
    """Predicted and measured peak with these saved, and what cannot be computed again."""
    choice = tagged(planner.traced, names, own_layout=_own(planner))
    module = planner.model if planner.loss is None else Step(planner.model, planner.loss)
    predicted_bytes = predicted_peak_bytes(planner.traced, choice, planner.profile)
    return predicted_bytes, rehearsed_peak_bytes(compiled(module, choice), planner.batch)


def _planned(row: Row, planner: Planner, budget_bytes: int) -> Row:
    try:
        found = planner.within(budget_bytes, rehearse=True)
    except ValueError:
        return replace(row, budget_bytes=budget_bytes)
    return replace(
        row,
        budget_bytes=budget_bytes,
        first_predicted_bytes=found.rounds[0].predicted_peak_bytes,
        first_bytes=found.rounds[0].measured_peak_bytes,
        kept_bytes=found.measured_peak_bytes,
        rounds=len(found.rounds),
    )


if __name__ == "__main__":
    main()
