"""What a notebook shows: a budget to move, the schedule that fits it, and what a real step makes of it."""

from widgets.explorer import Explorer
from widgets.opening import explore

__all__ = ["Explorer", "explore"]
