"""Measuring what every implementation of a training step costs."""

from explorer.profiling.profiling import OPTIMIZER_STATES, Progress, profile, profile_capture

__all__ = ["OPTIMIZER_STATES", "Progress", "profile", "profile_capture"]
