"""What a sweep found: a row for each cell, as values and as a Parquet file."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from explorer.arguments import a_path
from explorer.extras import needing
from explorer.solution import Status
from explorer.storage.conversion import WrongContentError, from_plain, to_plain
from explorer.storage.replacing import replacing
from explorer.summaries import Fact, Summarised

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Row:
    """A cell with its answer; what is not known is None.

    Attributes:
        key: of the cell; the schedule is in ``schedules/KEY.json.gz`` of the sweep's folder.
        model: as it was named.
        device: as it was named.
        batch_size: samples, as asked; None for the model's own.
        samples: in the step: as asked, or by the first dimension that most tensors of its batch share.
        precision: as asked.
        optimizer: as asked.
        budget: as asked.
        method: a name of ``METHODS``.
        time_limit: seconds, for this cell.
        status: of the solution; ``failed`` where there is none, and ``message`` says why.
        message: of the solution, or what failed.
        budget_bytes: what the budget comes to.
        plain_peak_bytes: of a step that keeps everything.
        plain_time_ms: of that step.
        peak_bytes: of the schedule.
        time_ms: of the schedule.
        samples_per_s: with the schedule.
        bound_ms: no schedule (as ``BoundScope.PROBLEM`` says) is faster.
        elapsed_s: of the solve.
        device_bytes: the memory of the device that a step may take, its context aside.
    """

    key: str
    model: str
    device: str
    batch_size: int | None
    samples: int | None
    precision: str | None
    optimizer: str | None
    budget: str
    method: str
    time_limit: float
    status: Status
    message: str = ""
    budget_bytes: int | None = None
    plain_peak_bytes: int | None = None
    plain_time_ms: float | None = None
    peak_bytes: int | None = None
    time_ms: float | None = None
    samples_per_s: float | None = None
    bound_ms: float | None = None
    elapsed_s: float | None = None
    device_bytes: int | None = None

    @property
    def fits_device(self) -> bool:
        """Is there a schedule, and does the device have the memory for it? A budget may be larger than that."""
        if self.peak_bytes is None or self.device_bytes is None:
            return False
        return self.peak_bytes <= self.device_bytes


@dataclass(frozen=True, repr=False)
class Sweep(Summarised):
    """Rows, one for each cell, in the order of the axes."""

    rows: tuple[Row, ...]

    def facts(self) -> Iterator[Fact]:
        """How many there are, and how they ended."""
        yield "cells", str(len(self.rows))
        for status in Status:
            if count := sum(x.status is status for x in self.rows):
                yield status.value, str(count)

    def save(self, path: str | Path) -> None:
        """Write all rows as a Parquet file, which pandas, polars, DuckDB and others read; replaces it in one step.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        with needing("writing Parquet"):
            import pyarrow as pa
            import pyarrow.parquet as pq
        rows = pa.Table.from_pylist([to_plain(x) for x in self.rows], schema=_schema())
        with replacing(a_path(path)) as fresh:
            pq.write_table(rows, fresh)


def load_sweep(path: str | Path) -> Sweep:
    """Read what ``Sweep.save`` wrote.

    Raises:
        MissingExtraError: pyarrow is not installed.
        ValueError: the file is missing or damaged, or its columns are not those of a sweep.
    """
    with needing("reading Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    source = a_path(path)
    try:
        plain = pq.read_table(source).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"cannot read {source}: {' '.join(str(error).split())}") from error
    try:
        return Sweep(tuple(from_plain(x, Row) for x in plain))
    except WrongContentError as error:
        raise ValueError(f"{source} is not the table of a sweep: {error}") from error


def _schema() -> pa.Schema:
    """A column's type does not depend on what is known in it."""
    import pyarrow as pa

    kinds: dict[Any, pa.DataType] = {int: pa.int64(), float: pa.float64()}
    hints = get_type_hints(Row)
    fields = []
    for field in dataclasses.fields(Row):
        inner = next((x for x in kinds if hints[field.name] in (x, x | None)), None)
        fields.append(pa.field(field.name, kinds.get(inner, pa.string())))
    return pa.schema(fields)
