"""Steps between a linear layer and a loss: what works on each row of classes, or moves rows, wherever classes are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import fx

from explorer.capture.joining import require
from explorer.operators.loss_plan import VIEWS, Made, Step
from explorer.operators.registry import all_arguments, draws_random_numbers, value_of

aten = torch.ops.aten
_SWAPS = (aten.transpose.int, aten.permute.default)
_SLICES = (aten.slice.Tensor, aten.slice_backward.default)
_COPY = aten._to_copy.default


def step_of(node: fx.Node, made: dict[fx.Node, int], axis: int) -> tuple[Step, int]:
    """A node that works row by row on its first argument, as a step, and the axis of the classes behind it.

    Args:
        node: a call.
        made: what other arguments may be, by number.
        axis: that of the classes in what it reads.

    Raises:
        OtherwiseError: it does not.
    """
    kwargs = tuple((k, x) for k, x in node.kwargs.items() if node.target is not _COPY or k == "dtype")
    args = tuple(Made(made[x]) if isinstance(x, fx.Node) and x in made else x for x in node.args[1:])
    require(not any(isinstance(x, fx.Node) for x in (*args, *(x for _, x in kwargs))))
    moved = axis_behind(node, axis)
    if moved is not None:
        return Step(node.target, args, kwargs, moves=True), moved
    tags = getattr(node.target, "tags", ())
    require(node.target is _COPY or (torch.Tag.pointwise in tags and not draws_random_numbers(node)))
    source = node.args[0]
    require(isinstance(source, fx.Node))
    assert isinstance(source, fx.Node)
    result, read = value_of(node), value_of(source)
    require(isinstance(result, torch.Tensor) and isinstance(read, torch.Tensor))
    require(result.shape == read.shape and result.device == read.device)
    return Step(node.target, args, kwargs), axis


def axis_behind(node: fx.Node, axis: int) -> int | None:
    """Where the classes are behind a call that moves rows, and leaves each as it is; None of any other call."""
    source = value_of(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
    result = value_of(node)
    if not isinstance(source, torch.Tensor) or not isinstance(result, torch.Tensor) or not source.dim():
        return None
    target, dim = node.target, _dim(node, source, result)
    found = None
    if target in VIEWS:
        found = _in_view(source.shape, result.shape, axis)
    elif target in _SWAPS:
        found = order_behind(node).index(axis)
    elif target is aten.select_backward.default:
        found = axis + (dim <= axis)
    elif target is aten.clone.default or (target in _SLICES and dim != axis):
        found = axis
    elif target is aten.select.int and dim != axis:
        found = axis - (dim < axis)
    return found


def _dim(node: fx.Node, source: torch.Tensor, result: torch.Tensor) -> int:
    """Which axis a slice, or one entry of an axis, is of; −1 of other calls."""
    if node.target in (aten.slice.Tensor, aten.select.int):
        return all_arguments(node)[1] % source.dim()
    if node.target in (aten.slice_backward.default, aten.select_backward.default):
        return all_arguments(node)[2] % result.dim()
    return -1


def order_behind(node: fx.Node) -> list[int]:
    """Which axis of what a transposition reads each axis of its result is."""
    order = list(range(value_of(node).dim()))
    if node.target is aten.permute.default:
        _, dims = all_arguments(node)
        return [x % len(order) for x in dims]
    _, one, other = all_arguments(node)
    order[one], order[other] = order[other], order[one]
    return order


def keeps_rows(node: fx.Node, axis: int) -> bool:
    """Do all rows stay in their order, as far as views and transpositions go?"""
    if node.target in VIEWS:
        return True
    if node.target not in _SWAPS:
        return False
    rest = [x for x in order_behind(node) if x != axis]
    return rest == sorted(rest)


def of_one_number(node: fx.Node, axis: int) -> Step:
    """The same for rows of one number; ``axis`` has the classes behind the call."""
    args = tuple(node.args[1:])
    if node.target in VIEWS:
        shape: Any = list(args[0])  # type: ignore[arg-type]  # sizes
        shape[axis] = 1
        return Step(aten.reshape.default, (shape,), moves=True)
    return Step(node.target, args, tuple(node.kwargs.items()), moves=True)


def _in_view(before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """Where the classes are in a view; None where it takes them apart, or puts others to them."""
    ahead, classes = prod(before[:axis]), before[axis]
    found = [n for n, x in enumerate(after) if x == classes and prod(after[:n]) == ahead]
    return found[0] if found else None
