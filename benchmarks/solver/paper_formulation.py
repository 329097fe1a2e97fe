"""MONeT's program as published, solved on its published instances: our optimum beside theirs.

    python -m benchmarks.solver.paper_formulation FOLDER [--tier quick] [--only vgg16-none:8 …] [--seconds 600]

Durations are rounded up to 0.01 ms, as the published objectives count. SCIP starts from nothing, with one thread.
``benchmarks.solver.program_sizes`` says how large these programs are.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.cases import PAPER_PROGRAMS, PublishedCase, add_tier, published_cases
from benchmarks.provenance import record
from explorer import simulate
from explorer.device_profile import Profile
from explorer.solvers.formulation import paper
from explorer.solvers.problem.building import problem_of
from explorer.solvers.programs.milp import MilpResult
from explorer.solvers.programs.scip import minimise


def main() -> None:
    """Print a line per instance and budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with the published instances")
    add_tier(parser)
    parser.add_argument("--only", nargs="+", metavar="NAME:GIB", help="these instead of the tier's")
    parser.add_argument("--seconds", type=float, default=600.0, help="for SCIP, for each")
    parser.add_argument("--gap", type=float, default=1e-5, help="at which SCIP stops")
    arguments = parser.parse_args()
    record(arguments, seeds=())
    print(f"{'instance':16} {'GiB':>4} {'published':>10} {'ours':>9} {'bound':>9} {'gap %':>7} {'s':>6}")
    only = arguments.only or PAPER_PROGRAMS[arguments.tier]
    for case in published_cases(arguments.folder, arguments.tier, only=only):
        measure(case, arguments)


def measure(case: PublishedCase, arguments: argparse.Namespace) -> None:
    """State one program, solve it, and print what came of it."""
    profile = case.load_rounded_up()
    model = paper.build(problem_of(profile), case.budget_bytes)
    began = time.monotonic()
    result = minimise(model.milp, time_limit=arguments.seconds, gap=arguments.gap)
    elapsed_s = time.monotonic() - began
    check(profile, model, result)
    objective_ms = case.reference["objective_ms"]
    published = case.reference["status"] if objective_ms is None else f"{objective_ms:.2f}"
    print(f"{case.instance:16} {case.budget_gib:4g} {published:>10} {figures(case, result, elapsed_s)}", flush=True)


def figures(case: PublishedCase, result: MilpResult, elapsed_s: float) -> str:
    """Objective, bound, gap to the published objective and seconds of a result, in columns."""
    published_ms = case.reference["objective_ms"]
    if result.objective is None or result.bound is None or published_ms is None:
        return f"{result.status:>27} {elapsed_s:6.1f}"
    gap = 100 * (result.objective / published_ms - 1)
    return f"{result.objective:9.2f} {result.bound:9.2f} {gap:7.3f} {elapsed_s:6.1f}"


def check(profile: Profile, model: paper.PaperModel, result: MilpResult) -> None:
    """Make sure that the simulator finds the schedule of a solution no slower and no larger."""
    if result.x is None or result.objective is None:
        return
    line = simulate(profile, model.decode(result.x))
    if line.peak_bytes > model.stages.budget_bytes or line.time_ms > result.objective + 1e-6:
        over = line.peak_bytes - model.stages.budget_bytes
        print(f"the simulator disagrees: {line.time_ms:.2f} ms, {over:,} bytes over the budget")


if __name__ == "__main__":
    main()
