"""Sizes of the integer programs (MONeT, Table 7): the paper's formulation and ours, before and after SCIP's presolve.

    python benchmarks/program_sizes.py FOLDER --only vgg16-none:8 unet-all:8

Nothing is solved. Published are the rows and columns that the authors report. Stating the paper's formulation for
ResNet-50 takes minutes and gigabytes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from explorer import load_profile
from explorer.solution import Statistics
from explorer.solvers.milp import Milp
from explorer.solvers.monet import grouped, paper
from explorer.solvers.options import Options, parse_optimizations
from explorer.solvers.scip import presolved_statistics

DEFAULT = ("vgg16-none:8", "vgg16-all:8", "unet-none:8", "unet-all:8")
FORMULATIONS = {"paper": paper.build, "grouped": grouped.build}


class _Model(Protocol):
    @property
    def milp(self) -> Milp: ...
    @property
    def statistics(self) -> Statistics: ...


def main() -> None:
    """Print a row per instance, budget and formulation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the published instances")
    parser.add_argument("--only", nargs="+", default=DEFAULT, metavar="NAME:GIB")
    parser.add_argument("--json", type=Path, help="also write the sizes here")
    arguments = parser.parse_args()
    sizes = ("rows", "columns", "nonzeros")
    table = Table("instance", "GiB", "formulation", *sizes, *(f"{x} presolved" for x in sizes), "stated in")
    rows = [row for name in arguments.only for row in measure(arguments.folder, *name.split(":"))]
    for row in rows:
        names = (row["instance"], row["gib"], row["formulation"])
        table.add_row(*names, *_cells(row["before"]), *_cells(row["after"]), f"{row['stated_s']:.1f} s")
    Console(width=160).print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


def measure(folder: Path, instance: str, gib: str) -> Iterator[dict[str, Any]]:
    """State and presolve both programs of an instance at one budget, after what is published of it."""
    document = json.loads((folder / f"{instance}.json").read_text(encoding="utf-8"))
    reference = next(x for x in document["references"] if x["budget_gib"] == float(gib))
    published = {"rows": reference.get("rows"), "columns": reference.get("columns"), "nonzeros": None}
    name = {"instance": instance, "gib": gib}
    yield name | {"formulation": "published", "before": published, "after": {}, "stated_s": 0.0}
    options = Options(optimizations=parse_optimizations(document["optimizations"]))
    problem = options.problem(load_profile(folder / f"{instance}.json"))
    for formulation, build in FORMULATIONS.items():
        began = time.perf_counter()
        model: _Model = build(problem, round(float(gib) * 2**30))
        stated_s = time.perf_counter() - began
        before = model.statistics
        after = presolved_statistics(model.milp, before.groups)
        sizes = {"before": asdict(before), "after": asdict(after)}
        yield name | {"formulation": formulation, "stated_s": stated_s} | sizes


def _cells(sizes: dict[str, int | None]) -> tuple[str, ...]:
    counts = (sizes.get(x) for x in ("rows", "columns", "nonzeros"))
    return tuple("" if count is None else f"{count:,}" for count in counts)


if __name__ == "__main__":
    main()
