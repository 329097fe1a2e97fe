"""The figures of docs/figures.md, from the results of the other benchmarks.

    python -m benchmarks.report

after those of ``TABLES``, each with ``--json benchmarks/results/NAME.json``. Each table stands between two comments
with its name and is replaced; the words around them stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.compiled_tables import compiled_choice, compiled_layouts, compiled_peaks
from benchmarks.markdown import MIB, Rows, head, line
from benchmarks.provenance import read_results

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "figures.md"
_SLOWEST = 5
"""Placements of schedules that have rows of their own."""
_TENSORS = "tensors alone"  # in place of a model
_WORTH = 0.005
"""Of the peak: below, an order has no row of its own."""


def main() -> None:
    """Replace every table whose results are there."""
    there = {name: RESULTS / f"{name}.json" for name in TABLES}
    fill(PAGE, {name: TABLES[name](read_results(file)) for name, file in there.items() if file.exists()})


def fill(page: Path, tables: Mapping[str, Iterable[str]]) -> None:
    """Put tables between the comments of a page that have their names."""
    text = page.read_text(encoding="utf-8")
    for name, lines in tables.items():
        table = "\n".join(lines)
        parts = f"(<!-- {name}: begin -->).*(<!-- {name}: end -->)"
        text = re.sub(parts, lambda found, table=table: f"{found[1]}\n{table}\n{found[2]}", text, flags=re.DOTALL)
        print(name)
    page.write_text(text, encoding="utf-8")


def end_to_end(rows: Rows) -> Iterable[str]:
    """Predicted and measured, a row for each budget."""
    yield from head(
        *("model", "budget", "MiB", "status", "gap", "same bits", "predicted peak, MiB", "measured", "error"),
        *("predicted time", "measured time"),
    )
    for row in rows:
        eager_ms = row["measured_time_ms"] / row["time_over_eager"]
        yield line(
            *(row["model"], row["budget"], f"{row['budget_bytes'] / MIB:.1f}", row["status"]),
            *("" if row["gap"] is None else f"{row['gap']:.1%}", "yes" if row["bit_equal"] else "NO"),
            *(f"{row[key] / MIB:.2f}" for key in ("predicted_peak_bytes", "measured_peak_bytes")),
            f"{abs(row['predicted_peak_bytes'] / row['measured_peak_bytes'] - 1):.3%}",
            *(f"{row['predicted_time_ms'] / eager_ms:.3f} ×", f"{row['time_over_eager']:.3f} ×"),
        )


def optimizations(reports: Rows) -> Iterable[str]:
    """Overheads of each set at each share of the peak, and the smallest budgets."""
    shares = sorted({point["share"] for report in reports for point in report["points"]})
    yield from head("model", "may be chosen", *map(str, shares), "smallest", "measured at 0.5")
    for report in reports:
        for chosen, points in groupby(report["points"], lambda x: x["optimizations"]):
            found = {x["share"]: x["overhead"] for x in points}
            cells = ("-" if found[x] is None else f"{found[x]:+.1%}" for x in shares)
            smallest = report["smallest_bytes"][chosen] / report["peak_bytes"]
            measured = report["measured"].get(chosen)
            ratio = "" if measured is None else f"{measured[0]:.3f} ×"
            yield line(report["model"], chosen, *cells, f"{smallest:.3f}", ratio)


def transformers(rows: Rows) -> Iterable[str]:
    """What each kind is worth to language models: by itself, and what is lacking without it."""
    names = list(dict.fromkeys(x["kind"] for row in rows for x in row["kinds"]))
    names = [x for x in names if not x.startswith("all")]
    figures = {f"at {x}": partial(_overhead_at, number) for number, x in enumerate(rows[0]["shares"])}
    for title, figure in {**figures, "smallest budget": lambda x: f"{x['smallest']:.3f}"}.items():
        yield from ("", f"{title}:", "")
        yield from head("profile", "may be chosen", *names, "all")
        for row in rows:
            kinds = {x["kind"]: x for x in row["kinds"]}
            for how, before in (("that alone", ""), ("all but that", "all but ")):
                cells = [figure(kinds[before + x]) if before + x in kinds else "" for x in names]
                yield line(row["profile"], how, *cells, figure(kinds["all"]))


def _overhead_at(number: int, kind: dict[str, Any]) -> str:
    overhead = kind["overheads"][number]
    return "-" if overhead is None else f"{overhead:+.1%}"


def fusing(rows: Rows) -> Iterable[str]:
    """What kernels of chains are worth, over plain PyTorch's time and peak."""
    shares = rows[0]["shares"]
    yield from head("model", "chains", "kernels", "may be chosen", *(f"at {x:g}" for x in shares), "smallest budget")
    for row in rows:
        for number, (way, times) in enumerate(row["times"].items()):
            begin = (row["model"], str(row["chains"]), str(row["kernels"])) if not number else ("", "", "")
            cells = ["-" if x is None else f"{x - 1:+.1%}" for x in times]
            yield line(*begin, way, *cells, f"{row['smallest'][way]:.3f}")


