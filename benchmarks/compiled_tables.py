"""What is measured of compiled steps, as tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks.markdown import MIB, Rows, head, line

_WANTED = 0.05
"""By which a peak may be predicted wrong."""


def compiled_choice(rows: Rows) -> Iterable[str]:
    """Our choice of what a compiled step saves beside PyTorch's ratios, worst first."""
    within = [x for x in rows if x["least_bytes"] <= x["budget_bytes"]]
    below = [x for x in rows if x["least_bytes"] > x["budget_bytes"]]
    off = [abs(x["predicted_bytes"] / x["first_bytes"] - 1) for x in rows if x["predicted_bytes"] and x["first_bytes"]]
    quicker = [x for x in map(_over, within) if x >= 0]
    yield (
        f"Of {len(within)} budgets that one of PyTorch's ratios keeps, our step keeps "
        f"{sum(_keeps(x, 'measured_bytes') for x in within)}, the ratio that interpolation says "
        f"{sum(_keeps(x, 'interpolated_bytes') for x in within)}; ours takes at most {max(quicker, default=0):.3f} of "
        f"the time of its quickest. Of {len(below)} below its smallest peak ours keeps "
        f"{sum(_keeps(x, 'measured_bytes') for x in below)}. "
        f"The first prediction is off by at most {max(off, default=0):.1%}."
    )
    yield ""
    yield from head(
        *("model, budget", "budget, MiB", "predicted", "ours, measured", "margin"),
        *("PyTorch's ratio", "its peak", "ours / its time", "interpolated", "its peak"),
    )
    for row in sorted(rows, key=_over, reverse=True):
        over = _over(row)
        yield line(
            *(row["case"], _mib(row["budget_bytes"]), _mib(row["predicted_bytes"]), _mib(row["measured_bytes"])),
            *(_mib(row["margin_bytes"]), "none fits" if row["ratio"] is None else f"{row['ratio']:g}"),
            *(_mib(row["ratio_bytes"]), "-" if over < 0 else f"{over:.3f} ± {row['time_ratio_error']:.3f}"),
            *(f"{row['interpolated']:.2f}", _mib(row["interpolated_bytes"])),
        )


def compiled_layouts(rows: Rows) -> Iterable[str]:
    """Convolutions with channels last in both passes, and in the model's own layout, beside the compiler's way."""
    yield from head(
        *("network", "own / channels last, by costs", "channels last / the compiler's way", "own / the compiler's way"),
        *("peak, MiB: the compiler's way", "channels last", "own", "chosen"),
    )
    for row in sorted(rows, key=lambda x: x["own_ratio" if x["own"] else "last_ratio"]):
        yield line(
            *(row["case"], f"{row['predicted_ratio']:.2f}"),
            *(f"{row[f'{x}_ratio']:.3f} ± {row[f'{x}_ratio_error']:.3f}" for x in ("last", "own")),
            *(_mib(row[f"{x}_bytes"]) for x in ("compiler", "last", "own")),
            "own" if row["own"] else "channels last",
        )


def compiled_peaks(rows: Rows) -> Iterable[str]:
    """Peaks of compiled steps, by how far the worst prediction is off."""
    made = [x for x in rows if x["refusal"] is None]
    offs = [off for x in made for off in _offs(x) if off is not None]
    asked = [x for x in made if x["budget_bytes"] is not None]
    yield (
        f"{len(made)} architectures, {len(rows) - len(made)} refused. Of {len(offs)} predictions "
        f"{sum(abs(x) <= _WANTED for x in offs)} are within {_WANTED:.0%}, {sum(x < -_WANTED for x in offs)} too low "
        f"by more, {sum(x > _WANTED for x in offs)} too high; the median is off by "
        f"{statistics.median(map(abs, offs or [0.0])):.1%}. {sum(_keeps(x, 'kept_bytes') for x in asked)} of "
        f"{len(asked)} budgets are kept."
    )
    yield ""
    yield from head(
        *("architecture", "convolutions", "peak, MiB", "predicted", "nothing saved", "predicted"),
        *("budget halfway: first step", "predicted", "kept by", "steps measured"),
    )
    for row in sorted(made, key=lambda x: -max(abs(y) for y in _offs(x) if y is not None)):
        saved, bare, first = ("-" if x is None else f"{x:+.1%}" for x in _offs(row))
        yield line(
            *(row["case"], "own layout" if row["own"] else "-", _mib(row["saved_bytes"]), saved),
            *(_mib(row["bare_bytes"]), bare, _mib(row["first_bytes"]), first, _mib(row["kept_bytes"])),
            str(row["rounds"] or "-"),
        )


def _offs(row: Mapping[str, Any]) -> Iterator[float | None]:
    """Predicted over measured, less one."""
    for name in ("saved", "bare", "first"):
        measured, predicted = row[f"{name}_bytes"], row[f"{name}_predicted_bytes"]
        yield None if measured is None else predicted / measured - 1


def _keeps(row: Mapping[str, Any], key: str) -> bool:
    return row[key] is not None and row[key] <= row["budget_bytes"]


def _over(row: Mapping[str, Any]) -> float:
    """Our time over that of PyTorch's quickest; -1 where one of them was not timed."""
    return -1.0 if row["time_ratio"] is None else row["time_ratio"]


def _mib(amount: int | None) -> str:
    return "-" if amount is None else f"{amount / MIB:.1f}"
