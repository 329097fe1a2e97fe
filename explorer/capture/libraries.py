"""Where libraries do otherwise while they are traced, though nothing they ask for depends on the batch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_MASKING = "transformers.masking_utils"
_PACKED = "find_packed_sequence_indices"
_KEPT = (torch.Tensor.add, torch.Tensor.unsqueeze)
"""Of a range and plain numbers, these give one."""


@contextlib.contextmanager
def positions_of_the_model(leaves: Sequence[Any]) -> Iterator[None]:
    """While open, Hugging Face's language models make no mask for positions that they number themselves.

    Outside a trace they look at the positions, find one sequence after the other counted through, and leave the mask
    to the attention kernel; in a trace they cannot look, so they make it, for every layer. Positions that depend on
    nothing but the batch's shapes are one row for all samples: of those there is nothing to look at. With one sample
    that is no sign, and only what is seen to be counted counts.

    Args:
        leaves: of the batch; a row of whole numbers among them may be the positions.
    """
    masking: Any = sys.modules.get(_MASKING)
    look = getattr(masking, _PACKED, None)
    if look is None:
        yield
        return
    tensors = [x for x in leaves if isinstance(x, torch.Tensor) and x.ndim > 0]
    several = any(x.shape[0] > 1 for x in tensors)
    given = any(_is_one_row(x) and not x.is_floating_point() for x in tensors)

    counted = _Counted()

    def packed(position_ids: torch.Tensor) -> torch.Tensor | None:
        plain = several and not given and _is_one_row(position_ids)
        return None if plain or counted.has(position_ids) else look(position_ids)

    with mock.patch.object(masking, _PACKED, packed), counted:
        yield


class _Counted(TorchFunctionMode):
    """Knows the tensors that count from some number on, one by one: a range, moved on, as a row."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, torch.Tensor] = {}

    def has(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._known

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        counts = func is torch.arange and len(args) == 1 and not {"start", "step"} & (kwargs or {}).keys()
        moved = func in _KEPT and self.has(args[0]) and not isinstance(args[-1], torch.Tensor | float)
        if counts or moved:
            self._known[id(result)] = result
        elif _writes(func) and isinstance(args[0], torch.Tensor) and not args[0].is_floating_point():
            self._known.clear()  # whatever that was a view of
        return result


def _writes(function: Any) -> bool:
    """Does a function of PyTorch change its first argument?"""
    name = getattr(function, "__name__", "")
    return name == "__setitem__" or name.startswith("__i") or (name.endswith("_") and not name.endswith("__"))


def _is_one_row(tensor: torch.Tensor) -> bool:
    """Is it the same for all samples, as its layout says?"""
    return tensor.shape[0] == 1 or tensor.stride(0) == 0