def published(rows: Rows) -> Iterable[str]:
    """Published objectives, and ours after each time."""
    seconds = sorted({x["seconds"] for x in rows})
    yield from head(
        *("instance", "GiB", "published, ms", "bound", "in s"),
        *(f"after {x:g} s" for x in seconds),
        *("bound", "gap"),
    )
    for (instance, budget), group in groupby(rows, lambda x: (x["instance"], x["budget_gib"])):
        found = {x["seconds"]: x for x in group}
        last = found[max(found)]
        yield line(
            *(instance, f"{budget:g}", *_publication(last)),
            *(_ours(found[x]) if x in found else "" for x in seconds),
            *("", "") if last["objective_ms"] is None else _proof(last),
        )


def _publication(row: dict[str, Any]) -> tuple[str, ...]:
    known = (row["published_ms"], row["published_bound_ms"], row["published_s"])
    digits = (2, 2, 0)
    return tuple("-" if x is None else f"{x:.{n}f}" for x, n in zip(known, digits, strict=True))


def _ours(row: dict[str, Any]) -> str:
    if row["objective_ms"] is None:
        return (
            row["status"] if row["minimum_gib"] is None else f"{row['status']}, smallest {row['minimum_gib']:.2f} GiB"
        )
    if row["published_ms"] is None:
        return f"{row['objective_ms']:.2f}"
    return f"{row['objective_ms']:.2f} ({row['objective_ms'] / row['published_ms'] - 1:+.2%})"


def _proof(row: dict[str, Any]) -> tuple[str, str]:
    return f"{row['bound_ms']:.2f}", f"{1 - row['bound_ms'] / row['objective_ms']:.1%}"


def program_sizes(rows: Rows) -> Iterable[str]:
    """Rows, columns and nonzeros of each formulation, before and after presolve."""
    sizes = ("rows", "columns", "nonzeros")
    yield from head("instance", "GiB", "formulation", *sizes, *(f"{x}, presolved" for x in sizes))
    for row in rows:
        counts = [row[when].get(x) for when in ("before", "after") for x in sizes]
        cells = ("" if x is None else f"{x:,}" for x in counts)
        yield line(row["instance"], row["gib"], row["formulation"], *cells)


def training_run(losses: dict[str, list[float]]) -> Iterable[str]:
    """Every seventh loss of each run."""
    yield from head("step", *losses)
    for number in range(0, len(next(iter(losses.values()))), 7):
        yield line(str(number), *(f"{found[number]:.6f}" for found in losses.values()))


def compare(profiles: dict[str, Any]) -> Iterable[str]:
    """Overhead of each method at half of the peak without recomputation."""
    from explorer.solvers.methods.table import METHODS

    yield from head("method", *profiles)
    compared = set.intersection(*({x["method"] for x in found["rows"]} for found in profiles.values()))
    for method in (x for x in METHODS.values() if x.name in compared):
        cells = []
        for found in profiles.values():
            half = int(0.5 * found["plain_bytes"])
            row = next(x for x in found["rows"] if x["method"] == method.name and x["budget_bytes"] == half)
            none = "-" if row["status"] in ("infeasible", "unsuited") else "?"
            cells.append(none if row["time_ms"] is None else f"{row['time_ms'] / found['plain_ms'] - 1:+.1%}")
        yield line(method.title, *cells)


def run_methods(rows: Rows) -> Iterable[str]:
    """For each method its schedules' times and peaks by model, and how far off peaks and gradients were at most."""
    models = list(dict.fromkeys(x["model"] for x in rows))
    yield from head("method", *models, "largest error of a peak", "gradients")
    for method in dict.fromkeys(x["method"] for x in rows):
        found = [x for x in rows if x["method"] == method]
        error = max(abs(x["measured_peak_bytes"] / x["predicted_peak_bytes"] - 1) for x in found)
        difference = max(x["gradient_difference"] for x in found)
        gradients = "same bits" if difference == 0 else f"within {difference:.0e}"
        yield line(method, *(_times_and_peaks(found, model) for model in models), f"{error:.3%}", gradients)


def _times_and_peaks(rows: Rows, model: str) -> str:
    found = (x for x in rows if x["model"] == model)
    return ", ".join(f"{x['time_over_plain']:.2f} ({x['peak_over_plain']:.2f})" for x in found) or "-"


