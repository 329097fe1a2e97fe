"""What ``torch.autocast`` was when a step was captured, without torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Autocast:
    """A state of ``torch.autocast`` on the model's device, whichever that is.

    Attributes:
        dtype: that it casts to (``"bfloat16"``); None outside of it.
        cached: a parameter is cast once for all its uses, PyTorch's default; True outside.
    """

    dtype: str | None
    cached: bool = True

    def __str__(self) -> str:
        """As ``bfloat16``."""
        return f"{self.dtype or 'none'}{'' if self.cached else ', every use of a parameter cast anew'}"
