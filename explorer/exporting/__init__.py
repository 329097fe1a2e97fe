"""Schedules as files that run without this package."""

from explorer.exporting.files import export
from explorer.exporting.selective import selective_schedule

__all__ = ["export", "selective_schedule"]
