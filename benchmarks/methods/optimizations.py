"""What each kind of implementation is worth beside checkpointing (MONeT, figures 4 and 6), on profiles measured here.

    python -m benchmarks.methods.optimizations [MODEL …] [--tier quick] [--json FILE] [--plot FILE.html]

For every model and set of optimizations: the overhead over plain PyTorch at shares of its peak, and the smallest
feasible budget. At half of the peak, real steps of checkpointing alone, of all optimizations and of plain PyTorch take
turns; all in one run.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import explorer
from benchmarks.cases import ModelCase, Size, Tier, add_tier, model_cases, model_names
from benchmarks.provenance import add_rows, record
from benchmarks.timing_in_turns import median_times_ms
from explorer.execution.steps import step_of, unchanged
from explorer.solution import Finder, Solution
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.pipeline import Pursuit
from explorer.solvers.options import Options, parse_optimizations
from explorer.solvers.problem.frontier import Frontier

SETS = ("none", "output", "intermediate", "convolution", "inplace", "all")
SHARES = {Tier.QUICK: (0.5, 0.9), Tier.FULL: (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)}
MEASURED = 0.5


@dataclass(frozen=True)
class Point:
    """One model, set of optimizations and budget.

    Attributes:
        model: its name.
        optimizations: the set.
        share: budget over the peak of plain PyTorch.
        status: of the solution.
        gap: proven, for all schedules with these optimizations; None without a schedule.
        overhead: predicted time over the predicted time of plain PyTorch, less 1; None without a schedule.
        peak_bytes: of the schedule.
    """

    model: str
    optimizations: str
    share: float
    status: str
    gap: float | None
    overhead: float | None
    peak_bytes: int | None


@dataclass(frozen=True)
class Report:
    """What was found for one model.

    Attributes:
        model: its name.
        batch: sizes of its batch.
        peak_bytes: of plain PyTorch, predicted.
        points: for every set and share.
        smallest_bytes: smallest budget for which a schedule is known, by set.
        measured: at ``MEASURED`` of the peak, by set: step time over plain PyTorch's, and measured over predicted peak.
    """

    model: str
    batch: dict[str, Any]
    peak_bytes: int
    points: tuple[Point, ...]
    smallest_bytes: dict[str, int]
    measured: dict[str, tuple[float, float]]


def main() -> None:
    """Print a table per model; write JSON and plot if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=model_names(Size.LARGE))
    add_tier(parser)
    parser.add_argument("--seconds", type=float, help="for each solve (default: 4, or 1 if quick)")
    parser.add_argument("--json", type=Path, help="also write the reports here; models not run keep theirs")
    parser.add_argument("--plot", type=Path, help="also write a plot here, as HTML")
    options = parser.parse_args()
    run = record(options)
    seconds = options.seconds or (1.0 if options.tier is Tier.QUICK else 4.0)
    reports = []
    for case in model_cases(options.tier, Size.LARGE, options.models):
        reports.append(asdict(run_model(case, SHARES[options.tier], seconds=seconds)))
        if options.json:
            add_rows(options.json, reports, run, by="model")
    if options.plot:
        options.plot.write_text(plot(reports), encoding="utf-8")


def run_model(case: ModelCase, shares: tuple[float, ...], *, seconds: float) -> Report:
    """Profile, solve for every set and share, and run at one share."""
    name = case.name
    model, batch, loss = case.sample()
    start = time.perf_counter()
    profile = explorer.profile(model, batch, loss=loss)
    plain = explorer.simulate(profile, explorer.keep_all(profile.graph))
    print(f"\n{name} {case.batch}: profiled in {time.perf_counter() - start:.0f} s, ", end="")
    print(f"plain PyTorch {plain.time_ms:.0f} ms, {explorer.format_bytes(plain.peak_bytes)}")
    print(f"{'overhead at':>13}" + "".join(f"{share:>9.1f}" for share in shares) + f"{'smallest':>10}")
    points: list[Point] = []
    smallest: dict[str, int] = {}
    halves: dict[str, Solution] = {}
    frontiers: dict[str, Frontier] = {}
    for chosen in SETS:
        # A set has what its parts have.
        parts = list(frontiers) if chosen == "all" else ["none"] * bool(frontiers)
        frontiers[chosen] = Frontier()
        for point in (point for part in parts for point in frontiers[part].points()):
            frontiers[chosen].add(point)
        found, smallest[chosen] = solve_set(profile, chosen, frontiers[chosen], shares, seconds=seconds)
        overheads = {x: None if y.time_ms is None else y.time_ms / plain.time_ms - 1 for x, y in found.items()}
        for share, solution in found.items():
            known = (solution.status.value, solution.gap(), overheads[share], solution.peak_bytes)
            points.append(Point(name, chosen, share, *known))
        if found[MEASURED].schedule is not None:
            halves[chosen] = found[MEASURED]
        shown = "".join(f"{'-':>9}" if x is None else f"{100 * x:>+8.1f}%" for x in overheads.values())
        print(f"{chosen:>13}{shown}{smallest[chosen] / plain.peak_bytes:>10.3f}", flush=True)
    measured = run_turns({x: halves[x] for x in ("none", "all") if x in halves}, model, batch, loss)
    for chosen, (ratio, error) in measured.items():
        print(f"measured at {MEASURED} of the peak, {chosen}: {ratio:.3f} × plain PyTorch, peak {error:+.3%}")
    return Report(name, dict(case.batch), plain.peak_bytes, tuple(points), smallest, measured)


