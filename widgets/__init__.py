"""What a notebook shows: a budget to move, the schedule that fits it, and what a real step makes of it."""

from widgets.entry_point import explore
from widgets.explorer import Explorer

__all__ = ["Explorer", "explore"]
