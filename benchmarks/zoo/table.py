"""What the results say: a line for each architecture, a summary, and the tables of docs/supported.md."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from benchmarks.zoo import ZOO
from benchmarks.zoo.running import Trial

_HEADINGS = (
    "architecture",
    "with",
    "operators",
    "keep-all / eager",
    "smallest: exact, joint",
    "same bits",
    "joint: off (eager)",
    "peak error",
    "time, exact: predicted (measured)",
    "time, joint",
)


def trials_of(result: dict[str, Any]) -> list[Trial]:
    """The trials of a result as it was read from JSON."""
    return [Trial(**x) for x in result["trials"]]


def line(result: dict[str, Any]) -> str:
    """One line of print for one architecture, and one more for each fault."""
    name = f"{result['name']:28}"
    if result["refusal"]:
        return f"{name} refused: {result['refusal'][:400]}"
    trials = trials_of(result)
    good = sum(not x.faults for x in trials)
    said = (
        f"{name} {result['operators']:5d} operators {result['seconds']:6.1f} s, good {good}/{len(trials)}, "
        f"keep-all against eager {keep_all_excess(result):+.2%}"
    )
    faults = [f"      {x.mode} {x.share}: {'; '.join(x.faults)[:400]}" for x in trials if x.faults]
    return "\n".join([said, *faults])


def keep_all_excess(result: dict[str, Any]) -> float:
    """By how much keep-all is predicted above what eager mode takes."""
    predicted = result["trials"][0]["predicted_peak_bytes"]
    return predicted / result["eager_peak_bytes"] - 1 if predicted else float("nan")


def summary(results: list[dict[str, Any]]) -> str:
    """How many of what."""
    wanted = [x for x in results if not ZOO[x["name"]].refused]
    captured = [x for x in wanted if not x["refusal"]]
    trials = [x for result in captured for x in trials_of(result)]
    exact = [x for x in trials if x.mode != "joint" and x.measured_peak_bytes is not None]
    joint = [x for x in trials if x.mode == "joint" and x.measured_peak_bytes is not None]
    peaks = [abs(x.peak_error) for x in trials if x.peak_error is not None]
    above = sum(keep_all_excess(x) > 0.001 for x in captured)
    none = sum(x.predicted_peak_bytes is None for x in trials)
    other = sum(x.difference is not None for x in exact)
    beyond = sum(x.difference is not None for x in joint)
    raised = sum(x.error is not None for x in trials)
    return (
        f"{len(captured)} of {len(wanted)} architectures captured. {len(exact)} exact schedules, {other} of them with "
        f"other bits; {len(joint)} joint ones, {beyond} beyond the tolerance; {raised} raised an error, {none} budgets "
        f"without a schedule. Largest peak error {max(peaks, default=0):.3%}, {sum(x > 0 for x in peaks)} of "
        f"{len(peaks)} not the same byte. Keep-all predicted more than 0.1 % above eager mode in {above}."
    )


def page(old: str, results: list[dict[str, Any]]) -> str:
    """The page with its tables made anew, between their marks."""
    order = {name: number for number, name in enumerate(ZOO)}
    results = sorted((x for x in results if x["name"] in order), key=lambda x: order[x["name"]])
    wanted = [x for x in results if not ZOO[x["name"]].refused]
    parts = {
        "summary": summary(results),
        "table": _table(x for x in wanted if not x["refusal"]),
        "refused": _refused(x for x in results if x["refusal"]),
        "faults": _faults(x for x in wanted if not x["refusal"]),
    }
    for name, text in parts.items():
        marks = re.compile(rf"(<!-- zoo {name}: begin -->\n).*?(<!-- zoo {name}: end -->)", re.DOTALL)
        old = marks.sub(lambda found, text=text: f"{found[1]}{text}\n{found[2]}", old)
    return old


def _table(results: Iterable[dict[str, Any]]) -> str:
    lines: list[str] = []
    family = ""
    for result in results:
        specimen = ZOO[result["name"]]
        if specimen.family != family:
            family = specimen.family
            lines += ["", f"### {family}", "", _row(_HEADINGS), _row(["---"] * len(_HEADINGS))]
        lines.append(_row(_cells(result)))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cells(result: dict[str, Any]) -> list[str]:
    trials = trials_of(result)
    exact = [x for x in trials if x.mode == "exact"]
    joint = [x for x in trials if x.mode == "joint"]
    same = [x for x in trials if x.mode != "joint" and x.measured_peak_bytes is not None]
    peak = trials[0].predicted_peak_bytes or 1
    errors = [x.peak_error for x in trials if x.peak_error is not None]
    offs = [(x.off, x.off_eager) for x in joint if x.off is not None and x.off_eager is not None]
    off, off_eager = max(offs, default=(float("nan"), float("nan")))
    return [
        result["name"],
        ", ".join(ZOO[result["name"]].habits),
        str(result["operators"]),
        f"{1 + keep_all_excess(result):.3f}",
        ", ".join(f"{result['smallest_bytes'].get(mode, peak) / peak:.2f}" for mode in ("exact", "joint")),
        f"{sum(x.difference is None for x in same)} of {len(same)}",
        f"{off:.0e} ({off_eager:.0e})",
        f"{max(errors, key=abs, default=float('nan')):+.3%}",
        _times(exact),
        _times(joint),
    ]


def _times(trials: Iterable[Trial]) -> str:
    timed = [(x.predicted_time, x.measured_time) for x in trials]
    return " · ".join(f"{a:.2f} ({b:.2f})" if a is not None and b is not None else "-" for a, b in timed)


def _refused(results: Iterable[dict[str, Any]]) -> str:
    rows = [
        _row([x["name"], ", ".join(ZOO[x["name"]].habits), x["refusal"].replace("|", "\\|").replace("\n", " ")])
        for x in results
    ]
    return "\n".join([_row(["what", "with", "what is said"]), _row(["---"] * 3), *rows])


def _faults(results: Iterable[dict[str, Any]]) -> str:
    lines = []
    for result in results:
        faults = [
            f"{x.mode}{'' if x.share is None else f' at {x.share}'}: {'; '.join(x.faults)}" for x in trials_of(result)
        ]
        found = [text for text, x in zip(faults, trials_of(result), strict=True) if x.faults]
        if keep_all_excess(result) > 0.001:
            found.append(f"keep-all is predicted {keep_all_excess(result):+.2%} above eager mode")
        lines += [f"- {result['name']}: {text}".replace("\n", " ") for text in found]
    return "\n".join(lines) or "None."
