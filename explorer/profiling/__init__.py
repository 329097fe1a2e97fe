"""Measuring, or estimating, what every implementation of a training step costs."""

from explorer.profiling.estimating import estimate
from explorer.profiling.profiling import Progress, profile, profile_capture

__all__ = ["Progress", "estimate", "profile", "profile_capture"]
