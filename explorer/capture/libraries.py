"""Where libraries do otherwise while they are traced, though nothing they ask for depends on the batch."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch

_MASKING = "transformers.masking_utils"
_PACKED = "find_packed_sequence_indices"


@contextlib.contextmanager
def positions_of_the_model(leaves: Sequence[Any]) -> Iterator[None]:
    """While open, Hugging Face's language models make no mask for positions that they number themselves.

    Outside a trace they look at the positions, find one sequence after the other counted through, and leave the mask
    to the attention kernel; in a trace they cannot look, so they make it, for every layer. Positions that depend on
    nothing but the batch's shapes are one row for all samples: of those there is nothing to look at.

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

    def packed(position_ids: torch.Tensor) -> torch.Tensor | None:
        return None if several and not given and _is_one_row(position_ids) else look(position_ids)

    with mock.patch.object(masking, _PACKED, packed):
        yield


def _is_one_row(tensor: torch.Tensor) -> bool:
    """Is it the same for all samples, as its layout says?"""
    return tensor.shape[0] == 1 or tensor.stride(0) == 0
