"""Running schedules for real, and watching them run."""

from explorer.execution.applying import add_schedule, apply
from explorer.execution.compiled import compiled_schedule, measure_compiled
from explorer.execution.measuring import measure
from explorer.execution.runs import measure_runs
from explorer.execution.scheduled import ScheduledModule
from explorer.execution.updating import update_within

__all__ = [
    "ScheduledModule",
    "add_schedule",
    "apply",
    "compiled_schedule",
    "measure",
    "measure_compiled",
    "measure_runs",
    "update_within",
]
