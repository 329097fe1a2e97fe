"""Under which circumstances figures were measured: printed by every benchmark, and part of every file of results.

A file of results is ``{"provenance": [...], "results": ...}``, with the ``"device"`` of a GPU's. Results that were made
part by part (a model or a profile at a time) have an entry for each run, with the parts that it made; an entry without
parts stands for all.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_CODE = ("explorer", "widgets", "benchmarks", "tests", "pyproject.toml", ":!benchmarks/results")
"""What a tree that counts as clean has as it was committed."""
_PACKAGES = ("torch", "pyscipopt", "numba")


@dataclass(frozen=True)
class Provenance:
    """One run of a benchmark; nothing in it names the machine, its user or a folder.

    Attributes:
        benchmark: its module.
        commit: which code; empty where there is no repository to ask.
        clean: was the code as committed? None where nobody can tell.
        date: when the run began, UTC.
        seeds: of everything random that the benchmark draws; its solvers' as well, where it sets them.
        options: what was asked for on the command line, paths by their last name.
        versions: of Python, SCIP and packages, those that are installed.
        cores: that the process may use.
        processor: its model.
    """

    benchmark: str
    commit: str
    clean: bool | None
    date: str
    seeds: tuple[int, ...]
    options: dict[str, Any]
    versions: dict[str, str]
    cores: int
    processor: str

    @property
    def line(self) -> str:
        """All of it, for people."""
        tree = {True: "clean", False: "changed since", None: "unknown tree"}[self.clean]
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        given = {name: _shown(value) for name, value in self.options.items() if value not in (None, [])}
        options = ", ".join(f"{name} {value}" for name, value in given.items())
        return (
            f"{self.benchmark} at {self.commit[:10] or 'an unknown commit'} ({tree}), {self.date}; seeds "
            f"{_shown(self.seeds) or 'none'}; {versions}; {self.cores} cores of {self.processor}; "
            f"{options or 'no options'}"
        )


def record(arguments: argparse.Namespace, *, seeds: Iterable[int] = (0,)) -> Provenance:
    """Print a line that says what is run on what; the same for a file of results.

    Args:
        arguments: of the command line, as parsed.
        seeds: what the benchmark sets; empty if nothing that it does is random.
    """
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--", *_CODE)
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    made = Provenance(
        benchmark=(spec.name if spec else Path(sys.argv[0]).stem).removesuffix(".__main__"),
        commit=commit or "",
        clean=None if changes is None else changes == "",
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        seeds=tuple(seeds),
        options={name: _harmless(value) for name, value in vars(arguments).items()},
        versions=_versions(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        processor=_processor(),
    )
    print(made.line, flush=True)
    return made


def write_results(path: Path, results: Any, run: Provenance, *, parts: Iterable[str] | None = None) -> None:
    """Write results as JSON, with where they come from.

    Args:
        path: of the file.
        results: all that it shall have, those of earlier runs included.
        run: that made them.
        parts: names of those that this run made, the others being the file's; None for all.
    """
    entries: list[dict[str, Any]] = []
    mine = asdict(run)
    if parts is not None:
        mine["parts"] = sorted(set(parts))
        for entry in _stored(path)["provenance"]:
            left = [x for x in entry.get("parts", ()) if x not in mine["parts"]]
            if "parts" not in entry or left == entry["parts"]:
                entries.append(entry)
            elif left:
                entries.append(entry | {"parts": left})
    content = {"provenance": [*entries, mine], "results": results}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def add_rows(path: Path, rows: Sequence[Mapping[str, Any]], run: Provenance, *, by: str) -> None:
    """Write rows that take the place of those in the file with the same ``by``; the others stay, before them."""
    mine = {x[by] for x in rows}
    kept = [x for x in _stored(path)["results"] if x[by] not in mine]
    write_results(path, [*kept, *rows], run, parts=mine)


def read_results(path: Path) -> Any:
    """What ``write_results`` was given; ValueError where the file is not of that form."""
    return _stored(path)["results"]


def _stored(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"provenance": [], "results": []}
    content = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.keys() - {"device"} != {"provenance", "results"}:
        raise ValueError(f"{path.name} is no file of results; it needs 'provenance' and 'results', or 'device' too")
    return content


def _git(*command: str) -> str | None:
    """What it says; None without git or a repository."""
    try:
        said = subprocess.run(["git", *command], cwd=_ROOT, check=True, capture_output=True, text=True)  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


def _harmless(value: Any) -> Any:
    """An option as JSON has it, without the folders of paths."""
    if isinstance(value, Mapping):
        return {key: _harmless(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(x) for x in value]
    if isinstance(value, Path) or (isinstance(value, str) and os.sep in value):
        return Path(value).name
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "pyscipopt" in found:
        from pyscipopt import Model

        scip = Model()
        found["SCIP"] = f"{scip.getMajorVersion()}.{scip.getMinorVersion()}.{scip.getTechVersion()}"
    return found


def _processor() -> str:
    """The model where the system tells it, the architecture elsewhere; torch is not loaded for it."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
