"""The full results that ``notebooks/papers/`` shows: what takes minutes, made once and stored.

    python -m benchmarks.papers.full JOB … [--zoo FOLDER] [--only NAME …]

Each job writes ``benchmarks/results/papers/JOB.json``; rows of a part (a network) take the place of its earlier ones.
``--zoo`` is the folder of MONeT's published instances, which are not part of this package.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from benchmarks.papers import jobs
from benchmarks.papers.exhibit import STORED
from benchmarks.provenance import add_rows, record

JOBS: dict[str, Callable[[Path | None, tuple[str, ...]], Iterator[dict[str, Any]]]] = {
    "ablation": jobs.ablation,
    "budgets": jobs.budgets,
    "solve_times": jobs.solve_times,
    "gist": jobs.gist,
    "layer": jobs.layer,
    "largest_batch": jobs.largest_batch,
    "chains": jobs.chains,
    "fragmentation": jobs.fragmentation,
    "program_counts": jobs.program_counts,
}


def main() -> None:
    """Do the jobs, one after the other; what is done is stored at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="+", choices=JOBS, help=", ".join(JOBS))
    parser.add_argument("--zoo", type=Path, help="with the published instances")
    parser.add_argument("--only", nargs="+", default=[], help="parts: networks")
    arguments = parser.parse_args()
    run = record(arguments, seeds=(0,))
    STORED.mkdir(exist_ok=True)
    for name in arguments.jobs:
        for part in JOBS[name](arguments.zoo, tuple(arguments.only)):
            add_rows(STORED / f"{name}.json", [part], run, by="part")
            print(name, part["part"], len(part["rows"]), "rows", flush=True)


if __name__ == "__main__":
    main()
