"""Settings of PyTorch outside the model that decide which operators a trace meets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ambient:
    """What a captured step depends on besides the model and the batch.

    Attributes:
        autocast: for each type of device, the dtype of ``torch.autocast`` that was active there, None for none.
        default_dtype: of tensors that are made without one.
    """

    autocast: tuple[tuple[str, torch.dtype | None], ...]
    default_dtype: torch.dtype

    @classmethod
    def now(cls, devices: Iterable[str]) -> Ambient:
        """The settings at this moment, for these types of devices."""
        kinds = sorted(x for x in set(devices) if torch.amp.is_autocast_available(x))
        states = tuple((x, torch.get_autocast_dtype(x) if torch.is_autocast_enabled(x) else None) for x in kinds)
        return cls(states, torch.get_default_dtype())

    def difference(self) -> str | None:
        """In words, what is set otherwise at this moment, with the remedy; None where nothing is."""
        for kind, dtype in self.autocast:
            now = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
            if now != dtype:
                return (
                    f"{_autocast(kind, now)} here, and the step was captured {_autocast(kind, dtype)}: call profile, "
                    "solve and apply where the training step is called, inside torch.autocast or outside"
                )
        if torch.get_default_dtype() != self.default_dtype:
            return (
                f"the default dtype is {torch.get_default_dtype()}, and was {self.default_dtype} when the step was "
                f"captured: torch.set_default_dtype({self.default_dtype})"
            )
        return None


def _autocast(kind: str, dtype: torch.dtype | None) -> str:
    return f"outside torch.autocast for {kind}" if dtype is None else f"under torch.autocast({kind!r}, {dtype})"