def dominance(rows: Rows) -> Iterable[str]:
    """For each profile how many schedules of other methods were held against MONeT's."""
    verdicts = ("holds", "within the gap", "broken")
    yield from head("profile", "comparisons", *verdicts, "largest advantage over MONeT")
    for profile, group in groupby(sorted(rows, key=lambda x: x["profile"]), lambda x: x["profile"]):
        found = list(group)
        counts = [sum(x["verdict"] == word for x in found) for word in verdicts]
        ahead = [(1 - x["time_ms"] / x["monet_ms"], x["method"]) for x in found if x["monet_ms"] is not None]
        most, method = max(ahead, default=(0.0, ""))
        cell = f"{most:.2%} ({method})" if most > 1e-6 else "none"
        yield line(profile, str(len(found)), *map(str, counts), cell)


def checkmate(rows: Rows) -> Iterable[str]:
    """Checkmate's published instances: theirs and ours."""
    yield from head("instance", "GiB", "published, ms", "bound", "ours", "bound", "in s")
    for row in rows:
        theirs = row["published_status"] if row["published_ms"] is None else f"{row['published_ms']:.2f}"
        known = (row["published_bound_ms"], row["bound_ms"])
        bounds = ["-" if x is None or x == float("inf") else f"{x:.2f}" for x in known]
        ours = row["status"]
        if row["rounded_ms"] is not None:
            ours = f"{row['rounded_ms']:.2f} ({row['rounded_ms'] / row['published_ms'] - 1:+.2%})"
        yield line(
            row["instance"], f"{row['budget_gib']:g}", theirs, bounds[0], ours, bounds[1], f"{row['elapsed_s']:.0f}"
        )


def beside_compile(rows: Rows) -> Iterable[str]:
    """Transformers beside torch.compile: peaks and times."""
    yield from head(
        *("model", "eager", "`torch.compile`", "ours at that peak", "× its time"),
        *("ours inside `torch.compile`", "× its time", "ours, smallest", "× its peak"),
    )

    def cell(row: dict[str, Any], which: str) -> str:
        return f"{row[f'{which}_bytes'] / 2**20:.0f} MiB, {row[f'{which}_ms']:.0f} ms"

    for row in rows:
        eager, compiled, there, chosen, least = (
            "-" if row.get(f"{x}_ms") is None else cell(row, x)
            for x in ("eager", "compiled", "at_compiled", "chosen", "least")
        )
        times = [
            "-" if row.get(f"{x}_ms") is None else f"{row[f'{x}_ms'] / row['compiled_ms']:.2f}"
            for x in ("at_compiled", "chosen")
        ]
        smallest = f"{row['least_bytes'] / row['compiled_bytes']:.2f}"
        yield line(row["model"], eager, compiled, there, times[0], chosen, times[1], least, smallest)


def exported(rows: Rows) -> Iterable[str]:
    """Files beside the executor."""
    yield from head("model", "budget, MiB", "lines", "same bits", "peak, MiB", "of the file", "time, × ours", "equals")
    for row in rows:
        peaks = (f"{row[key] / MIB:.3f}" for key in ("peak_bytes", "peak_of_file_bytes"))
        yield line(
            *(row["model"], f"{row['budget_bytes'] / MIB:.1f}", str(row["lines"]), "yes" if row["same_bits"] else "NO"),
            *(*peaks, f"{row['ratio']:.3f} ± {row['error']:.3f}", f"{row['ratio_of_equals']:.3f}"),
        )


def order(rows: Rows) -> Iterable[str]:
    """What the order of operators saves; models and batches at which no order saves anything as one sentence."""
    (random,) = (x for x in rows if "equal" in x)
    gains = [x for row in rows if row["model"] != _TENSORS for x in row.get("gains", ())]
    worth = [x for x in gains if x["most"] >= _WORTH]
    yield from head(
        *("model", "batch", "optimizer", "peak, MiB", "updates within", "best order", "at most", "seconds"),
        "forward and backward alone",
    )
    for x in worth:
        own_bytes = x["peak_bytes"] - x["library_bytes"]
        yield line(
            *(x["model"], str(x["batch"]), x["optimizer"], f"{own_bytes / MIB:.1f}"),
            *(f"{-100 * x[key]:+.1f}%" for key in ("within", "order", "most")),
            *(f"{x['seconds']:.2f}", f"{-100 * x['step']:+.1f}%"),
        )
    rest: dict[str, list[str]] = {}
    for x in gains:
        if x["most"] < _WORTH:
            rest.setdefault(x["model"], []).append(f"{x['batch']} ({x['optimizer']})")
    yield ""
    told = "; ".join(f"{name} at {', '.join(batches)}" for name, batches in rest.items())
    yield f"At most {_WORTH:.1%} is possible, and proven so: {told}."
    yield f"Of {random['count']} random tasks {random['equal']} orders are as good as any, {random['proven']} proven."
    yield ""
    yield "Of the bytes of tensors alone, with no workspace, which is what the literature counts:"
    yield ""
    yield from head("model", "batch", "optimizer", "peak, MiB", "updates within", "best order", "at most")
    for x in (x for row in rows if row["model"] == _TENSORS for x in row["gains"]):
        shares = (f"{-100 * x[key]:+.1f}%" for key in ("within", "order", "most"))
        yield line(x["model"], str(x["batch"]), x["optimizer"], f"{x['peak_bytes'] / MIB:.1f}", *shares)
    yield ""
    yield from _joint(rows)


