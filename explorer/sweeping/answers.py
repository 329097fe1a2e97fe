"""What people sweep for: which device for a model, and how large a batch on each."""

from __future__ import annotations

from collections.abc import Callable

from explorer.sweeping.table import Row, Sweep


def fastest(sweep: Sweep) -> dict[tuple[str, str], Row]:
    """Each model and device to the row with the most samples a second, of schedules that fit the device.

    A model and device of which nothing fits are absent.
    """
    return _best(sweep, lambda row: row.samples_per_s or 0.0)


def largest(sweep: Sweep) -> dict[tuple[str, str], Row]:
    """Each model and device to the row with the largest batch that fits the device, the fastest of these."""
    return _best(sweep, lambda row: (row.samples or 0, row.samples_per_s or 0.0))


def _best(sweep: Sweep, worth: Callable[[Row], tuple[float, ...] | float]) -> dict[tuple[str, str], Row]:
    found: dict[tuple[str, str], Row] = {}
    for row in filter(lambda x: x.fits_device, sweep.rows):
        at = row.model, row.device
        if at not in found or worth(row) > worth(found[at]):  # pyright: ignore[reportOperatorIssue] - of one kind
            found[at] = row
    return found
