"""What PyTorch's caching allocator reserves over the peak, by simulation, and what fitting a device costs.

    python -m benchmarks.solver.reserved [PROFILE …] [--tier quick] [--json benchmarks/results/reserved.json]

Of each profile: PyTorch's plain schedule, MONeT's at half of the peak, and what one address for every tensor would take
instead (``place``). Then budgets of 0.6 of the peak: of what is allocated, of a device, of what is reserved; the latter
two also without mixing schedules. What was found earlier of other profiles stays.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.cases import Tier, Whole, add_tier, profile_cases
from benchmarks.provenance import add_rows, record
from explorer import keep_all, place, simulate, solve
from explorer.device_profile import Profile
from explorer.reserved import Allocator
from explorer.schedule import Schedule
from explorer.solution import Solution
from explorer.solvers.options import Options
from explorer.solvers.reserving import Fitting, Of
from explorer.solvers.solving import reserved_by_search

_SHARES = (0.5, 0.6)  # of the peak: of the schedule that is looked at, of the budgets that are compared


@dataclass(frozen=True)
class Reserving:
    """One schedule under one allocator.

    Attributes:
        profile: name.
        schedule: whose.
        allocator: which.
        peak_bytes: of what is allocated, by the simulator.
        reserved_bytes: at most.
        device_bytes: the smallest device that runs it.
        flushes: there, in a step.
        placed_bytes: with one address for every tensor of the step.
        simulation_s: seconds for all of that but the last.
    """

    profile: str
    schedule: str
    allocator: str
    peak_bytes: int
    reserved_bytes: int
    device_bytes: int
    flushes: int
    placed_bytes: int
    simulation_s: float


@dataclass(frozen=True)
class Kept:
    """One budget of one kind: the extra time of the schedule that keeps it, None where none was found.

    Attributes:
        profile: name.
        of: what the budget is of.
        allocator: which.
        budget_bytes: the budget.
        overhead: over the time of plain PyTorch's schedule, as a share of that.
        mixing: whether schedules were mixed.
    """

    profile: str
    of: str
    allocator: str
    budget_bytes: int
    overhead: float | None
    mixing: bool = True


def main() -> None:
    """Print one row per schedule and allocator, then one per budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help="paths or bundled names, instead of the tier's")
    add_tier(parser)
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds for each schedule")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    run = record(arguments, seeds=())
    tier: Tier = arguments.tier
    for case in profile_cases(tier, of=Whole.PEAK, profiles=arguments.profiles, shares=_SHARES):
        profile = case.load()
        half, budget = case.budgets(profile)
        rows = _schedule(case.name, "PyTorch", profile, keep_all(profile.graph))
        solution = solve(profile, budget=half, time_limit=arguments.time_limit, remember=False)
        if solution.schedule is not None:
            rows += _schedule(case.name, "MONeT at 0.5", profile, solution.schedule)
        kept = _budgets(case.name, profile, budget, arguments.time_limit)
        if arguments.json:
            found = {"schedules": [asdict(x) for x in rows], "budgets": [asdict(x) for x in kept]}
            add_rows(arguments.json, [{"profile": case.name, **found}], run, by="profile")


def _schedule(name: str, whose: str, profile: Profile, schedule: Schedule) -> list[Reserving]:
    placement = place(profile, schedule)
    rows = []
    for allocator in Allocator:
        began = time.perf_counter()
        line = simulate(profile, schedule, allocator=allocator.value)
        took_s = time.perf_counter() - began
        found = line.reservation
        assert found is not None
        placed = line.peak_bytes - placement.load_bytes + placement.buffer_bytes
        sizes = line.peak_bytes, found.peak_bytes, found.smallest_limit_bytes, found.flushes, placed
        rows.append(Reserving(name, whose, allocator.value, *sizes, took_s))
        over = [f"{x / line.peak_bytes - 1:+7.1%}" for x in (found.peak_bytes, found.smallest_limit_bytes, placed)]
        print(f"{name:28} {whose:14} {allocator.value:11} reserved {over[0]}  device {over[1]}", end="")
        print(f"  placed {over[2]}  {found.flushes} flushes  {took_s:.1f} s", flush=True)
    return rows


def _budgets(name: str, profile: Profile, budget_bytes: int, time_limit_s: float) -> list[Kept]:
    plain_ms = simulate(profile, keep_all(profile.graph)).time_ms
    kinds = [(Of.ALLOCATED, Allocator.CACHING)]
    kinds += [(of, allocator) for of in (Of.DEVICE, Of.RESERVED) for allocator in Allocator]
    kept = []
    for of, allocator in kinds:
        asked = {"of": of.value, "allocator": allocator.value, "time_limit": time_limit_s, "remember": False}
        found = solve(profile, budget=budget_bytes, **asked)
        kept.append(_kept(name, of, allocator, budget_bytes, found, plain_ms=plain_ms))
        if of is not Of.ALLOCATED and allocator is Allocator.CACHING:
            fitting = Fitting(profile, budget_bytes, of, allocator)
            found = reserved_by_search(fitting, Options(time_limit=time_limit_s), mixing=False)
            kept.append(_kept(name, of, allocator, budget_bytes, found, plain_ms=plain_ms, mixing=False))
    return kept


def _kept(
    name: str,
    of: Of,
    allocator: Allocator,
    budget_bytes: int,
    found: Solution,
    *,
    plain_ms: float,
    mixing: bool = True,
) -> Kept:
    overhead = None if found.time_ms is None else found.time_ms / plain_ms - 1
    print(f"{name:28} 0.6 of {of.value} {allocator.value}{'' if mixing else ' without mixing'}", end="  ")
    print(found.status.value if overhead is None else f"{overhead:+.2%}", flush=True)
    return Kept(name, of.value, allocator.value, budget_bytes, overhead, mixing)


if __name__ == "__main__":
    main()