def _joint(rows: Rows) -> Iterable[str]:
    """MONeT with updates at the end, within the backward pass, and in another order."""
    yield from head("model", "batch", "budget over the peak", "updates at the end", "within", "within, ordered first")
    for x in (x for row in rows for x in row.get("joint", ())):
        found = ("-" if x[key] is None else f"{x[key]:+.2%}" for key in ("end", "within", "ordered"))
        yield line(x["model"], str(x["batch"]), str(x["share"]), *found)


def reserved(rows: Rows) -> Iterable[str]:
    """Reserved memory over the peak by allocator, and what budgets of three kinds cost."""
    schedules = [x for row in rows for x in row["schedules"]]
    yield from head(
        *("profile", "schedule", "peak, GiB", "reserved", "device", "flushes"),
        *("expandable: reserved", "device", "flushes", "placed"),
    )
    for (name, whose), both in groupby(schedules, key=lambda x: (x["profile"], x["schedule"])):
        cells: list[str] = []
        for x in both:
            amounts = (x[key] / x["peak_bytes"] - 1 for key in ("reserved_bytes", "device_bytes", "placed_bytes"))
            over = [f"{100 * amount:+.1f}%" for amount in amounts]
            cells += [f"{x['peak_bytes'] / 2**30:.2f}"] if not cells else []
            cells += [over[0], over[1], str(x["flushes"])]
        yield line(name, whose, *cells, over[2])
    yield ""
    kinds = ("allocated", "device", "without mixing", "device, expandable", "reserved", "without mixing")
    yield from head("profile", *kinds, "reserved, expandable")
    asked = [(of, x, mixing) for of in ("device", "reserved") for x, mixing in (("caching", True), ("caching", False))]
    asked = [("allocated", "caching", True), *asked[:2], ("device", "expandable", True), *asked[2:]]
    for row in rows:
        found = {(x["of"], x["allocator"], x.get("mixing", True)): x["overhead"] for x in row["budgets"]}
        found |= {x: None for x in asked if x not in found}
        overheads = (found[x] for x in (*asked, ("reserved", "expandable", True)))
        yield line(row["profile"], *("-" if x is None else f"{100 * x:+.2f}%" for x in overheads))


def addresses(rows: Rows) -> Iterable[str]:
    """Placements of schedules, those that took longest; and of MiniMalloc's instances."""
    schedules = [x for x in rows if x["kind"] == "schedule"]
    exact = sum(x["over"] == 0 for x in schedules)
    slow = sorted(schedules, key=lambda x: -x["seconds"])[:_SLOWEST]
    yield f"Of {len(schedules)} schedules {exact} lie in exactly their load. Those that took longest:"
    yield ""
    yield from _placed(slow)
    yield ""
    yield from _placed([x for x in rows if x["kind"] == "instance"])


def _placed(rows: Rows) -> Iterable[str]:
    yield from head("", "blocks", "buffer", "seconds")
    for x in rows:
        fits = "fits" if x["kind"] == "instance" else "exactly the load"
        over = fits if x["over"] <= 0 else f"{x['over']:+.2%}"
        yield line(x["name"], str(x["blocks"]), over, f"{x['seconds']:.2f}")


TABLES: dict[str, Callable[[Any], Iterable[str]]] = {
    "end_to_end": end_to_end,
    "optimizations": optimizations,
    "transformers": transformers,
    "fusing": fusing,
    "published": published,
    "program_sizes": program_sizes,
    "training_run": training_run,
    "compare": compare,
    "run_methods": run_methods,
    "beside_compile": beside_compile,
    "compiled_choice": compiled_choice,
    "compiled_layouts": compiled_layouts,
    "compiled_peaks": compiled_peaks,
    "exported": exported,
    "dominance": dominance,
    "checkmate": checkmate,
    "order": order,
    "reserved": reserved,
    "addresses": addresses,
}


if __name__ == "__main__":
    main()
