"""Published instances: objective, bound and time beside the published ones, every schedule judged by their judge.

    python -m benchmarks.solver.published FOLDER [--tier quick] [--only NAME:GIB …] [--seconds 1 10] [--seeds 0 1]

Of several seeds the worst schedule is reported, and the worst bound. ``--fail-above`` ends with 1 where something is
that many percent above.

The folder holds instances (JSON) and ``verify.py``. What was solved for publication has the time of every operator
rounded up to 0.01 ms, so that is solved here too, and compared by the judge's ``published_ms``. Instances made for
Checkmate count otherwise and are left out. One configuration for all; the time begins when a problem and the
solver's modules are loaded and its search is compiled, as in an open session.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from benchmarks.cases import PublishedCase, Tier, add_tier, published_cases
from benchmarks.provenance import record, write_results
from benchmarks.published_judge import judge_in, plan_of
from explorer.device_profile import Profile
from explorer.solution import BoundScope, Solution
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options

_COMPILED_S = 120.0
_LOADED = (
    "formulation.bound",
    "formulation.grouped",
    "programs.scip",
)  # by an open session's worker, before it refines anything


@dataclass(frozen=True)
class Result:
    """One instance at one budget after some time.

    Attributes:
        instance: name of the file.
        budget_gib: in all.
        seconds: after which.
        status: ours.
        published_ms: the published objective, None where they found it infeasible.
        published_bound_ms: proven by them, for their model.
        published_s: how long that took.
        objective_ms: ours, as the judge counts it.
        bound_ms: proven by us for every schedule.
        minimum_gib: smallest budget for which we know a schedule, where the budget has none.
    """

    instance: str
    budget_gib: float
    seconds: float
    status: str
    published_ms: float | None
    published_bound_ms: float | None
    published_s: float | None
    objective_ms: float | None
    bound_ms: float | None
    minimum_gib: float | None

    @property
    def percent_above(self) -> float | None:
        """Ours against the published objective."""
        if self.objective_ms is None or self.published_ms is None:
            return None
        return 100 * (self.objective_ms / self.published_ms - 1)


def main() -> None:
    """Print the table; exit with 1 where something is worse than allowed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    add_tier(parser)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME:GIB", help="these, or NAME at each budget")
    parser.add_argument("--seconds", nargs="+", type=float, help="one time or several (default: 60, or 2 if quick)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="one or several")
    parser.add_argument("--gap", type=float, default=0.0, help="stop when proven this close to the best: 0.01")
    parser.add_argument("--fail-above", type=float, help="percent above the published objective")
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()
    run = record(options, seeds=options.seeds)
    judge = judge_in(options.folder)
    times = sorted(options.seconds or ([2.0] if options.tier is Tier.QUICK else [60.0]))
    for module in _LOADED:
        import_module(f"explorer.solvers.{module}")
    print(f"{'instance':14}{'GiB':>5}{'published':>11}{'bound':>9}{'in s':>8} |", end="")
    print("".join(f"{f'after {x:g} s':>20}" for x in times) + f"{'bound':>10}{'gap':>7}")
    results: list[Result] = []
    for case in published_cases(options.folder, options.tier, only=options.only):
        runs = [list(_solve(case, times, judge, gap=options.gap, seed=x)) for x in options.seeds]
        found = [_worst(same_time) for same_time in zip(*runs, strict=True)]
        results += found
        _print(found)
    if options.json:
        write_results(options.json, [asdict(x) for x in results], run)
    worse = [x for x in results if x.seconds == times[-1] and _fails(x, options.fail_above)]
    for x in worse:
        print(f"{x.instance} at {x.budget_gib:g} GiB: {x.status}, above what is allowed")
    sys.exit(1 if worse else 0)


def _solve(case: PublishedCase, times: list[float], judge: ModuleType, *, gap: float, seed: int) -> Iterator[Result]:
    """Solve once; what was known at each time."""
    profile = case.load_rounded_up()
    options = Options(time_limit=times[-1], gap=gap, seed=seed)
    knowledge = Knowledge(options.problem(profile))
    knowledge.search.ready(timeout=_COMPILED_S)
    began = time.monotonic()
    history: list[tuple[float, Solution]] = []

    def note(solution: Solution) -> None:
        history.append((time.monotonic() - began, solution))

    last = Pursuit(knowledge, case.budget_bytes, options, began=began).run(on_solution=note)
    history.append((times[-1], last))
    for seconds in times:
        known = [solution for at, solution in history if at <= seconds]
        yield _result(case, profile, seconds, known[-1] if known else None, judge)


def _result(
    case: PublishedCase, profile: Profile, seconds: float, solution: Solution | None, judge: ModuleType
) -> Result:
    reference = case.reference
    objective = None
    if solution is not None and solution.schedule is not None:
        verdict = judge.judge(case.document, plan_of(profile, solution.schedule))
        if verdict["peak_gib"] > case.budget_gib + 1e-9:
            raise SystemExit(f"{case.instance}: the judge finds a peak of {verdict['peak_gib']} GiB")
        objective = verdict["published_ms"]
    bounds = [] if solution is None else [x.time_ms for x in solution.bounds if x.scope is BoundScope.PROBLEM]
    minimum = None if solution is None or solution.minimum is None else solution.minimum.budget_bytes / 2**30
    return Result(
        instance=case.instance,
        budget_gib=case.budget_gib,
        seconds=seconds,
        status="none yet" if solution is None else solution.status.value,
        published_ms=reference["objective_ms"],
        published_bound_ms=reference["bound_ms"],
        published_s=reference.get("gurobi_seconds"),
        objective_ms=objective,
        bound_ms=max(bounds, default=None),
        minimum_gib=minimum,
    )


def _print(results: list[Result]) -> None:
    first, last = results[0], results[-1]

    def number(value: float | None, width: int, digits: int = 2) -> str:
        return f"{'-' if value is None else f'{value:.{digits}f}':>{width}}"

    print(f"{first.instance:14}{first.budget_gib:5g}", end="")
    print(number(first.published_ms, 11) + number(first.published_bound_ms, 9), end="")
    print(number(first.published_s, 8, 0) + " |", end="")
    for result in results:
        percent = "" if result.percent_above is None else f" ({result.percent_above:+.2f} %)"
        shown = result.status if result.objective_ms is None else f"{result.objective_ms:.2f}{percent}"
        print(f"{shown:>20}", end="")
    gap = None
    if last.objective_ms is not None and last.bound_ms:
        gap = 100 * (last.objective_ms / last.bound_ms - 1)
    needs = "" if last.minimum_gib is None else f"  smallest budget known: {last.minimum_gib:.3f} GiB"
    print(number(last.bound_ms, 10) + f"{'' if gap is None else f'{gap:.1f} %':>7}{needs}", flush=True)


def _worst(results: tuple[Result, ...]) -> Result:
    """The worst schedule of several seeds, with the worst bound of them, whosever it is."""
    schedule = max(results, key=lambda x: math.inf if x.objective_ms is None else x.objective_ms)
    bounds = [x.bound_ms for x in results if x.bound_ms is not None]
    return replace(schedule, bound_ms=min(bounds) if len(bounds) == len(results) else None)


def _fails(result: Result, allowed: float | None) -> bool:
    if allowed is None or result.published_ms is None:
        return False
    above = result.percent_above
    return above is None or above > allowed


if __name__ == "__main__":
    main()
