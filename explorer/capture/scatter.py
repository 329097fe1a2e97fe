"""Writes to part of a tensor: what a trace without in-place calls made of them, made fit to be done in place again.

``y[:, 1:, 0] = x`` is traced as views of ``y``, a copy of ``x`` in the layout of the innermost, a new tensor for every
view it lies in, and a new ``y``. Here it becomes one call that makes the new ``y`` from the old one and ``x``; where
the old one is of no more use, that call may write to it (``operators.inplace``), as eager mode does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from explorer.operators.writing import VIEWS, written

aten = torch.ops.aten
_SCATTERS: dict[Any, Any] = {
    aten.slice_scatter.default: aten.slice.Tensor,
    aten.select_scatter.default: aten.select.int,
    aten.diagonal_scatter.default: aten.diagonal.default,
    aten.as_strided_scatter.default: aten.as_strided.default,
}


def write_at_once(graph: fx.Graph) -> None:
    """Let every write to part of a tensor be one call, without copies between; the graph is changed in place."""
    for node in list(graph.nodes):
        if node.target in _SCATTERS:
            _merge_inner(node)
            _drop_copy(graph, node)


def _merge_inner(node: fx.Node) -> None:
    """Of a write to a view that was itself written to, make one write through both views."""
    base, inner, *place = node.args
    views: tuple[Any, ...] = ((_name(_SCATTERS[node.target]), tuple(place)),)
    if not isinstance(base, fx.Node) or not isinstance(inner, fx.Node) or node.kwargs or set(inner.users) != {node}:
        return
    if inner.target is written:
        through, source, inner_views = inner.args
    elif inner.target in _SCATTERS and not inner.kwargs:
        through, source, *inner_place = inner.args
        inner_views = ((_name(_SCATTERS[inner.target]), tuple(inner_place)),)
    else:
        return
    view = _SCATTERS[node.target]
    if (
        isinstance(through, fx.Node)
        and through.target is view
        and through.args == (base, *place)
        and not through.kwargs
    ):
        node.target = written
        node.args = (base, source, (*views, *inner_views))  # type: ignore[arg-type]  # of plain values


def _drop_copy(graph: fx.Graph, node: fx.Node) -> None:
    """Write what would be copied first: the write converts it as the copy does."""
    copy = node.args[1]
    if not isinstance(copy, fx.Node) or copy.target is not aten.copy.default or len(copy.args) != 2 or copy.kwargs:
        return
    source = copy.args[1]
    assert isinstance(source, fx.Node)
    if source.meta["val"].shape != copy.meta["val"].shape:
        with graph.inserting_before(node):
            shape = list(copy.meta["val"].shape)
            expanded = graph.call_function(aten.expand.default, (source, shape))
        with source.meta["val"].fake_mode:
            expanded.meta = {**copy.meta, "val": source.meta["val"].expand(shape)}
        source = expanded
    node.args = (node.args[0], source, *node.args[2:])


def _name(view: Any) -> str:
    return next(name for name, known in VIEWS.items() if known is view)