def solve_set(
    profile: explorer.Profile, chosen: str, frontier: Frontier, shares: tuple[float, ...], *, seconds: float
) -> tuple[dict[float, Solution], int]:
    """Solutions by share, and the smallest budget known; as in an open explorer, each budget serves the others."""
    options = Options(time_limit=seconds, optimizations=parse_optimizations(chosen))
    knowledge = Knowledge(options.problem(profile), frontier=frontier)
    found: dict[float, Solution] = {}
    for share in reversed(shares):
        budget = int(share * knowledge.search.keep_all_peak_bytes)
        found[share] = Pursuit(knowledge, budget, options).run()
    least = explorer.smallest_budget(profile, time_limit=seconds, optimizations=chosen)
    assert least.schedule is not None
    knowledge.add_schedule(least.schedule, Finder.SMALLEST)
    return {share: found[share] for share in shares}, knowledge.minimum().budget_bytes


def run_turns(
    solutions: dict[str, Solution], model: Any, batch: Any, loss: Any, *, rounds: int = 15
) -> dict[str, tuple[float, float]]:
    """Median step time over plain PyTorch's, and measured peak over predicted less 1; all take turns."""
    runs = {"plain": step_of(model, batch, loss=loss)}
    errors: dict[str, float] = {}
    for name, solution in solutions.items():
        assert solution.schedule is not None
        assert solution.peak_bytes is not None
        scheduled = explorer.apply(model, solution.schedule, batch, loss=loss)
        errors[name] = explorer.measure(scheduled, batch, steps=1).peak_bytes / solution.peak_bytes - 1
        runs[name] = step_of(scheduled, batch)
    with unchanged(model):
        times_ms = median_times_ms(runs, rounds=rounds)
    return {name: (times_ms[name] / times_ms["plain"], errors[name]) for name in solutions}


def plot(reports: list[dict[str, Any]]) -> str:
    """Overhead against memory, a panel per model, a line per set."""
    from plotly.subplots import make_subplots

    from widgets import style

    colours = ("#444444", style.SKY, style.GREEN, style.ORANGE, style.PURPLE, style.BLUE)
    figure = make_subplots(rows=1, cols=len(reports), subplot_titles=[x["model"] for x in reports], shared_yaxes=True)
    dashes = ("solid", "dash", "dot", "dashdot", "longdash", "solid")
    for column, report in enumerate(reports, start=1):
        for number, chosen in enumerate(SETS):
            row = [x for x in report["points"] if x["optimizations"] == chosen and x["overhead"] is not None]
            figure.add_scatter(
                x=[100 * x["share"] for x in row],
                y=[100 * x["overhead"] for x in row],
                name=chosen,
                legendgroup=chosen,
                showlegend=column == 1,
                mode="lines+markers",
                line={"color": colours[number], "dash": dashes[number], "width": 3 if chosen == "all" else 2},
                row=1,
                col=column,
            )
        figure.update_xaxes(title_text="budget, % of PyTorch's peak", range=[37, 103], row=1, col=column)
    figure.update_yaxes(title_text="overhead, %", row=1, col=1)
    figure.update_layout(template="plotly_white", width=330 * len(reports) + 120, height=420, hovermode="x")
    return figure.to_html(include_plotlyjs=True, config={"showSendToCloud": False})


if __name__ == "__main__":
    main()
