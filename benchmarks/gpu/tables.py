"""The tables of docs/gpu.md, from what ``benchmarks.gpu.agenda`` measured, and of docs/devices.md beside it.

    python -m benchmarks.gpu.tables

reads ``benchmarks/results/gpu/``: the folder of an agenda without its profiles and schedules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.markdown import head, line
from benchmarks.provenance import read_results
from benchmarks.report import RESULTS, fill

FOLDER = RESULTS / "gpu"
PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
DEVICES = PAGE.with_name("devices.md")
GIB, MIB = 2**30, 2**20
Row = dict[str, Any]


def main() -> None:
    """Replace them all."""
    fill(
        PAGE, {"runs": runs(), "reserved": reserved(), "rivals": rivals(), "layer": layer(), "identities": identities()}
    )
    fill(DEVICES, {"beside": beside_measured(), "kinds": kinds_of_calls(), "plans": with_plans()})


def runs() -> Iterator[str]:
    """Predicted and measured peak and time of every schedule that was run."""
    yield from head(
        *("model", "budget", "predicted peak, GiB", "measured", "off", "operators' sum, ms", "step, measured", "off"),
        "× plain PyTorch",
    )
    for path in sorted((FOLDER / "runs").glob("*.json")):
        plain, *scheduled = read_results(path)
        for row in scheduled:
            yield line(
                *(_named(path.stem), row["what"]),
                *_compared(row["predicted_peak_bytes"] / GIB, row["peak_bytes"] / GIB, ".3f"),
                *_compared(row["operators_time_ms"], row["step_time_ms"], ".1f"),
                f"{row['step_time_ms'] / plain['step_time_ms']:.3f}",
            )


def reserved() -> Iterator[str]:
    """The same of what the caching allocator holds, with expandable segments and without."""
    yield from head("model", "budget", "allocator", "peak, GiB", "predicted reserved", "measured", "off")
    for folder in ("runs", "runs-caching"):
        for path in sorted((FOLDER / folder).glob("*.json")):
            for row in read_results(path)[1:]:
                yield line(
                    *(_named(path.stem), row["what"], row["allocator"], f"{row['peak_bytes'] / GIB:.2f}"),
                    *_compared(row["predicted_reserved_bytes"] / GIB, row["reserved_peak_bytes"] / GIB, ".2f"),
                )


def rivals() -> Iterator[str]:
    """Other ways to save memory, and ours within the memory of each."""
    yield from head("", "peak, GiB", "step, ms", "ours within it, GiB", "ms", "ours / theirs")
    rows = {x["what"]: x for x in read_results(FOLDER / "rivals-resnet50.json")}
    for what, row in rows.items():
        if not what.startswith("ours"):
            ours = rows[f"ours within {what}"]
            yield line(
                *(what, f"{row['peak_bytes'] / GIB:.2f}", f"{row['step_time_ms']:.1f}"),
                *(f"{ours['peak_bytes'] / GIB:.2f}", f"{ours['step_time_ms']:.1f}"),
                f"{ours['step_time_ms'] / row['step_time_ms']:.2f}",
            )


def layer() -> Iterator[str]:
    """What no other implementation of the layer beats in both workspace and time."""
    yield from head("precision", "part", "implementation", "workspace, MiB", "ms")
    for name, file in (("float32", "layer-float32"), ("TF32", "layer-tf32")):
        for row in _unbeaten(read_results(FOLDER / f"{file}.json")):
            workspace = f"{row['workspace_bytes'] / MIB:.1f}"
            yield line(name, row["part"], row["implementation"], workspace, f"{row['time_ms']:.2f}")


def identities() -> Iterator[str]:
    """Of each model in each precision on each architecture: the graph, and steps followed beside what is predicted."""
    yield from head(
        "model", "precision", "A100", "H200", "operators", "peaks beyond those of storages, MiB", "predicted"
    )
    rows: dict[tuple[str, str], dict[str, Row]] = {}
    for row in read_results(FOLDER / "identities.json"):
        rows.setdefault((row["model"], row["precision"]), {})[row["capability"]] = row
    for (model, precision), found in rows.items():
        alike = (_alike(found.get(x)) for x in ("8.0", "9.0"))
        runs = [x for row in found.values() for x in row["runs"]]
        beyond = [
            _range([(x[key] - x["without_workspace_bytes"]) / MIB for x in runs])
            for key in ("followed_bytes", "with_workspace_bytes")
        ]
        yield line(model, precision, *alike, str(next(iter(found.values()))["operators"]), *beyond)


def _alike(row: Row | None) -> str:
    return "-" if row is None else "another" if row["difference"] else "the same"


def _range(values: list[float]) -> str:
    """The least and the most of some figures, or both at once."""
    told = [f"{x:.2f}" for x in (min(values), max(values))]
    return " to ".join(dict.fromkeys(told))


def _unbeaten(rows: list[Row]) -> Iterator[Row]:
    """By part, then from the largest workspace to the smallest; of equals, the first."""
    for part in dict.fromkeys(x["part"] for x in rows):
        best = float("inf")
        for row in sorted((x for x in rows if x["part"] == part), key=lambda x: (x["time_ms"], x["workspace_bytes"])):
            if row["workspace_bytes"] < best:
                best = row["workspace_bytes"]
                yield row


def _named(stem: str) -> str:
    return stem.replace("-tf32", ", TF32")


def _compared(predicted: float, measured: float, form: str) -> tuple[str, str, str]:
    return f"{predicted:{form}}", f"{measured:{form}}", f"{measured / predicted - 1:+.2%}"


def beside_measured() -> Iterator[str]:
    """Estimates beside the measured profiles: workspaces, peaks, times, and budgets of schedules."""
    yield from head(
        *("profile", "workspaces too low by over 1 MiB", "peak, GiB", "measured", "off", "step, ms", "measured"),
        "schedules of the estimate, in % of their budgets by measured costs: 0.7, 0.5, 0.33 of the peak",
    )
    for row in read_results(FOLDER / "estimates.json"):
        yield line(
            *(row["profile"], f"{row['below']} of {row['calls']}"),
            *_compared(row["estimated_peak_bytes"] / GIB, row["measured_peak_bytes"] / GIB, ".3f"),
            *(f"{row['estimated_ms']:.1f}", f"{row['measured_ms']:.1f}"),
            ", ".join(f"{100 * there / budget:.1f}" for _, budget, _, there in row["schedules"]),
        )


def kinds_of_calls() -> Iterator[str]:
    """Estimated over measured time by kind of call, all profiles together."""
    yield from head("call", "times", "measured, ms", "estimated / measured, all", "by profile, from", "to")
    found: dict[str, list[list[float]]] = {}
    for row in read_results(FOLDER / "estimates.json"):
        of: dict[str, list[tuple[int, float, float]]] = {}
        for kind, amounts in row["kinds"].items():
            of.setdefault(re.sub(r"_\d+$", "", kind), []).append(amounts)
        for kind, amounts in of.items():
            found.setdefault(kind, []).append([sum(x) for x in zip(*amounts, strict=True)])
    total = {kind: [sum(x) for x in zip(*amounts, strict=True)] for kind, amounts in found.items()}
    for kind, (times, estimated_ms, measured_ms) in sorted(total.items(), key=lambda x: -x[1][2]):
        if measured_ms < _SHORT_MS:
            break
        ratios = [mine / theirs for _, mine, theirs in found[kind]]
        yield line(
            *(kind, str(int(times)), f"{measured_ms:.1f}", f"{estimated_ms / measured_ms:.2f}"),
            *(f"{min(ratios):.2f}", f"{max(ratios):.2f}"),
        )


def with_plans() -> Iterator[str]:
    """Schedules of estimated profiles with cuDNN's plans for the device: per cent of the budget."""
    yield from head("profile", "cuDNN", "0.7", "0.5", "0.33", "estimates below the plan", "sums: estimated / planned")
    rows: dict[str, list[Row]] = {}
    for row in read_results(FOLDER / "workspaces.json"):
        rows.setdefault(row["profile"], []).append(row)
    for name, points in sorted(rows.items()):
        peaks = [x["planned_peak_bytes"] for x in points]
        cells = ["-" if y is None else f"{100 * y / x['budget_bytes']:.1f}" for x, y in zip(points, peaks, strict=True)]
        first = points[0]
        version = f"{first['cudnn'] // 10000}.{first['cudnn'] // 100 % 100}"
        ratio = f"{first['estimated_bytes'] / first['planned_bytes']:.2f}" if first["planned_bytes"] else ""
        yield line(name, version, *cells, f"{first['below']} of {first['convolutions']}", ratio)


_SHORT_MS = 1.0
"""Kinds that take less than that in all have no row."""


if __name__ == "__main__":
    main()
