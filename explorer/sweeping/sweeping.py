"""A sweep as tasks on Dask: steps are estimated and cells answered wherever there is a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from logging import CRITICAL
from pathlib import Path
from typing import TYPE_CHECKING, Any

from explorer.arguments import a_callback, a_path, a_whole_number
from explorer.extras import check_installed, needing
from explorer.solution import Status
from explorer.sweeping.cells import Cell, Step, cells_of
from explorer.sweeping.folder import Folder
from explorer.sweeping.table import Sweep
from explorer.sweeping.tasks import Answer, answered, estimated, row_of
from explorer.units import shown

if TYPE_CHECKING:
    from distributed import Client, Future


def sweep(  # noqa: PLR0913 - one for each axis, and for each thing that users may want to say
    models: Iterable[str],
    *,
    devices: Iterable[str],
    folder: str | Path,
    batches: Iterable[int | None] = (None,),
    budgets: Iterable[int | str] = ("device",),
    methods: Iterable[str] = ("monet",),
    precision: str | None = None,
    optimizer: str | None = None,
    time_limit: float = 10.0,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Sweep:
    """Estimate every model on every device in every batch, and solve for every budget by every method.

    Each answer is on the disk as soon as it is there: a sweep that was stopped or killed goes on where it was when it
    is called again with the same folder, also with more on its axes. What a worker had begun when it died is done by
    another.

    Args:
        models: names of bundled models, or ``"package.module:function"`` of yours, which returns (model, batch) or
            (model, batch, loss) and takes ``batch_size`` where there are ``batches``.
        devices: names of the table of devices, or YAML files (docs/devices.md).
        folder: for answers, schedules and the table, ``table.parquet``: of this call's cells, and then of those that
            other calls with this folder found, but for what has changed since.
        batches: samples; None is each model's own.
        budgets: as for ``solve``; ``"device"`` is the device's memory less 1 GiB for its context.
        methods: names of ``explorer.solvers.methods.table.METHODS``.
        precision: as for ``estimate``, of all.
        optimizer: a name, as for ``estimate``, of all.
        time_limit: seconds for each cell.
        workers: processes on this machine; as many as it has cores if not given.
        scheduler: the address of a Dask scheduler (``"tcp://10.0.0.1:8786"``), whose workers have this package with
            ``solve`` and the modules of your functions; a cluster on this machine if not given, for which a script
            needs the usual ``if __name__ == "__main__":``.
        progress: called with the cells done, how many there are, and what the last one was.

    Returns:
        A row for each cell, in the order of the axes; a cell that failed has a row that says why.

    Raises:
        ValueError: an argument is not allowed, or no scheduler answers there.
        MissingExtraError: Dask or pyarrow is not installed.
        ConnectionError: the scheduler went away; what was answered is kept.
    """
    for package in ("distributed", "pyarrow"):
        check_installed(package, feature="sweep")
    cells = cells_of(
        models=models,
        devices=devices,
        batches=batches,
        budgets=budgets,
        methods=methods,
        precision=precision,
        optimizer=optimizer,
        time_limit=time_limit,
    )
    a_callback(progress, "progress")
    if workers is not None:
        a_whole_number(workers, "workers", least=1)
    if scheduler is not None and (not isinstance(scheduler, str) or not scheduler or workers is not None):
        raise ValueError(f"scheduler is {shown(scheduler)}; it must be an address, and then workers are its own")
    kept = Folder(a_path(folder))
    keys = {x.key for x in cells}
    rows = kept.known(among=keys)
    missing = [x for x in cells if x.key not in rows]
    done = len(cells) - len(missing)
    if missing:
        with _client(workers, scheduler) as client:
            for cell, answer in _answers(client, missing):
                kept.keep(answer)
                rows[cell.key] = answer.row
                done += 1
                if progress is not None:
                    progress(done, len(cells), str(cell))
    found = Sweep(tuple(rows[x.key] for x in cells))
    Sweep((*found.rows, *kept.others(keys))).save(kept.table)
    return found


@contextmanager
def _client(workers: int | None, scheduler: str | None) -> Iterator[Client]:
    with needing("sweep"):
        from distributed import Client, LocalCluster
    if scheduler is None:
        # A thread each: solvers have threads of their own. What Dask warns of is that solves are long; what it calls
        # errors, workers that died and cells that failed, is done again or told in a row. Two sweeps may run at a time.
        local = {"n_workers": workers, "threads_per_worker": 1, "silence_logs": CRITICAL}
        local["dashboard_address"] = "127.0.0.1:0"
        with LocalCluster(**local) as cluster, Client(cluster) as client:
            yield client
        return
    try:
        client = Client(scheduler, timeout="20 s")
    except (OSError, ValueError) as error:
        raise ValueError(f"no Dask scheduler answers at {shown(scheduler)}: {error}") from error
    with client:
        yield client


def _answers(client: Client, cells: list[Cell]) -> Iterator[tuple[Cell, Answer]]:
    """As they come."""
    from distributed import as_completed

    profiles: dict[Step, Future] = {}
    asked: dict[Future, Cell] = {}
    for cell in cells:
        if cell.step not in profiles:
            profiles[cell.step] = client.submit(estimated, cell.step, key=f"estimated-{cell.step.key}")
        asked[client.submit(answered, profiles[cell.step], cell, key=f"answered-{cell.key}")] = cell
    profiles.clear()  # the scheduler keeps those that cells wait for, and no others
    for future in as_completed(list(asked)):
        cell = asked.pop(future)
        yield cell, _answer(future, cell)


def _answer(future: Future, cell: Cell) -> Answer:
    """What became of a cell; one that fails does not take the others with it."""
    if future.status == "cancelled":
        raise ConnectionError("the scheduler went away; the same call goes on with what is not answered yet")
    error: Any = future.exception()
    if error is not None:
        return Answer(row_of(cell, Status.FAILED, _reason(error, cell)))
    return future.result()


def _reason(error: BaseException, cell: Cell) -> str:
    from distributed import KilledWorker

    if isinstance(error, KilledWorker):  # whose own words name a task
        return (
            f"each worker that was given {cell.step.model} died of it, until it was given up: most likely the memory "
            "of their machine does not do for it; fewer workers at a time have more each"
        )
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
