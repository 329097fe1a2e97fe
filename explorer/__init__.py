"""Memory-optimised training schedules for PyTorch: capture, profile, solve, simulate, run, measure, explore.

Names load on first use, so that a machine without torch can solve and one without a solver can train.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from explorer.extras import WHOLE, needing

if TYPE_CHECKING:
    from explorer.analysis.explaining import explain, explain_all, explain_operator
    from explorer.analysis.pricing import memory_price
    from explorer.analysis.residuals import residual, residual_by_run
    from explorer.compiling import Compiled, compiled, compiled_within, profile_compiled
    from explorer.device_profile import Profile
    from explorer.execution import (
        ScheduledModule,
        add_schedule,
        apply,
        compiled_schedule,
        measure,
        measure_compiled,
        measure_runs,
        update_within,
    )
    from explorer.exporting import export, selective_schedule
    from explorer.graph import TrainingGraph
    from explorer.measurement import Measurement
    from explorer.placement import Placement
    from explorer.profiles.loading import load_profile
    from explorer.profiling import estimate, profile
    from explorer.schedule import Schedule, keep_all
    from explorer.simulation import simulate
    from explorer.solution import Solution, Status
    from explorer.solvers import SolveSession, largest_batch, largest_sequence, place, smallest_budget, solve, trade_off
    from explorer.sweeping import Sweep, load_sweep, sweep
    from explorer.timeline import Timeline
    from explorer.units import format_bytes, parse_bytes
    from explorer.zoo.loading import load_schedule
    from widgets import Explorer, explore

_HOMES = {
    "Compiled": "explorer.compiling",
    "Explorer": "widgets",
    "Measurement": "explorer.measurement",
    "Placement": "explorer.placement",
    "Profile": "explorer.device_profile",
    "Schedule": "explorer.schedule",
    "ScheduledModule": "explorer.execution",
    "Solution": "explorer.solution",
    "SolveSession": "explorer.solvers",
    "Status": "explorer.solution",
    "Sweep": "explorer.sweeping",
    "Timeline": "explorer.timeline",
    "TrainingGraph": "explorer.graph",
    "add_schedule": "explorer.execution",
    "apply": "explorer.execution",
    "compiled": "explorer.compiling",
    "compiled_schedule": "explorer.execution",
    "compiled_within": "explorer.compiling",
    "estimate": "explorer.profiling",
    "explain": "explorer.analysis.explaining",
    "explain_all": "explorer.analysis.explaining",
    "explain_operator": "explorer.analysis.explaining",
    "explore": "widgets",
    "export": "explorer.exporting",
    "format_bytes": "explorer.units",
    "keep_all": "explorer.schedule",
    "largest_batch": "explorer.solvers",
    "largest_sequence": "explorer.solvers",
    "load_profile": "explorer.profiles.loading",
    "load_schedule": "explorer.zoo.loading",
    "load_sweep": "explorer.sweeping",
    "measure": "explorer.execution",
    "measure_compiled": "explorer.execution",
    "measure_runs": "explorer.execution",
    "memory_price": "explorer.analysis.pricing",
    "parse_bytes": "explorer.units",
    "place": "explorer.solvers",
    "profile": "explorer.profiling",
    "profile_compiled": "explorer.compiling",
    "residual": "explorer.analysis.residuals",
    "residual_by_run": "explorer.analysis.residuals",
    "selective_schedule": "explorer.exporting",
    "simulate": "explorer.simulation",
    "smallest_budget": "explorer.solvers",
    "solve": "explorer.solvers",
    "sweep": "explorer.sweeping",
    "trade_off": "explorer.solvers",
    "update_within": "explorer.execution",
}
__all__ = [
    "Compiled",
    "Explorer",
    "Measurement",
    "Placement",
    "Profile",
    "Schedule",
    "ScheduledModule",
    "Solution",
    "SolveSession",
    "Status",
    "Sweep",
    "Timeline",
    "TrainingGraph",
    "add_schedule",
    "apply",
    "compiled",
    "compiled_schedule",
    "compiled_within",
    "estimate",
    "explain",
    "explain_all",
    "explain_operator",
    "explore",
    "export",
    "format_bytes",
    "keep_all",
    "largest_batch",
    "largest_sequence",
    "load_profile",
    "load_schedule",
    "load_sweep",
    "measure",
    "measure_compiled",
    "measure_runs",
    "memory_price",
    "parse_bytes",
    "place",
    "profile",
    "profile_compiled",
    "residual",
    "residual_by_run",
    "selective_schedule",
    "simulate",
    "smallest_budget",
    "solve",
    "sweep",
    "trade_off",
    "update_within",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its home; ImportError, with what to install, where its home needs more than torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'explorer' has no attribute {name!r}")
    with needing(name, extra=WHOLE if _HOMES[name] == "widgets" else None):
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
