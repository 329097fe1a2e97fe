"""What a GPU's folder of results says, in words: ``python -m benchmarks.gpu.page FOLDER`` writes FOLDER/page.md.

Each section answers one question from the files that are there: what agreed with what was predicted, what did not, and
why, as far as measurements tell. Of a simulated device no times are shown, and bytes are called simulated.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.markdown import head, line
from explorer.caching_allocator import LARGE_SEGMENT_BYTES

MIB, GIB = 2**20, 2**30
PEAK = 0.01
"""Predicted peaks within this share agree: as ``tests.gpu`` has it."""
TIME = 0.15
"""Likewise times."""
RESERVED = 0.05
"""Likewise what the allocator reserves."""
PAGE_BYTES = LARGE_SEGMENT_BYTES
"""What the allocator reserves at once: a page more or less is no difference."""
SIMULATED = "simulated device"
"""How the device of ``tests/fake_cuda`` is called."""
_SAID = 200
"""Letters of an error."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """A folder of the agenda.

    Attributes:
        folder: where.
        files: what the files of results hold, by path in the folder.
        errors: of pieces that failed, the last line, by path.
        answers: of those that are impossible, why.
    """

    folder: Path
    files: dict[str, Row]
    errors: dict[str, str]
    answers: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path) -> Results:
        """Read it; files of profiles and schedules are not looked into."""
        paths = {str(x.relative_to(folder)): x for x in sorted(folder.rglob("*.json"))}
        read = {name: json.loads(path.read_text(encoding="utf-8")) for name, path in paths.items()}
        files = {name: x for name, x in read.items() if isinstance(x, dict) and "results" in x and "device" in x}
        errors = {
            str(x.relative_to(folder)).removesuffix(".error.txt"): x.read_text(encoding="utf-8")
            .strip()
            .splitlines()[-1]
            for x in sorted(folder.rglob("*.error.txt"))
        }
        answers = tuple(x.read_text(encoding="utf-8").strip() for x in sorted(folder.rglob("*.none.txt")))
        return cls(folder, files, errors, answers)

    @property
    def simulated(self) -> bool:
        """Is nothing in it from a GPU?"""
        return bool(self.files) and all(map(self.is_simulated, self.files))

    def is_simulated(self, name: str) -> bool:
        """Is this file from no GPU?"""
        return self.files[name]["device"]["name"] == SIMULATED

    def rows(self, under: str) -> dict[str, Any]:
        """Results of the files whose path begins so, by path."""
        return {name: x["results"] for name, x in self.files.items() if name.startswith(under)}


def main() -> None:
    """Write it."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(write_page(Path(sys.argv[1])))


def write_page(folder: Path) -> Path:
    """The page of a folder, put there.

    Returns:
        Its path.
    """
    page = folder / "page.md"
    page.write_text("\n".join(_page(Results.of(folder))) + "\n", encoding="utf-8")
    return page


def _page(results: Results) -> Iterator[str]:
    yield from ("# What a GPU says to what was predicted", "")
    yield from _circumstances(results)
    sections = {"Checks": checks, "One convolution": layer, "Schedules, run": runs, "Other ways to save memory": rivals}
    sections |= {"Memory over a step": timeline, "What is not here": missing}
    for title, section in sections.items():
        yield from ("", f"## {title}", "", *section(results))


def _circumstances(results: Results) -> Iterator[str]:
    if not results.files:
        yield "Nothing has been measured yet."
        return
    if results.simulated:
        yield (
            "**Made from a simulation: no GPU took part.** A CPU computed the values, a model of PyTorch's caching "
            "allocator gave the bytes, and workspaces of libraries are made up. So it shows what this page will say, "
            "and that the code runs; it says nothing of any GPU, and times are left out."
        )
        yield ""
    elif any(map(results.is_simulated, results.files)):
        yield (
            "**In part made from a simulation**: where it says simulated, no GPU took part. A model of PyTorch's "
            "caching allocator gave those bytes; they say nothing of any GPU, and have no times."
        )
        yield ""
    seen = {json.dumps(x["device"], sort_keys=True): x["device"] for x in results.files.values()}
    by_name = {(x["name"], x["torch_version"], x.get("driver", "")): x for x in seen.values()}
    for (name, version, driver), device in by_name.items():
        parts = [f"{device['memory_bytes'] / GIB:.0f} GiB", f"PyTorch {version}"]
        parts += [f"driver {driver}"] if driver else []
        parts += [device["note"]] if device.get("note") and name != SIMULATED else []
        yield f"- **{name}**: {', '.join(parts)}"
    dates = sorted(run["date"] for x in results.files.values() for run in x["provenance"])
    commits = {run["commit"][:10] or "unknown" for x in results.files.values() for run in x["provenance"]}
    yield f"- from {dates[0]} to {dates[-1]}, at commit {', '.join(sorted(commits))}"


