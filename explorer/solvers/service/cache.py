"""Memory of past solves: answers on disk, by profile, options and budget, shared by all processes of a user.

One SQLite file in the user's cache folder; ``SCHEDULE_EXPLORER_CACHE`` names another folder, or is ``off``. Nothing
here ever fails a solve: what cannot be read is forgotten, and a file that is no database is made anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from explorer.device_profile import Profile
from explorer.graph import FAITHFUL
from explorer.schedule import Schedule
from explorer.solvers.monet.recalled import Answer
from explorer.solvers.options import Options
from explorer.storage import storage_format
from explorer.storage.cache_folder import cache_folder
from explorer.storage.conversion import to_plain

T = TypeVar("T")

_FILE = "solves.sqlite3"
_VERSION = 4  # of the table, and of what problems and bounds mean
_BUSY_S = 2.0
_SLACK = 1e-3  # a bound that is more than this above its schedule's time is damaged
_MOST = 2000  # answers; those go first that were found or improved longest ago
_LOG = logging.getLogger(__name__)
_TABLE = """
CREATE TABLE answers (
    problem TEXT, budget_bytes INTEGER, label TEXT, used REAL, spent_s REAL, bound_ms REAL, excluded INTEGER,
    time_ms REAL, peak_bytes INTEGER, schedule BLOB, PRIMARY KEY (problem, budget_bytes)
)
"""
_KEEP_THE_BETTER = """
INSERT INTO answers VALUES (:problem, :budget_bytes, :label, :used, :spent_s, :bound_ms, :excluded, :time_ms,
    :peak_bytes, :schedule)
ON CONFLICT DO UPDATE SET
    used = excluded.used, spent_s = max(spent_s, excluded.spent_s), bound_ms = max(bound_ms, excluded.bound_ms),
    excluded = max(answers.excluded, excluded.excluded),
    schedule = CASE WHEN ifnull(excluded.time_ms < time_ms, time_ms IS NULL) THEN excluded.schedule ELSE schedule END,
    peak_bytes =
        CASE WHEN ifnull(excluded.time_ms < time_ms, time_ms IS NULL) THEN excluded.peak_bytes ELSE peak_bytes END,
    time_ms = CASE WHEN ifnull(excluded.time_ms < time_ms, time_ms IS NULL) THEN excluded.time_ms ELSE time_ms END
"""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What is known of one problem, for people.

    Attributes:
        label: profile and options.
        answers: how many budgets.
        used: when last, in seconds since the epoch.
    """

    label: str
    answers: int
    used: float


def problem_key(profile: Profile, options: Options) -> str:
    """Equal for equal profiles and for options that allow the same schedules."""
    parts = [_VERSION, profile.digest, sorted(options.optimizations), options.exact, options.formulation]
    parts += [options.pins.pairs] if options.pins else []
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


