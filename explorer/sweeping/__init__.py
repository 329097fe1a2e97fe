"""Many questions at once: models on devices in batches within budgets by methods, on one machine or on many."""

from explorer.sweeping.sweeping import sweep
from explorer.sweeping.table import Row, Sweep, load_sweep

__all__ = ["Row", "Sweep", "load_sweep", "sweep"]