def checks(results: Results) -> Iterator[str]:
    """Which passed, and what the others said."""
    rows = [
        {**row, "name": f"{row['name']} (simulated)"} if results.is_simulated(name) and not results.simulated else row
        for name, row in results.rows("checks/").items()
    ]
    if not rows:
        yield "No check has run yet."
        return
    of = {status: [x for x in rows if x["status"] == status] for status in ("passed", "failed", "skipped")}
    if of["failed"]:
        yield f"{len(of['failed'])} of {len(rows)} checks **failed**; {len(of['passed'])} passed:"
        yield ""
        yield from (f"- **{x['name']}**: {x['said']}" for x in of["failed"])
    else:
        yield f"All {len(of['passed'])} checks that could run passed: {'; '.join(x['name'] for x in of['passed'])}."
    reasons: dict[str, list[str]] = {}
    for row in of["skipped"]:
        reasons.setdefault(row["said"], []).append(row["name"])
    for reason, names in reasons.items():
        yield from ("", f"Not run, {reason}: {'; '.join(names)}.")


def layer(results: Results) -> Iterator[str]:
    """Does the layer of MONeT's figure 7 trade workspace for time?"""
    found = results.rows("layer-")
    if not found:
        yield "The layer of MONeT's figure 7 has not been measured yet."
        return
    for name, rows in found.items():
        precision = "TF32" if "tf32" in name else "float32"
        for part in dict.fromkeys(x["part"] for x in rows):
            of_part = [x for x in rows if x["part"] == part]
            yield f"- {precision}, {part.replace('_', ' ')}: {_traded(of_part, simulated=results.is_simulated(name))}"


def _traded(rows: list[Row], *, simulated: bool) -> str:
    least = min(rows, key=lambda x: (x["workspace_bytes"], x["time_ms"]))
    if simulated:
        most = max(x["workspace_bytes"] for x in rows)
        return (
            f"{len(rows)} ways to run it, with {least['workspace_bytes'] / MIB:.1f} to {most / MIB:.1f} MiB (simulated)"
        )
    quickest = min(rows, key=lambda x: (x["time_ms"], x["workspace_bytes"]))
    told = f"{quickest['implementation']} is the quickest, {_cost(quickest)}"
    if quickest["workspace_bytes"] - least["workspace_bytes"] <= MIB:
        return f"{told}, and none takes less memory: **no trade-off here**"
    slower = least["time_ms"] / quickest["time_ms"] - 1
    return f"{told}; with the least memory, {least['implementation']}, {_cost(least)}, {slower:+.0%}"


def _cost(row: Row) -> str:
    return f"{row['time_ms']:.2f} ms with {row['workspace_bytes'] / MIB:.1f} MiB"


def runs(results: Results) -> Iterator[str]:
    """Predicted and measured, of every schedule that was run, with the reason where they differ."""
    of_files = results.rows("runs").items()
    found = {f"{Path(name).stem}, {row['what']}": row for name, rows in of_files for row in rows[1:]}
    unreal = {f"{Path(x).stem}, {row['what']}" for x, rows in of_files if results.is_simulated(x) for row in rows[1:]}
    if not found:
        yield "No schedule has been run yet."
        return
    off = {name: reasons for name, row in found.items() if (reasons := list(_off(row, simulated=name in unreal)))}
    share = max(abs(x["peak_bytes"] / x["predicted_peak_bytes"] - 1) for x in found.values())
    times = "" if len(unreal) == len(found) else f", times within {TIME:.0%}"
    yield (
        f"{len(found)} schedules were run; {len(found) - len(off)} agree with what was predicted (peaks within "
        f"{PEAK:.0%}, reserved memory within {RESERVED:.0%}{times}). The worst peak is {share:.2%} off."
    )
    if off:
        yield ""
        yield from (f"- {name}: {'; '.join(reasons)}" for name, reasons in off.items())
    yield ""
    simulated = ", simulated" if len(unreal) == len(found) else ""
    columns = ["schedule", f"predicted peak, GiB{simulated}", f"measured{simulated}", "off", "reserved, predicted"]
    columns += ["measured", "off"] + (["ms, predicted", "measured", "off"] if times else [])
    yield from head(*columns)
    for name, row in found.items():
        cells = _pair(row["predicted_peak_bytes"] / GIB, row["peak_bytes"] / GIB, ".3f")
        cells += _pair(row["predicted_reserved_bytes"] / GIB, row["reserved_peak_bytes"] / GIB, ".3f")
        if times:
            cells += ("",) * 3 if name in unreal else _pair(_time_of(row), row["step_time_ms"], ".1f")
        yield line(f"{name} (simulated)" if times and name in unreal else name, *cells)


def _time_of(row: Row) -> float:
    """The sum of operators; results of profiles that were scaled to a plain step have it besides."""
    return row.get("operators_time_ms", row["predicted_time_ms"])


def _pair(predicted: float, measured: float, form: str) -> tuple[str, str, str]:
    return f"{predicted:{form}}", f"{measured:{form}}", f"{measured / predicted - 1:+.1%}"


