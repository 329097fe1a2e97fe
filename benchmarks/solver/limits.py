"""How well ``solve`` keeps its time limit: processes of their own, with the search compiled before and without.

    python -m benchmarks.solver.limits [--tier quick]
    python -m benchmarks.solver.limits --profiles resnet50 large.json --limits 0.2 1 --methods monet checkmate

A line for each profile, method and limit: seconds from the call to the answer, and by how much that is more than the
limit, as a share of it after 0.2 s are allowed. The last columns are what came of it: the time of a step relative to
keeping everything, and how long the process lived as ``schedule-explorer solve``, start included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.cases import ProfileCase, Whole, add_tier, profile_cases
from benchmarks.provenance import record
from explorer import Profile, keep_all, simulate

_ALLOWED_S, _ALLOWED = 0.2, 0.1
_SOLVE = """
import sys, time
import explorer

profile, solve = explorer.load_profile(sys.argv[1]), explorer.solve
began = time.monotonic()
solution = solve(
    profile, budget=int(sys.argv[2]), method=sys.argv[3], time_limit=float(sys.argv[4]), remember=False
)
print(time.monotonic() - began, solution.status, solution.time_ms or "nan", flush=True)
"""


def main() -> None:
    """Print a line for each solve; the last one says how many kept their limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_tier(parser)
    parser.add_argument("--profiles", nargs="+", default=[], help="paths or bundled names, instead of the tier's")
    parser.add_argument("--limits", nargs="+", type=float, default=[0.2, 1.0, 3.0])
    parser.add_argument("--methods", nargs="+", default=["monet"])
    parser.add_argument("--share", type=float, default=0.6, help="budget, of the peak that keeps everything")
    options = parser.parse_args()
    record(options, seeds=())
    cases = profile_cases(options.tier, of=Whole.PEAK, profiles=options.profiles, shares=[options.share])
    print(
        f"{'profile':>22}{'operators':>11}{'method':>12}{'compiled':>10}{'limit':>8}{'taken':>9}{'beyond':>9}", end=""
    )
    print(f"{'status':>12}{'slower':>9}{'command':>10}")
    kept = total = 0
    for case in cases:
        profile = case.load()
        for method in options.methods:
            for compiled in (True, False):
                for limit in options.limits:
                    kept += _line(case, profile, method=method, compiled=compiled, limit=limit)
                    total += 1
    print(f"{kept} of {total} within {_ALLOWED:.0%} and {_ALLOWED_S} s of the limit")


def _line(case: ProfileCase, profile: Profile, *, method: str, compiled: bool, limit: float) -> bool:
    """Solve twice, in Python and on the command line; was the limit kept?"""
    keep = simulate(profile, keep_all(profile.graph))
    (budget,) = case.budgets(profile)
    with tempfile.TemporaryDirectory() as folder:
        surroundings = dict(os.environ) if compiled else {**os.environ, "NUMBA_CACHE_DIR": folder}
        arguments = [case.profile, str(budget), method, str(limit)]
        said = _run([sys.executable, "-c", _SOLVE, *arguments], surroundings).split()
    taken_s, status, time_ms = float(said[0]), said[1], float(said[2])
    with tempfile.TemporaryDirectory() as folder:
        surroundings = dict(os.environ) if compiled else {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [
            sys.executable,
            "-c",
            "from explorer.command_line.commands import main; main()",
            "solve",
            case.profile,
            "--budget",
            f"{budget} B",
            "--method",
            method,
        ]
        began = time.monotonic()
        _run([*command, "--time-limit", str(limit), "--afresh", "--output", str(Path(folder, "s.json"))], surroundings)
        command_s = time.monotonic() - began
    beyond = (taken_s - _ALLOWED_S) / limit - 1
    print(
        f"{case.name:>22}{len(profile.graph.operators):11}{method:>12}{'yes' if compiled else 'no':>10}"
        f"{limit:7.1f}s{taken_s:8.2f}s{beyond:9.0%}{status:>12}{time_ms / keep.time_ms:9.3f}{command_s:9.2f}s",
        flush=True,
    )
    return beyond <= _ALLOWED


def _run(command: list[str], surroundings: dict[str, str]) -> str:
    return subprocess.run(command, env=surroundings, check=False, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
