"""What the command line prints, and on what: sentences and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from explorer import harmless
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.summaries import milliseconds
from explorer.timeline import Timeline
from explorer.units import format_bytes

if TYPE_CHECKING:
    from explorer.analysis.residuals import Residual
    from explorer.measurement import Measurement
    from explorer.solution import Solution
    from explorer.zoo.entries import Entry


class PlainConsole(Console):
    """Prints every text as it is, in tables too: no markup, and nothing that steers the terminal."""

    def __init__(self, *, stderr: bool = False) -> None:
        """On standard output, or on standard error."""
        super().__init__(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """What rich makes of every plain text that it prints."""
        return super().render_str(harmless.in_terminal(text), **options)


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int, str], None]]:
    """On standard error; gives what is called with the steps done, how many there are, and a label."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=PlainConsole(stderr=True)) as bar:
        task = bar.add_task("capture", total=None)
        yield lambda done, total, label: bar.update(
            task, completed=done, total=total, description=harmless.in_terminal(label)
        )


def summary(profile: Profile) -> str:
    """A profile in one sentence."""
    plain = simulate(profile, keep_all(profile.graph))
    casts = profile.graph.autocast
    under = "" if casts is None or casts.dtype is None else f" under autocast to {casts}"
    return (
        f"{profile.graph.model} on {profile.device.label}{under}: {len(profile.graph.operators)} operators, without "
        f"recomputation {milliseconds(plain.time_ms)} a step and a peak of {format_bytes(plain.peak_bytes)}."
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
    if measured.buffer is not None:
        table.add_row("its buffer", format_bytes(measured.buffer.buffer_bytes), "")
        table.add_row("fragmentation of it", f"{100 * measured.buffer.fragmentation:.1f} %", "")
        table.add_row("allocations beside it", str(measured.buffer.misses), "")
    if measured.reserved_peak_bytes is not None:
        table.add_row("reserved", format_bytes(measured.reserved_peak_bytes), "")
    if predicted is not None:
        table.add_row(
            "difference",
            f"{100 * (measured.peak_bytes / predicted.peak_bytes - 1):+.2f} %",
            f"{100 * (measured.step_time_ms / predicted.time_ms - 1):+.1f} %",
        )
    return table


def zoo_row(entry: Entry) -> tuple[str, ...]:
    """Peak, time, time added and gap of a bundled schedule, or why there is none."""
    if entry.is_older_than_profile:
        return ("older than its profile",)
    if entry.peak_bytes is None or entry.time_ms is None:
        return (f"none fits {format_bytes(entry.budget_bytes)}",)
    gap = "" if entry.gap is None else f"{100 * entry.gap:.1f} %"
    return format_bytes(entry.peak_bytes), f"{entry.time_ms:.1f} ms", f"{100 * (entry.overhead or 0.0):+.1f} %", gap


def add_parts(table: Table, parts: Residual) -> None:
    """Append what the measured peak is made of."""
    table.add_section()
    named = {
        "tensors" if parts.buffer_bytes is None else "between steps": parts.storages_bytes,
        "rounding": parts.rounding_bytes,
        "workspace": parts.workspace_bytes,
        "buffer": parts.buffer_bytes,
        "gradients and results beside it": parts.beside_bytes,
        "unsplit blocks": parts.unsplit_bytes,
        "unexplained": parts.unexplained_bytes,
        "allocator's cache": parts.cache_bytes,
    }
    for name, amount in named.items():
        if amount is not None:
            table.add_row(name, format_bytes(amount), "")