def _off(row: Row, *, simulated: bool) -> Iterator[str]:
    """In words, what is not as predicted, and what of the measurement explains it."""
    peak = row["peak_bytes"] / row["predicted_peak_bytes"] - 1
    residual = row["residual"]
    if abs(peak) > PEAK:
        rest = residual["unexplained_bytes"]
        yield (
            f"peak {peak:+.1%}: {abs(rest) / MIB:.0f} MiB {'beyond' if rest > 0 else 'below'} the tensors "
            f"({residual['storages_bytes'] / MIB:.0f} MiB), their rounding ({residual['rounding_bytes'] / MIB:.1f}) "
            f"and the workspace ({residual['workspace_bytes'] / MIB:.0f}) that were predicted"
            + ("; blocks of this allocator are counted whole" if row["allocator"] != "expandable" and rest > 0 else "")
        )
    reserved = row["reserved_peak_bytes"] / row["predicted_reserved_bytes"] - 1
    if abs(reserved) > RESERVED and abs(row["reserved_peak_bytes"] - row["predicted_reserved_bytes"]) > PAGE_BYTES:
        why = "the model of the allocator has them lie otherwise"
        if simulated:  # by that very model
            why = "what calls allocate inside came in other pieces and order than the one block each that is predicted"
        yield (
            f"reserved {reserved:+.1%}: {residual['cache_bytes'] / MIB:.0f} MiB of it are fragments and blocks kept "
            f"for later, and {why}"
        )
    time = row["step_time_ms"] / _time_of(row) - 1
    if not simulated and abs(time) > TIME:
        machine = residual.get("machine_ms")
        why = "the sum of operators as they were profiled is all that was predicted"
        if machine is not None:
            why = f"a plain step is {machine:+.1f} ms off too, so the machine is another than when it was profiled"
        yield f"time {time:+.0%}: {why}"


def rivals(results: Results) -> Iterator[str]:
    """Ours against each other way, within the memory that it took."""
    found = results.rows("rivals-")
    if not found:
        yield "They have not been compared yet."
        return
    for name, rows in found.items():
        known = {x["what"]: x for x in rows}
        for what, row in known.items():
            ours = known.get(f"ours within {what}")
            if "error" in row:
                yield f"- {Path(name).stem}, {what}: did not run, {_reason(row['error'])}"
            elif not what.startswith("ours"):
                yield f"- {what}: {_beside(row, ours, simulated=results.is_simulated(name))}"


def _reason(error: str) -> str:
    """What went wrong, without where: places are of the machine that it ran on."""
    said = re.split(r" from user code| File \"", error)[0]
    return re.sub(r" at 0x[0-9a-f]+", "", said)[:_SAID]


def _beside(row: Row, ours: Row | None, *, simulated: bool) -> str:
    told = f"{row['peak_bytes'] / GIB:.2f} GiB" + (" (simulated)" if simulated else f", {row['step_time_ms']:.1f} ms")
    if ours is None or "error" in ours:
        return f"{told}; there is no schedule of ours within that"
    mine = f"{ours['peak_bytes'] / GIB:.2f} GiB"
    if simulated:
        return f"{told}; ours {mine}"
    ratio = ours["step_time_ms"] / row["step_time_ms"]
    return f"{told}; ours {mine}, {ours['step_time_ms']:.1f} ms, **{ratio:.2f} of its time**"


def timeline(results: Results) -> Iterator[str]:
    """How far single runs of operators are from their predictions."""
    found = results.rows("timeline-")
    if not found:
        yield "No step has been followed yet."
        return
    for name, content in found.items():
        rows = content["runs"]
        close = sum(abs(x["measured_bytes"] - x["predicted_bytes"]) <= PEAK * x["predicted_bytes"] for x in rows)
        worst_bytes = max((x["measured_bytes"] - x["predicted_bytes"] for x in rows), key=abs)
        yield (
            f"- {Path(name).stem.removeprefix('timeline-')}: the memory of {close} of {len(rows)} runs of operators is "
            f"within {PEAK:.0%} of what was predicted; the furthest is {worst_bytes / MIB:+.1f} MiB"
            f"{' (simulated)' if results.is_simulated(name) else ''}"
        )


def missing(results: Results) -> Iterator[str]:
    """What failed, and which questions nothing answers yet."""
    yield from (f"- {x}" for x in results.answers)
    for name, said in results.errors.items():
        impossible = "has no schedule within" in said  # which is an answer
        yield f"- {said.partition(': ')[2]}" if impossible else f"- {name} failed: {said}"
    profiles = len(list(results.folder.glob("profiles/*.json.gz")))
    schedules = len(list(results.folder.glob("schedules/*.json")))
    yield f"- {profiles} profiles and {schedules} schedules are in the folder; the same command goes on with the rest."
    if results.simulated:
        yield (
            "- What only a GPU can tell: times; the workspaces of cuDNN's plans and of cuBLAS; whether its kernels, "
            "which add up in another order, stay within the tolerances; fragmentation by what its driver maps."
        )


if __name__ == "__main__":
    main()
