"""Schedules as files that run without this package."""

from explorer.exporting.python import export

__all__ = ["export"]
