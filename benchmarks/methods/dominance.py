"""Is MONeT's joint problem no slower than its checkpointing, and that no slower than any other method?

    python -m benchmarks.methods.dominance [PROFILE …] [--tier quick] [--shares 0.75 0.5 0.35] [--json FILE]

Shares are of what lies between the fixed bytes and the peak without recomputation. Methods that use other
implementations than PyTorch's (Gist, Checkmate-O) are held against the joint problem, all others against checkpointing.
*Within the gap*: another method's schedule is quicker than MONeT's, but not than its bound: more time would find it.
*Broken*: it is quicker than the bound. That must not be; the exit code is then 1. A JSON file is added to.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from benchmarks.cases import ProfileCase, Tier, Whole, add_tier, profile_cases
from benchmarks.provenance import add_rows, record
from explorer import Solution, trade_off
from explorer.solution import BoundScope
from explorer.solvers.methods.table import METHODS

_JOINT, _CHECKPOINTING = "monet", "monet-checkpointing"
_OTHER_IMPLEMENTATIONS = ("gist", "checkmate-o")
_SAME = 1e-6


@dataclass(frozen=True)
class Comparison:
    """One method's schedule against MONeT's.

    Attributes:
        profile: its name.
        share: of the memory for activations.
        method: whose schedule.
        time_ms: of that.
        against: ``"monet"`` or ``"monet-checkpointing"``.
        monet_ms: what that found; None if nothing.
        bound_ms: what that proved.
    """

    profile: str
    share: float
    method: str
    time_ms: float
    against: str
    monet_ms: float | None
    bound_ms: float

    @property
    def verdict(self) -> str:
        """``"holds"``, ``"within the gap"`` or ``"broken"``."""
        if self.time_ms < self.bound_ms * (1 - _SAME):
            return "broken"
        found = self.monet_ms is not None and self.monet_ms <= self.time_ms * (1 + _SAME)
        return "holds" if found else "within the gap"


def main() -> None:
    """Print a line for each profile and budget, and every comparison that does not simply hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help="paths or bundled names, instead of the tier's")
    add_tier(parser)
    parser.add_argument("--shares", nargs="+", type=float, default=[], help="instead of the tier's")
    parser.add_argument("--seconds", type=float, help="for each method and budget (default: 4, or 1 if quick)")
    parser.add_argument("--json", type=Path, help="also write the comparisons here")
    arguments = parser.parse_args()
    run = record(arguments, seeds=())
    seconds = arguments.seconds or (1.0 if arguments.tier is Tier.QUICK else 4.0)
    found: list[Comparison] = []
    for case in profile_cases(
        arguments.tier, of=Whole.ACTIVATIONS, profiles=arguments.profiles, shares=arguments.shares
    ):
        for share, comparisons, summary in _compare(case, seconds):
            counts = {
                word: sum(x.verdict == word for x in comparisons) for word in ("holds", "within the gap", "broken")
            }
            print(
                f"{case.name:24}{share:5.2f}  {summary}  " + ", ".join(f"{x} {y}" for x, y in counts.items()),
                flush=True,
            )
            for x in comparisons:
                if x.verdict != "holds":
                    print(
                        f"    {x.verdict}: {x.method} {x.time_ms:.3f}, {x.against} {x.monet_ms}, bound {x.bound_ms:.3f}"
                    )
            found += comparisons
        if arguments.json:
            rows = [asdict(x) | {"verdict": x.verdict} for x in found]
            add_rows(arguments.json, rows, run, by="profile")
    raise SystemExit(any(x.verdict == "broken" for x in found))


def _compare(case: ProfileCase, seconds: float) -> Iterator[tuple[float, list[Comparison], str]]:
    profile = case.load()
    budgets = case.budgets(profile)
    began = time.monotonic()
    with ThreadPoolExecutor(1) as executor:
        found = trade_off(profile, methods=METHODS, budgets=budgets, time_limit=seconds, executor=executor)
    for number, share in enumerate(case.shares):
        at = {curve.method: curve.solutions[number] for curve in found.curves}
        comparisons = [
            Comparison(case.name, share, x, solution.time_ms, rival, at[rival].time_ms, _bound_ms(at[rival]))
            for x, solution in at.items()
            if solution.time_ms is not None and x != _JOINT
            for rival in [_JOINT if x in (*_OTHER_IMPLEMENTATIONS, _CHECKPOINTING) else _CHECKPOINTING]
        ]
        overheads = {x: found.overhead(solution) for x, solution in at.items()}
        times = [f"{x} " + ("–" if more is None else f"{1 + more:.3f}") for x, more in overheads.items()]
        gaps = [f"{x} {gap:.1%}" for x in (_JOINT, _CHECKPOINTING) if (gap := at[x].gap()) is not None]
        yield share, comparisons, f"({'; '.join(times)}; gaps {', '.join(gaps)}; {time.monotonic() - began:.0f} s)"


def _bound_ms(solution: Solution) -> float:
    """No schedule is quicker; infinite where none fits."""
    bound_ms = solution.bound_ms(BoundScope.PROBLEM)
    if solution.status.value == "infeasible":
        return float("inf")
    return 0.0 if bound_ms is None else bound_ms


if __name__ == "__main__":
    main()
