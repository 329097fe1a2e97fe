"""What is known of a sweep between processes: a line for each answer, and the schedules."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

from explorer.schedule import read_schedule
from explorer.solution import Status
from explorer.storage.conversion import WrongContentError, from_plain, to_plain
from explorer.sweeping.cells import cells_of
from explorer.sweeping.table import Row
from explorer.sweeping.tasks import Answer


class Folder:
    """The folder of a sweep. A process that is killed while it writes costs the line that it was writing, no more."""

    def __init__(self, path: Path) -> None:
        """Make it if it is not there.

        Raises:
            ValueError: it cannot be made.
        """
        self.table = path / "table.parquet"
        self._answers = path / "answers.jsonl"
        self._schedules = path / "schedules"
        try:
            self._schedules.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"folder {str(path)!r} cannot be made: {error.strerror}") from error

    def known(self, among: Collection[str] | None = None) -> dict[str, Row]:
        """The rows that need not be found again, by key.

        All but failures, which may end otherwise the next time, and rows whose schedule is gone or damaged.

        Args:
            among: keys of those that are asked for; None: all.
        """
        found = {key: row for key, row in self._answered().items() if among is None or key in among}
        return {key: row for key, row in found.items() if row.status is not Status.FAILED and self._is_whole(row)}

    def others(self, keys: Collection[str]) -> list[Row]:
        """Rows that other calls found, but for what has changed since: the last of each cell, failures too."""
        return [row for key, row in self._answered().items() if key not in keys and _is_asked_so_now(row)]

    def _answered(self) -> dict[str, Row]:
        """The last row of each cell, in the order in which cells were answered first."""
        found: dict[str, Row] = {}
        lines = self._answers.read_bytes().splitlines() if self._answers.exists() else ()
        for line in lines:
            try:
                row = from_plain(json.loads(line), Row)
            except (ValueError, RecursionError, WrongContentError):  # cut off, damaged, or of another version
                continue
            found[row.key] = row
        return found

    def _is_whole(self, row: Row) -> bool:
        """Can the row's schedule be read, if it has one?"""
        try:
            return row.peak_bytes is None or bool(read_schedule(self._schedule_of(row)).steps)
        except ValueError:
            return False

    def keep(self, answer: Answer) -> None:
        """An answer, on the disk when this returns."""
        if answer.schedule is not None:
            answer.schedule.save(self._schedule_of(answer.row))
        with self._answers.open("a+b") as file:
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # of a process that was killed
                    file.write(b"\n")
            file.write(json.dumps(to_plain(answer.row), separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _schedule_of(self, row: Row) -> Path:
        return self._schedules / f"{row.key}.json.gz"


def _is_asked_so_now(row: Row) -> bool:
    """Would its cell have the same key today: of the same code, figures and versions?"""
    try:
        cells = cells_of(
            models=[row.model],
            devices=[row.device],
            batches=[row.batch_size],
            budgets=[row.budget],
            methods=[row.method],
            precision=row.precision,
            optimizer=row.optimizer,
            time_limit=row.time_limit,
        )
    except ValueError:  # its device's file is gone, say
        return False
    return [x.key for x in cells] == [row.key]
