"""MONeT's program as published on its published instances: our optimum and its size beside theirs.

    python benchmarks/paper_formulation.py ../shared/monet-zoo --only vgg16-none:8 unet-none:10 --seconds 600

Durations are rounded up to 0.01 ms, as the published objectives count. The published rows and columns are those after
Gurobi's presolve; ours stand before and after SCIP's. SCIP starts from nothing, with one thread. ``--sizes`` states
the programs without solving them; for ResNet-50 that alone takes minutes and gigabytes.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

from explorer import load_profile, simulate
from explorer.device_profile import Cost, Profile
from explorer.solvers.monet import paper
from explorer.solvers.problem import Problem
from explorer.solvers.scip import MilpResult, minimise, presolved_statistics

DEFAULT = ("vgg16-none:7", "vgg16-none:8", "vgg16-none:9", "vgg16-none:10", "unet-none:10")


@dataclass(frozen=True)
class Case:
    """One instance at one budget.

    Attributes:
        path: of the instance.
        gib: the budget.
        reference: the published result for it.
    """

    path: Path
    gib: float
    reference: dict

    @property
    def published(self) -> str:
        """The published objective, or why there is none."""
        objective_ms = self.reference["objective_ms"]
        return self.reference["status"] if objective_ms is None else f"{objective_ms:.2f}"


def main() -> None:
    """Print a line per instance and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the published instances")
    parser.add_argument("--only", nargs="+", default=DEFAULT, metavar="NAME:GIB")
    parser.add_argument("--seconds", type=float, default=600.0, help="for SCIP, for each")
    parser.add_argument("--gap", type=float, default=1e-5, help="at which SCIP stops")
    parser.add_argument("--sizes", action="store_true", help="solve nothing")
    arguments = parser.parse_args()
    print(
        f"{'instance':16} {'GiB':>4} {'published':>10} {'ours':>9} {'bound':>9} {'gap %':>7} {'s':>6}  "
        f"{'published rows, columns':>24}  {'ours: rows, columns, nonzeros':>32}  {'after presolve':>28}"
    )
    for name in arguments.only:
        measure(case_of(arguments.folder, name), arguments)


def case_of(folder: Path, name: str) -> Case:
    """The case that ``name`` (``instance:GiB``) stands for."""
    instance, gib = name.split(":")
    path = folder / f"{instance}.json"
    references = json.loads(path.read_text())["references"]
    return Case(path, float(gib), next(x for x in references if x["budget_gib"] == float(gib)))


def measure(case: Case, arguments: argparse.Namespace) -> None:
    """State one program, solve it, and print what came of it."""
    profile = rounded_up(load_profile(case.path))
    model = paper.build(Problem.of(profile), round(case.gib * 2**30))
    before = model.statistics
    after = presolved_statistics(model.milp, model.group_count)
    result = None
    if not arguments.sizes:
        result = minimise(model.milp, time_limit=arguments.seconds, gap=arguments.gap)
        check(profile, model, result)
    rows, columns = (case.reference[x] or 0 for x in ("rows", "columns"))
    print(
        f"{case.path.stem:16} {case.gib:4g} {case.published:>10} {figures(case, result)}  {rows:>12,} {columns:>11,}"
        f"  {before.rows:>9,} {before.columns:>9,} {before.nonzeros:>12,}"
        f"  {after.rows:>8,} {after.columns:>8,} {after.nonzeros:>10,}",
        flush=True,
    )


def figures(case: Case, result: MilpResult | None) -> str:
    """Objective, bound, gap to the published objective and seconds of a result, in columns."""
    if result is None:
        return f"{'':>9} {'':>9} {'':>7} {'':>6}"
    published_ms = case.reference["objective_ms"]
    if result.objective is None or result.bound is None or published_ms is None:
        return f"{result.status:>27} {result.elapsed_s:6.1f}"
    gap = 100 * (result.objective / published_ms - 1)
    return f"{result.objective:9.2f} {result.bound:9.2f} {gap:7.3f} {result.elapsed_s:6.1f}"


def check(profile: Profile, model: paper.PaperModel, result: MilpResult) -> None:
    """Make sure that the simulator finds the schedule of a solution no slower and no larger."""
    if result.x is None or result.objective is None:
        return
    line = simulate(profile, model.decode(result.x))
    if line.peak_bytes > model.stages.budget_bytes or line.time_ms > result.objective + 1e-6:
        over = line.peak_bytes - model.stages.budget_bytes
        print(f"the simulator disagrees: {line.time_ms:.2f} ms, {over:,} bytes over the budget")


def rounded_up(profile: Profile) -> Profile:
    """The profile with every duration rounded up to 0.01 ms."""
    costs = {
        key: Cost(math.ceil(cost.time_ms * 100 - 1e-6) / 100, cost.workspace_bytes)
        for key, cost in profile.costs.items()
    }
    return replace(profile, costs=costs)


if __name__ == "__main__":
    main()
