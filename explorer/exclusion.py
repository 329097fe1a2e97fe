"""What only one thread of a process may do at a time."""

from __future__ import annotations

import threading

TRACING = threading.RLock()
"""PyTorch patches itself while it traces, and ``max``, ``min`` and ``math.pow`` for all of Python: two traces would
break each other, and one breaks what numba loads or compiles meanwhile, which looks these up."""
