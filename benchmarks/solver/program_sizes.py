"""Sizes of the integer programs (MONeT, Table 7): the paper's formulation and ours, before and after SCIP's presolve.

    python -m benchmarks.solver.program_sizes FOLDER [--tier quick] [--only vgg16-none:8 unet-all:8] [--json FILE]

Nothing is solved. Published are the rows and columns that the authors report. Stating the paper's formulation for
ResNet-50 takes minutes and gigabytes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from benchmarks.cases import PROGRAM_SIZES, PublishedCase, add_tier, published_cases
from benchmarks.provenance import record, write_results
from explorer.solution import Statistics
from explorer.solvers.formulation import grouped, paper
from explorer.solvers.options import Options, parse_optimizations
from explorer.solvers.programs.milp import Milp
from explorer.solvers.programs.scip import presolved_statistics

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
    add_tier(parser)
    parser.add_argument("--only", nargs="+", metavar="NAME:GIB", help="these instead of the tier's")
    parser.add_argument("--json", type=Path, help="also write the sizes here")
    arguments = parser.parse_args()
    run = record(arguments, seeds=())
    cases = published_cases(arguments.folder, arguments.tier, only=arguments.only or PROGRAM_SIZES[arguments.tier])
    sizes = ("rows", "columns", "nonzeros")
    table = Table("instance", "GiB", "formulation", *sizes, *(f"{x} presolved" for x in sizes), "stated in")
    rows = [row for case in cases for row in measure(case)]
    for row in rows:
        names = (row["instance"], row["gib"], row["formulation"])
        table.add_row(*names, *_cells(row["before"]), *_cells(row["after"]), f"{row['stated_s']:.1f} s")
    Console(width=160).print(table)
    if arguments.json:
        write_results(arguments.json, rows, run)


def measure(case: PublishedCase) -> Iterator[dict[str, Any]]:
    """State and presolve both programs of an instance at one budget, after what is published of it."""
    published = {"rows": case.reference.get("rows"), "columns": case.reference.get("columns"), "nonzeros": None}
    name = {"instance": case.instance, "gib": f"{case.budget_gib:g}"}
    yield name | {"formulation": "published", "before": published, "after": {}, "stated_s": 0.0}
    # What is published without optimizations may run in place all the same (MONeT, appendix D).
    kind = case.document["optimizations"]
    options = Options(optimizations=parse_optimizations(("inplace",) if kind == "none" else kind))
    problem = options.problem(case.load())
    for formulation, build in FORMULATIONS.items():
        began = time.perf_counter()
        model: _Model = build(problem, case.budget_bytes)
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
