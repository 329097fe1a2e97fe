"""``schedule-explorer sweep``: a sweep from a file, with progress, and what it comes to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table

from explorer.command_line.endings import complain
from explorer.command_line.outputs import check_folder
from explorer.command_line.tables import PlainConsole, progress_bar
from explorer.harmless import file_stem

if TYPE_CHECKING:
    from explorer.sweeping.table import Row, Sweep


def sweep(
    plan: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML: models, devices, batches, budgets … (docs/sweeps.md).")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder for what is found; by FILE's name if not given."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes here; one for each core if not given.")] = None,
    scheduler: Annotated[str | None, typer.Option(help="Of a Dask cluster elsewhere: tcp://10.0.0.1:8786.")] = None,
) -> None:
    """Estimate and solve for many models, devices, batches, budgets and methods; goes on where it was stopped."""
    import explorer
    from explorer.solution import Status
    from explorer.sweeping.reading import read_plan

    asked = read_plan(plan)
    folder = output or _folder_for(plan)
    check_folder(folder)
    with progress_bar() as progress:
        found = explorer.sweep(
            asked.pop("models"), folder=folder, workers=workers, scheduler=scheduler, progress=progress, **asked
        )
    PlainConsole().print(_summary(found))
    table = folder / "table.parquet"
    PlainConsole().print(f"{len(found.rows)} cells in {table}")
    if failed := [x for x in found.rows if x.status is Status.FAILED]:
        first = failed[0]
        said = f"{len(failed)} cells, the first: {first.model} on {first.device}: {first.message}"
        others = f" (the others: column message of {table})" if len(failed) > 1 else ""
        complain("failed", said + others)
        raise typer.Exit(1)


def _folder_for(plan: Path) -> Path:
    """In the working folder, by the plan's name."""
    folder = Path(file_stem(plan.stem))
    # A plan without an ending has that very name.
    return folder.with_name(f"{folder.name}-sweep") if folder.is_file() else folder


def _summary(found: Sweep) -> Table:
    """A row for each model and device."""
    from explorer.sweeping.answers import fastest, largest

    table = Table("model", "device", *(Column(x, justify="right") for x in ("largest batch", "samples/s", "at batch")))
    quick, large = fastest(found), largest(found)
    for at in dict.fromkeys((x.model, x.device) for x in found.rows):
        best, most = quick.get(at), large.get(at)
        if best is None or most is None:
            table.add_row(*at, _why_none([x for x in found.rows if (x.model, x.device) == at]))
        else:
            table.add_row(*at, str(most.samples), f"{best.samples_per_s:.1f}", str(best.samples))
    return table


def _why_none(rows: list[Row]) -> str:
    """Of a model and device without a schedule that fits: what ended without an answer says nothing of memory."""
    from explorer.solution import Status

    answers = Status.OPTIMAL, Status.FEASIBLE, Status.INFEASIBLE
    counts = Counter(x.status.value for x in rows if x.status not in answers)
    if len(rows) in counts.values():
        return rows[0].status.value
    fits = ["nothing fits"] if counts.total() < len(rows) else []
    return ", ".join([*fits, *(f"{count} of {len(rows)} {status}" for status, count in counts.items())])