class AnswerCache:
    """Answers by problem and budget.

    Args:
        folder: where; None: the user's cache folder, or what ``SCHEDULE_EXPLORER_CACHE`` says.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Touches no file yet."""
        self.folder = cache_folder() if folder is None else folder

    @property
    def file_bytes(self) -> int:
        """Size on disk."""
        with suppress(OSError):
            return 0 if self.folder is None else (self.folder / _FILE).stat().st_size
        return 0

    def recall(self, problem: str) -> tuple[Answer, ...]:
        """Everything known of a problem but the schedules, by increasing budget; what cannot be is forgotten."""

        def read(database: sqlite3.Connection) -> tuple[Answer, ...]:
            rows = database.execute(
                "SELECT rowid, budget_bytes, spent_s, bound_ms, excluded, time_ms, peak_bytes FROM answers"
                " WHERE problem = ? ORDER BY budget_bytes",
                (problem,),
            )
            found = {row[0]: _answer(*row[1:]) for row in rows}
            damaged = [(row,) for row, answer in found.items() if answer is None]
            if damaged:
                database.executemany("DELETE FROM answers WHERE rowid = ?", damaged)
            return tuple(answer for answer in found.values() if answer is not None)

        return self._with_database(read, ())

    def schedule(self, problem: str, budget_bytes: int) -> Schedule | None:
        """The best schedule known for a budget, as it was written, judged by nobody since.

        An answer whose schedule cannot be read is forgotten.
        """

        def read(database: sqlite3.Connection) -> Schedule | None:
            key = (problem, budget_bytes)
            row = database.execute(
                "SELECT schedule FROM answers WHERE problem = ? AND budget_bytes = ?", key
            ).fetchone()
            found = None if row is None else _unpacked(row[0])
            if found is None:
                database.execute("DELETE FROM answers WHERE problem = ? AND budget_bytes = ?", key)
            return found

        return self._with_database(read, None)

    def remember(self, problem: str, answer: Answer, schedule: Schedule | None, *, label: str) -> None:
        """Add an answer and its schedule, or what is better in them than in those known."""
        row = {
            "problem": problem,
            "budget_bytes": answer.budget_bytes,
            "label": label.encode(errors="replace").decode(),
            "used": time.time(),
            "spent_s": answer.spent_s,
            "bound_ms": answer.bound_ms,
            "excluded": answer.excluded,
            "time_ms": answer.time_ms,
            "peak_bytes": answer.peak_bytes,
            "schedule": None if schedule is None else _packed(schedule),
        }

        def write(database: sqlite3.Connection) -> None:
            database.execute(_KEEP_THE_BETTER, row)
            database.execute(
                "DELETE FROM answers WHERE rowid IN (SELECT rowid FROM answers ORDER BY used DESC LIMIT -1 OFFSET ?)",
                (_MOST,),
            )

        self._with_database(write, None)

    def contents(self) -> tuple[Remembered, ...]:
        """What is known, the problem used last first."""

        def read(database: sqlite3.Connection) -> tuple[Remembered, ...]:
            query = "SELECT label, count(*), max(used) FROM answers GROUP BY problem ORDER BY max(used) DESC"
            return tuple(Remembered(*row) for row in database.execute(query))

        return self._with_database(read, ())

    def clear(self) -> None:
        """Forget everything."""

        def write(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM answers")
            database.commit()
            database.execute("VACUUM")

        self._with_database(write, None)

    def _with_database(self, use: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Use the database, once more if it had to be made anew; ``otherwise`` where there is none to be had."""
        if self.folder is None:
            return otherwise
        file = self.folder / _FILE
        for _ in range(2):
            opened = _identity(file)
            try:
                with _database(file) as database:
                    return use(database)
            except (OSError, OverflowError, UnicodeEncodeError) as error:  # a budget beyond what SQLite can count
                _LOG.warning("the memory of past solves is not available: %s", error)
                return otherwise
            except (sqlite3.Error, ValueError, TypeError) as error:
                # Locked for long, a disk that is full or read-only. SQLITE_ERROR is a table that is not ours, no code
                # at all is text that is none; a value of another type, or bytes that are no text, are damaged too.
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
                if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
                    _LOG.warning("the memory of past solves is not available: %s", error)
                    return otherwise
                _LOG.warning("%s is damaged (%s); it is made anew", file, error)
                with suppress(OSError):
                    if _identity(file) == opened:  # else another process has made it anew since
                        file.unlink()
        return otherwise


def label_of(profile: Profile, options: Options) -> str:
    """A problem's name for people."""
    chosen = options.optimizations
    names = "all" if chosen == FAITHFUL else ", ".join(sorted(chosen)) or "none"
    exact = ", bit-exact" if options.exact else ""
    pinned = f", {len(options.pins)} pinned" if options.pins else ""
    return f"{profile.graph.identity.model} on {profile.device.label}: {names}{exact}{pinned}"


@contextmanager
def _database(file: Path) -> Iterator[sqlite3.Connection]:
    file.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(file, timeout=_BUSY_S)
    try:
        if _version(database) != _VERSION:
            _make(database)
        with database:
            yield database
    finally:
        database.close()


def _identity(file: Path) -> tuple[int, int] | None:
    """Tells a file from another of the same name; None where there is none."""
    with suppress(OSError):
        found = file.stat()
        return found.st_dev, found.st_ino
    return None


def _version(database: sqlite3.Connection) -> int:
    return database.execute("PRAGMA user_version").fetchone()[0]


def _make(database: sqlite3.Connection) -> None:
    """Make the table, unless another process has just done so: what that wrote since must not be dropped."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        if _version(database) != _VERSION:
            database.execute("DROP TABLE IF EXISTS answers")
            database.execute(_TABLE)
            database.execute(f"PRAGMA user_version = {_VERSION}")


def _packed(schedule: Schedule) -> bytes:
    return zlib.compress(json.dumps(to_plain(schedule), separators=(",", ":")).encode())


def _unpacked(packed: bytes | None) -> Schedule | None:
    """None for what is no schedule."""
    try:
        content = None if packed is None else json.loads(zlib.decompress(packed))
        return None if content is None else storage_format.from_content(content, Schedule, origin=_FILE)
    except (TypeError, ValueError, zlib.error):
        return None


def _answer(
    budget_bytes: int, spent_s: float, bound_ms: float, excluded: int, time_ms: float | None, peak_bytes: int | None
) -> Answer | None:
    """A row as an answer, None where it is none: SQLite has no checksums, and takes any type anywhere."""
    if (time_ms is None) != (peak_bytes is None):
        return None
    numbers = (budget_bytes, spent_s, bound_ms, excluded, time_ms or 0.0, peak_bytes or 0)
    if not all(isinstance(x, int | float) and math.isfinite(x) for x in numbers):
        return None
    if time_ms is not None and bound_ms > time_ms * (1 + _SLACK):
        return None
    return Answer(budget_bytes, spent_s, bound_ms, bool(excluded), time_ms, peak_bytes)
