"""What the command line prints: sentences and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import Timeline, simulate
from explorer.units import format_bytes

if TYPE_CHECKING:
    from explorer.measurement import Measurement
    from explorer.residuals import Residual
    from explorer.solution import Solution


def summary(profile: Profile) -> str:
    """A profile in one sentence."""
    plain = simulate(profile, keep_all(profile.graph))
    return (
        f"{profile.graph.model} on {profile.device.label}: {len(profile.graph.operators)} operators, without "
        f"recomputation {plain.time_ms:.0f} ms a step and a peak of {format_bytes(plain.peak_bytes)}."
    )


def solution_table(profile: Profile, found: Solution) -> Table:
    """A schedule that was found, next to a step without recomputation."""
    assert found.schedule is not None, "checked"
    assert found.peak_bytes is not None, "a schedule has a peak"
    assert found.time_ms is not None, "a schedule has a time"
    plain = simulate(profile, keep_all(profile.graph))
    table = Table(
        "",
        "peak",
        "step time",
        "recomputed operators",
        title=f"{found.status.value} in {found.elapsed_s:.1f} s, on {profile.device.label}",
    )
    table.add_row("no recomputation", format_bytes(plain.peak_bytes), f"{plain.time_ms:.1f} ms", "0")
    extra = 100 * (found.time_ms / plain.time_ms - 1) if plain.time_ms else 0.0
    table.add_row(
        f"budget {format_bytes(found.budget_bytes)}",
        format_bytes(found.peak_bytes),
        f"{found.time_ms:.1f} ms ({extra:+.1f} %)",
        str(len(found.schedule.recomputed(profile.graph))),
    )
    for bound in found.bounds:
        table.add_row(f"bound for {bound.scope.value}", "", f"{bound.time_ms:.1f} ms", "")
    return table


def run_table(predicted: Timeline | None, measured: Measurement) -> Table:
    """A step that was run, next to its prediction."""
    table = Table("", "peak", "step time", title=f"{measured.device}, {measured.method}")
    if predicted is not None:
        table.add_row("predicted", format_bytes(predicted.peak_bytes), f"{predicted.time_ms:.1f} ms")
    table.add_row("measured", format_bytes(measured.peak_bytes), f"{measured.step_time_ms:.1f} ms")
    if measured.reserved_peak_bytes is not None:
        table.add_row("reserved", format_bytes(measured.reserved_peak_bytes), "")
    if predicted is not None:
        table.add_row(
            "difference",
            f"{100 * (measured.peak_bytes / predicted.peak_bytes - 1):+.2f} %",
            f"{100 * (measured.step_time_ms / predicted.time_ms - 1):+.1f} %",
        )
    return table


def add_parts(table: Table, parts: Residual) -> None:
    """Append what the measured peak is made of."""
    table.add_section()
    named = {
        "tensors": parts.storages_bytes,
        "rounding": parts.rounding_bytes,
        "workspace": parts.workspace_bytes,
        "unexplained": parts.unexplained_bytes,
        "allocator's cache": parts.cache_bytes,
    }
    for name, amount in named.items():
        if amount is not None:
            table.add_row(name, format_bytes(amount), "")
