"""How the widget feels in a real JupyterLab: latencies as the page sees them, bytes sent, the kernel's freedom.

    python -m benchmarks.widgets.browser [PROFILE …] [--tier quick] [--positions 4]

With the test requirements installed. From the cell that is run to the first true picture and the first schedule. For
positions of the slider: from its release to the pictures redrawn with a schedule for that budget, first for budgets
never asked for, then for the same ones again. A hand that drags the slider: redraws in a second, from each move to the
redrawn picture, the longest time for which the page did nothing else. Then 40 fast key presses and how many solves they
ended in; a selected layer, every tab, a pinned tensor; a cell that computes, without and with a solve beside it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
from playwright.sync_api import Page

from benchmarks.cases import Tier, add_tier
from benchmarks.deep_networks import GPT2_XL, deep_network
from benchmarks.provenance import record
from benchmarks.widgets.jupyterlab_and_browser import lab_and_browser
from tests.ui.lab import Lab

_LONG_MS = 180_000
_PROFILES = {Tier.QUICK: ("resnet50-small-cpu",), Tier.FULL: ("resnet50-small-cpu", "resnet50", GPT2_XL)}
_MAIN = ("timeline", "trade_off", "layers")
_PICTURED = "() => document.querySelector('.schedule-explorer-timeline')?.dataset.drawn"
_ANSWERED = "() => / memory for /.test(document.querySelector('.schedule-explorer-headline .big')?.textContent)"
_PREFETCH_MS = 8000  # in which the page asks for what is known of other budgets
_DRAG_S = 5.0
_CELL = """import time
began = time.perf_counter()
sum(i * i for i in range({count}))
took = time.perf_counter() - began"""

_CELLS = (4_000_000, 24), (20_000_000, 12)
"""Steps of the cell's loop, and turns. A short cell feels most that the first schedule is drawn."""
_BESIDE = {"none": None, "a solve that begins": 0.0, "a solve of half a second": 0.5}
"""What goes on beside the cell, and for how long it did when the cell begins."""
_APART_BYTES = 1 << 24  # between two budgets of one turn: neither is known
_COUNTER = "import os\nos.nice(19)\nwhile True: pass"
"""Of no relation to us, and as nice as our solver: what that costs is the machine's."""

_RELEASE = """async ([value, names]) => {
  const box = document.querySelector(".schedule-explorer");
  const range = box.querySelector("input[type=range]");
  const plots = names.map((name) => box.querySelector(`.schedule-explorer-${name}`));
  const shown = () => plots[0].dataset.known === "false" && plots[0].dataset.budget;
  const before = plots.map((plot) => Number(plot.dataset.drawn));
  const began = performance.now();
  range.dispatchEvent(new PointerEvent("pointerdown"));
  range.value = value;
  range.dispatchEvent(new Event("change"));
  while (!(plots.every((plot, i) => Number(plot.dataset.drawn) > before[i]) && shown() === range.value)) {
    await new Promise((go) => setTimeout(go, 5));
    if (performance.now() - began > 60000) throw new Error("no new drawing within a minute");
  }
  return performance.now() - began;
}"""

_DRAG = """async ([seconds]) => {
  const box = document.querySelector(".schedule-explorer");
  const range = box.querySelector("input[type=range]");
  const plot = box.querySelector(".schedule-explorer-timeline");
  const [low, high, before] = [Number(range.min), Number(range.max), range.value];
  const drawn = () => Number(plot.dataset.drawn);
  const frame = () => new Promise((go) => requestAnimationFrame(go));
  let [redraws, moves, longest] = [0, [], 0];
  range.dispatchEvent(new PointerEvent("pointerdown"));
  const began = performance.now();
  for (let i = 0; performance.now() - began < 1000 * seconds; i += 1) {
    const [count, at] = [drawn(), performance.now()];
    range.value = low + (high - low) * (0.5 + 0.5 * Math.cos(i / 9));
    range.dispatchEvent(new Event("input"));
    while (drawn() === count && performance.now() - at < 2000) await frame();
    redraws += drawn() - count;
    moves.push(performance.now() - at);
    longest = Math.max(longest, performance.now() - at);
  }
  const took = (performance.now() - began) / 1000;
  range.value = before;
  range.dispatchEvent(new Event("change"));
  moves.sort((a, b) => a - b);
  return [redraws / took, moves[Math.floor(moves.length / 2)], longest];
}"""

