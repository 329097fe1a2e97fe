"""How long the widget takes, and whether the kernel stays free: run without a browser, with the real solver.

    python -m benchmarks.widgets.latency [PROFILE …] [--tier quick]

For each share of the slider's range: from setting the budget to the first schedule in the figures, to the final
one, and the longest time for which the main thread could not run meanwhile. Then what one redraw of every panel costs
and weighs.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks.cases import QUICK_PROFILES, Tier, add_tier
from benchmarks.provenance import record
from explorer import explore
from widgets import Explorer

_TICK_S = 0.002
_REDRAWS = 10
_PROFILES = {Tier.QUICK: QUICK_PROFILES[:1], Tier.FULL: (*QUICK_PROFILES, "resnet50-a100-80gb")}


def main() -> None:
    """Print one line per budget."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help="paths or bundled names, instead of the tier's")
    add_tier(parser)
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.75, 0.5, 0.25])
    arguments = parser.parse_args()
    record(arguments, seeds=())
    for name in arguments.profiles or _PROFILES[arguments.tier]:
        began = time.perf_counter()
        with explore(name) as view:
            print(f"{name}: call returns after {1000 * (time.perf_counter() - began):.0f} ms")
            stalled_s = _watch(view, lambda view: view.solution is not None)[1]
            print(f"  first schedule {time.perf_counter() - began:.2f} s, longest stall {1000 * stalled_s:.0f} ms")
            view.wait()
            for share in arguments.shares:
                print(f"  {share:.2f} of the slider: {_move(view, share)}")
            print(f"  {_redraw(view)}")


def _move(view: Explorer, share: float) -> str:
    """Set a budget and follow what is drawn."""
    slider = view._view.controls.slider  # noqa: SLF001 - what a hand would move
    before = view.solution
    began = time.perf_counter()
    slider.budget_bytes = round(slider.minimum_bytes + share * (slider.maximum_bytes - slider.minimum_bytes))
    returned_s = time.perf_counter() - began
    first_s, first_stall_s = _watch(view, lambda view: view.solution is not before)
    last_s, last_stall_s = _watch(view, lambda view: view.status != "solving")
    return (
        f"returns after {1000 * returned_s:.0f} ms, drawn after {first_s:.2f} s, final after {first_s + last_s:.2f} s, "
        f"longest stall {1000 * max(first_stall_s, last_stall_s):.0f} ms; {view.message}"
    )


def _watch(view: Explorer, until: Any) -> tuple[float, float]:
    """Tick in the main thread, as a kernel that serves other cells would; (seconds, longest gap between ticks)."""
    began = last = time.perf_counter()
    longest_s = 0.0
    while not until(view):
        time.sleep(_TICK_S)
        now = time.perf_counter()
        longest_s, last = max(longest_s, now - last), now
    return time.perf_counter() - began, longest_s


def _redraw(view: Explorer) -> str:
    """Time and size of drawing the present scene again, panel by panel."""
    scene, drawing = view._display.scene, view._view  # noqa: SLF001 - to repeat just that
    assert scene is not None, "waited for"
    told = []
    for name, panel in drawing.panels.items():
        times_s = []
        for _ in range(_REDRAWS):
            began = time.perf_counter()
            panel.show(scene)
            times_s.append(time.perf_counter() - began)
        figure = getattr(getattr(panel, "plot", None), "figure", "")  # two panels have none
        sent_kib = len(figure) / 1024
        told.append(f"{name} {1000 * statistics.median(times_s):.0f} ms, {sent_kib:.0f} KiB")
    return f"a redraw takes: {'; '.join(told)}"


if __name__ == "__main__":
    main()
