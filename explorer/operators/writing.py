"""Writes to part of a tensor, to a new tensor or in its own memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
VIEWS: dict[str, Callable[..., torch.Tensor]] = {
    "slice": aten.slice.Tensor,
    "select": aten.select.int,
    "diagonal": aten.diagonal.default,
    "as_strided": aten.as_strided.default,
}
"""Which part of a tensor, by name."""

Views = Sequence[tuple[str, Sequence[Any]]]
"""Views, each of the one before: name and arguments."""


def written(base: torch.Tensor, source: torch.Tensor, views: Views) -> torch.Tensor:
    """A copy of ``base`` with ``source`` in the place that ``views`` lead to."""
    return written_over(base.clone(), source, views)


def written_over(base: torch.Tensor, source: torch.Tensor, views: Views) -> torch.Tensor:
    """``base``, with ``source`` in the place that ``views`` lead to."""
    place = base
    for name, arguments in views:
        place = VIEWS[name](place, *arguments)
    place.copy_(source)
    return base


def slice_written_over(base: torch.Tensor, source: torch.Tensor, *place: Any) -> torch.Tensor:
    """What ``slice_scatter`` makes, in the memory of ``base``."""
    return written_over(base, source, (("slice", place),))


def select_written_over(base: torch.Tensor, source: torch.Tensor, *place: Any) -> torch.Tensor:
    """What ``select_scatter`` makes, in the memory of ``base``."""
    return written_over(base, source, (("select", place),))


def diagonal_written_over(base: torch.Tensor, source: torch.Tensor, *place: Any) -> torch.Tensor:
    """What ``diagonal_scatter`` makes, in the memory of ``base``."""
    return written_over(base, source, (("diagonal", place),))


def strided_written_over(base: torch.Tensor, source: torch.Tensor, *place: Any) -> torch.Tensor:
    """What ``as_strided_scatter`` makes, in the memory of ``base``."""
    return written_over(base, source, (("as_strided", place),))