_PIN = """(lambda graph: view.pin({max(
    (x for x in graph.storages if x.id in graph.producer and not x.held and
     graph.producer[x.id] < graph.forward_count and x.role == "activation"),
    key=lambda x: x.bytes).name: "recompute"}))(view._display.scene.profile.graph)"""

_DRAWN = """([name, before]) => {
  const plot = document.querySelector(`.schedule-explorer .schedule-explorer-${name}`);
  return Number(plot?.dataset.drawn ?? 0) > before;
}"""


def main() -> None:
    """Print one block for each profile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profiles", nargs="*", help=f"paths, bundled names, or {GPT2_XL}: 1,410 operators")
    add_tier(parser)
    parser.add_argument("--positions", type=int, help="default: 8, or 2 if quick")
    arguments = parser.parse_args()
    record(arguments, seeds=())
    quick = arguments.tier is Tier.QUICK
    positions = arguments.positions or (2 if quick else 8)
    with lab_and_browser() as (lab, browser):
        for name in arguments.profiles or _PROFILES[arguments.tier]:
            if name == GPT2_XL:
                deep_network(name).save(lab.root / f"{name}.json")
            page = browser.new_page(viewport={"width": 1440, "height": 1700})
            _profile(lab, page, name, positions, cells=() if quick else _CELLS)


def _profile(lab: Lab, page: Page, name: str, positions: int, *, cells: tuple[tuple[int, int], ...]) -> None:
    path = str(Path(name).resolve()) if Path(name).exists() else f"{name}.json" if name == GPT2_XL else name
    opening = (
        f"import explorer\nview = explorer.explore({path!r})\nended = []\n"
        "view.observe(lambda change: ended.append(view.message), 'message')\nview"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(opening)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, lab.root / "bench.ipynb")
    received: list[int] = []
    errors: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda data: received.append(len(data))))
    page.on("pageerror", lambda error: errors.append(str(error)))
    began = time.perf_counter()
    lab.open(page, "bench.ipynb")
    lab_s = time.perf_counter() - began
    began = time.perf_counter()
    page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_function(
        "() => document.querySelector('.schedule-explorer-timeline')?.dataset.drawn", timeout=_LONG_MS
    )
    picture_s = time.perf_counter() - began
    page.wait_for_function(_ANSWERED, timeout=_LONG_MS)
    answer_s = time.perf_counter() - began
    _settled(lab, page)
    print(
        f"{name}: page and kernel after {lab_s:.1f} s; from the cell to the first picture {picture_s:.1f} s, to the "
        f"first schedule {answer_s:.1f} s; {sum(received) / 1e6:.1f} MB sent to the page"
    )
    low, high = (int(lab.ask(page, f"view._view.controls.slider.{x}_bytes")) for x in ("minimum", "maximum"))
    values = [low + (high - low) * (i + 1) // (positions + 1) for i in range(positions)]
    for label in ("first valid schedule", "known answer"):
        took = []
        for value in values:
            took.append(page.evaluate(_RELEASE, [value, _MAIN]))
            _settled(lab, page)
        print(f"  release to redrawn, {label}: median {statistics.median(took):.0f} ms, longest {max(took):.0f} ms")
    page.wait_for_timeout(_PREFETCH_MS)
    redraws, move_ms, longest_ms = page.evaluate(_DRAG, [_DRAG_S])
    told = f"{redraws:.0f} redraws a second, {move_ms:.0f} ms from a move to its picture, longest {longest_ms:.0f} ms"
    print(f"  a hand that drags the budget: {told}")
    _settled(lab, page)
    _keys(lab, page)
    box = page.locator(".schedule-explorer").first
    names = [x for x in box.get_by_label("Layer", exact=True).locator("option").all_inner_texts() if x != "none"]
    acts: dict[str, tuple[str, Callable[[], object]]] = {
        "a layer selected": (
            "timeline",
            lambda: box.get_by_label("Layer", exact=True).select_option(names[len(names) // 2]),
        ),
        "the matrix opened": ("matrix", lambda: box.get_by_role("tab", name="Schedule matrix").click()),
        "the solver opened": ("solver", lambda: box.get_by_role("tab", name="Solver").click()),
        "the largest tensor pinned": ("timeline", lambda: lab.ask(page, _PIN)),
    }
    for label, (plot, act) in acts.items():
        print(f"  {label}: redrawn after {1000 * _redrawn(page, plot, act):.0f} ms")
    _settled(lab, page)
    for count, turns in cells:
        print(f"  {_freedom(lab, page, low, high, count=count, turns=turns)}")
    print(f"  errors of the page: {errors or 'none'}")
    page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
    page.close()


def _settled(lab: Lab, page: Page) -> None:
    """Wait until the solver has ended, and the curve is there."""
    while lab.ask(page, "bool(view._work.activity.kinds)") == "True":
        time.sleep(0.1)


def _redrawn(page: Page, plot: str, act: Callable[[], object]) -> float:
    """Seconds from an act to a new drawing of one plot."""
    before = page.evaluate(f"Number(document.querySelector('.schedule-explorer-{plot}')?.dataset.drawn ?? 0)")
    began = time.perf_counter()
    act()
    page.wait_for_function(_DRAWN, arg=[plot, before], polling=10)
    return time.perf_counter() - began


def _keys(lab: Lab, page: Page) -> None:
    count = "sum(x.startswith(('Optimal', 'Solved')) for x in ended)"
    before = int(lab.ask(page, count))
    page.locator(".schedule-explorer input[type=range]").focus()
    began = time.perf_counter()
    for _ in range(40):
        page.keyboard.press("ArrowLeft")
    took = time.perf_counter() - began
    time.sleep(0.5)
    _settled(lab, page)
    print(f"  40 keys within {took:.2f} s: {int(lab.ask(page, count)) - before} finished solve(s)")


def _freedom(lab: Lab, page: Page, low: int, high: int, *, count: int, turns: int) -> str:
    """The same cell alone, beside a solve and beside a process that only counts, in turn.

    Neighbours of a rented machine make some turns slower by half, those of a cell alone as well; the quickest quarter
    of the turns is nearly free of that, the median is not.
    """
    code = f"exec({_CELL.format(count=count)!r}) or took"
    took: dict[str, list[float]] = {}
    for turn in range(turns):
        for place, (label, since_s) in enumerate(_BESIDE.items()):
            _settled(lab, page)
            if since_s is not None:
                budget_bytes = low + (high - low) * (turn + 2) // (turns + 4) + count % 997 + place * _APART_BYTES
                lab.ask(page, f"setattr(view, 'budget_bytes', {budget_bytes})")
                time.sleep(since_s)
            took.setdefault(label, []).append(float(lab.ask(page, code)))
        _settled(lab, page)
        with subprocess.Popen([sys.executable, "-c", _COUNTER], process_group=0) as counter:
            time.sleep(0.3)
            took.setdefault("a process that counts", []).append(float(lab.ask(page, code)))
            counter.kill()
    alone = took.pop("none")
    ratios = [
        f"{label} {_quarter(x) / _quarter(alone):.2f} (medians {statistics.median(x) / statistics.median(alone):.2f})"
        for label, x in took.items()
    ]
    return f"a cell of {1000 * _quarter(alone):.0f} ms takes of that beside " + ", ".join(ratios) + f" ({turns} turns)"


def _quarter(values: list[float]) -> float:
    return statistics.quantiles(values, n=4)[0]


if __name__ == "__main__":
    main()
