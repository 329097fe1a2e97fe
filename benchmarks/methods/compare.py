"""Every method on the same profiles: overheads by budget as a table, and a figure for each profile.

    python -m benchmarks.methods.compare [PROFILE …] [--tier quick] [--methods monet checkmate-d …] [--shares 0.4 0.5 …]

A profile is a file or a bundled name; shares are of the peak without recomputation. Times are the profile's. Pictures
are taken by Chromium. A JSON file is added to: a profile's rows replace those it has.
"""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from benchmarks.cases import Tier, Whole, add_tier, profile_cases
from benchmarks.provenance import read_results, record, write_results
from explorer import trade_off
from explorer.solvers.methods.comparison import Comparison
from explorer.solvers.methods.table import METHODS
from widgets.plots.methods_plot import comparison_figure

_HALF = 0.5
_WIDTH, _HEIGHT = 900, 520


def main() -> None:
    """Print a table for each profile, and one of all at half of the peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help="paths or bundled names, instead of the tier's")
    add_tier(parser)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), help=", ".join(METHODS))
    parser.add_argument("--shares", nargs="+", type=float, default=[], help="instead of the tier's")
    parser.add_argument("--seconds", type=float, help="for each method and budget (default: 10, or 1 if quick)")
    parser.add_argument("--png", type=Path, help="write a picture for each profile into this folder")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    run = record(arguments, seeds=())
    seconds = arguments.seconds or (1.0 if arguments.tier is Tier.QUICK else 10.0)
    shares = {_HALF, *arguments.shares} if arguments.shares else ()
    cases = profile_cases(arguments.tier, of=Whole.PEAK, profiles=arguments.profiles, shares=tuple(shares))
    found: dict[str, Comparison] = {}
    for case in cases:
        profile, name = case.load(), case.name
        budgets = case.budgets(profile)
        found[name] = trade_off(profile, methods=arguments.methods, budgets=budgets, time_limit=seconds)
        print(f"\n{name}, extra time against no recomputation\n{found[name].table()}", flush=True)
        if arguments.png:
            figure = comparison_figure(found[name], most_overhead=_HALF)
            _draw(figure, arguments.png / f"compare-{profile.graph.model}.png")
    _print_half(found, cases[0].shares.index(_HALF))
    if arguments.json:
        others = read_results(arguments.json) if arguments.json.exists() else {}
        results = {name: _result(comparison) for name, comparison in found.items()}
        write_results(arguments.json, others | results, run, parts=results)


def _result(comparison: Comparison) -> dict[str, Any]:
    kept = ("method", "budget_bytes", "status", "time_ms", "peak_bytes")
    rows = [{key: row[key] for key in kept} for row in comparison.rows()]
    return {"plain_bytes": comparison.plain_bytes, "plain_ms": comparison.plain_ms, "rows": rows}


def _draw(figure: go.Figure, path: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.set_content(figure.to_html(include_plotlyjs=True, default_width=_WIDTH - 20, default_height=_HEIGHT - 20))
        page.wait_for_selector(".legend")
        page.screenshot(path=path)
        browser.close()


def _print_half(found: dict[str, Comparison], at: int) -> None:
    print(f"\nAt half of the peak without recomputation\n{'':36}" + "".join(f"{name:>16}" for name in found))
    first = next(iter(found.values()))
    for number, curve in enumerate(first.curves):
        cells = []
        for comparison in found.values():
            overhead = comparison.overhead(comparison.curves[number].solutions[at])
            cells.append("–" if overhead is None else f"{100 * overhead:+.1f} %")
        print(f"{curve.title:36}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
