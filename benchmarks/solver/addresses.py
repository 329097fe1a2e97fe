"""How near placements come to the load, and how soon: schedules of bundled profiles, and MiniMalloc's instances.

    python -m benchmarks.solver.addresses [PROFILE …] [--tier quick] [--instances FOLDER] [--json FILE]

Of each profile: PyTorch's plain schedule, and MONeT's at half of the peak. ``FOLDER`` holds files such as
``A.1048576.csv``, with the capacity in the name and the columns lower, upper and size.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.cases import ProfileCase, Tier, Whole, add_tier, profile_cases
from benchmarks.provenance import add_rows, record
from explorer import keep_all, place, solve
from explorer.device_profile import Profile
from explorer.schedule import Schedule
from explorer.solvers.placing.packing import pack
from explorer.solvers.placing.rectangles import Rectangles
from explorer.solvers.service.compiling import compile_all


@dataclass(frozen=True)
class Placed:
    """A placement.

    Attributes:
        name: of the instance, or of a profile and its schedule.
        kind: ``"schedule"`` or ``"instance"``.
        blocks: how many there are.
        over: the load for a schedule, the capacity for an instance: the buffer over that, less 1; 0 or less fits.
        seconds: until it was found, everything compiled; or given up.
    """

    name: str
    kind: str
    blocks: int
    over: float
    seconds: float


def main() -> None:
    """Print one row per placement; write JSON if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help="paths or bundled names, instead of the tier's")
    add_tier(parser)
    parser.add_argument("--instances", type=Path, help="a folder; then these alone")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each placement")
    parser.add_argument("--solve-limit", type=float, default=10.0, help="seconds for each of MONeT's schedules")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    provenance = record(arguments, seeds=())
    compile_all()
    tier: Tier = arguments.tier
    if arguments.instances is not None:
        found = _instances(arguments.instances, arguments.time_limit)
    else:
        cases = profile_cases(tier, of=Whole.PEAK, profiles=arguments.profiles, shares=(0.5,))
        found = _schedules(cases, arguments.time_limit, arguments.solve_limit)
    for placed in found:
        print(
            f"{placed.name:40} {placed.blocks:5} blocks  {placed.over:+8.2%}  {placed.seconds:6.2f} s",
            flush=True,
        )
        if arguments.json is not None:
            add_rows(arguments.json, [asdict(placed)], provenance, by="name")


def _schedules(cases: tuple[ProfileCase, ...], time_limit_s: float, solve_limit_s: float) -> Iterator[Placed]:
    for case in cases:
        profile = case.load()
        yield _schedule(f"{case.name}, PyTorch", profile, keep_all(profile.graph), time_limit_s)
        solution = solve(profile, budget=case.budgets(profile)[0], time_limit=solve_limit_s, remember=False)
        if solution.schedule is not None:
            yield _schedule(f"{case.name}, MONeT at 0.5", profile, solution.schedule, time_limit_s)


def _schedule(name: str, profile: Profile, schedule: Schedule, time_limit_s: float) -> Placed:
    began = time.perf_counter()
    placement = place(profile, schedule, time_limit=time_limit_s)
    took_s = time.perf_counter() - began
    over = placement.buffer_bytes / max(placement.load_bytes, 1) - 1
    return Placed(name, "schedule", len(placement.blocks), over, took_s)


def _instances(folder: Path, time_limit_s: float) -> Iterator[Placed]:
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
        over = found.buffer_bytes / int(capacity) - 1
        yield Placed(f"MiniMalloc {name}", "instance", len(rectangles), over, took_s)


if __name__ == "__main__":
    main()
