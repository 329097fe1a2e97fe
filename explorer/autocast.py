"""What ``torch.autocast`` was when a step was captured, without torch."""

from __future__ import annotations

from dataclasses import dataclass

from explorer.units import shown

_DTYPES = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True, slots=True)
class Autocast:
    """A state of ``torch.autocast`` on the model's device, whichever that is.

    Attributes:
        dtype: that it casts to (``"bfloat16"``); None outside of it.
        cached: a parameter is cast once for all its uses, PyTorch's default; True outside.
    """

    dtype: str | None
    cached: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError for a dtype that there is none: it is written into programs."""
        if self.dtype is not None and self.dtype not in _DTYPES:
            raise ValueError(f"dtype is {shown(self.dtype)}; allowed: {', '.join(_DTYPES)}, or None")

    def __str__(self) -> str:
        """As ``bfloat16``."""
        return f"{self.dtype or 'none'}{'' if self.cached else ', every use of a parameter cast anew'}"
