"""How near placements come to the load, and how soon: schedules of bundled profiles, and MiniMalloc's instances.

    python -m benchmarks.solver.addresses [PROFILE …] [--tier quick] [--instances FOLDER] [--time-limit 60]

Of each profile: PyTorch's plain schedule, and MONeT's at half of the peak. ``FOLDER`` holds files such as
``A.1048576.csv``, with the capacity in the name and the columns lower, upper and size.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

from benchmarks.cases import Tier, Whole, add_tier, profile_cases
from benchmarks.provenance import record
from explorer import keep_all, place, solve
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.solvers.placing.packing import pack
from explorer.solvers.placing.rectangles import Rectangles


def main() -> None:
    """Print one row per placement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help="paths or bundled names, instead of the tier's")
    add_tier(parser)
    parser.add_argument("--instances", type=Path, help="a folder; then these alone")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each placement")
    parser.add_argument("--solve-limit", type=float, default=10.0, help="seconds for each of MONeT's schedules")
    arguments = parser.parse_args()
    record(arguments, seeds=())
    pack(Rectangles(np.zeros(2), np.ones(2), np.ones(2)), seconds=1.0)  # compiles
    if arguments.instances is not None:
        _instances(arguments.instances, arguments.time_limit)
        return
    tier: Tier = arguments.tier
    for case in profile_cases(tier, of=Whole.PEAK, profiles=arguments.profiles, shares=(0.5,)):
        profile = case.load()
        _row(f"{case.name}, PyTorch", profile, keep_all(profile.graph), arguments.time_limit)
        solution = solve(profile, budget=case.budgets(profile)[0], time_limit=arguments.solve_limit)
        if solution.schedule is None:
            print(f"{case.name}, MONeT at 0.5: {solution.status}")
        else:
            _row(f"{case.name}, MONeT at 0.5", profile, solution.schedule, arguments.time_limit)


def _row(name: str, profile: Profile, schedule: Schedule, time_limit_s: float) -> None:
    began = time.perf_counter()
    placement = place(profile, schedule, time_limit=time_limit_s)
    took_s = time.perf_counter() - began
    over = placement.buffer_bytes / max(placement.load_bytes, 1) - 1
    print(f"{name:40} {len(placement.blocks):5} blocks  {over:7.2%} over the load  {took_s:6.2f} s", flush=True)


def _instances(folder: Path, time_limit_s: float) -> None:
    solved = 0
    paths = sorted(folder.glob("*.csv"))
    if not paths:
        raise SystemExit(f"{folder.name} holds no instance; there should be files such as A.1048576.csv")
    for path in paths:
        name, _, capacity = path.stem.partition(".")
        with path.open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        columns = (np.array([int(row[x]) for row in rows]) for x in ("lower", "upper", "size"))
        rectangles = Rectangles(*columns)
        began = time.perf_counter()
        found = pack(rectangles, seconds=time_limit_s, goal_bytes=int(capacity))
        took_s = time.perf_counter() - began
        fits = found.buffer_bytes <= int(capacity)
        solved += fits
        load, height = (x / int(capacity) for x in (rectangles.load_bytes, found.buffer_bytes))
        print(
            f"{name}  {len(rectangles):4} buffers  load {load:.4f}  found {height:.4f}  {'fits' if fits else '-':4}  "
            f"{found.states:9} states  {took_s:6.2f} s",
            flush=True,
        )
    print(f"{solved} of {len(paths)} fit")


if __name__ == "__main__":
    main()
