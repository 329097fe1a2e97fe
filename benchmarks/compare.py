"""Every method on the same profiles: overheads by budget as a table, and a figure for each profile.

Run: ``python benchmarks/compare.py PROFILE … [--methods monet,checkmate-d,…] [--shares 0.4,0.5,…] [--seconds 10]
[--png FOLDER] [--json FILE]``.

A profile is a file or a bundled name; shares are of the peak without recomputation. Times are the profile's. Pictures
are taken by Chromium. A JSON file is added to: a profile's rows replace those it has.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from explorer import keep_all, load_profile, simulate, trade_off
from explorer.solvers.comparison import Comparison
from explorer.solvers.methods import METHODS
from widgets.plots.methods_plot import comparison_figure

_SHARES = "0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0"
_HALF = 0.5
_WIDTH, _HEIGHT = 900, 520


def main() -> None:
    """Print a table for each profile, and one of all at half of the peak."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="+")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--shares", default=_SHARES)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each method and budget")
    parser.add_argument("--png", type=Path, help="write a picture for each profile into this folder")
    parser.add_argument("--json", type=Path, help="also write the results here")
    arguments = parser.parse_args()
    shares = sorted({_HALF, *(float(x) for x in arguments.shares.split(","))})
    found: dict[str, Comparison] = {}
    for source in arguments.profiles:
        profile, name = load_profile(source), Path(source).stem
        plain_bytes = simulate(profile, keep_all(profile.graph)).peak_bytes
        found[name] = trade_off(
            profile,
            methods=arguments.methods.split(","),
            budgets=[int(share * plain_bytes) for share in shares],
            time_limit=arguments.seconds,
        )
        print(f"\n{name}, extra time against no recomputation\n{found[name].table()}", flush=True)
        if arguments.png:
            figure = comparison_figure(found[name], most_overhead=_HALF)
            _draw(figure, arguments.png / f"compare-{profile.graph.model}.png")
    _print_half(found, shares.index(_HALF))
    if arguments.json:
        results = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
        results |= {name: _result(comparison) for name, comparison in found.items()}
        arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


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
