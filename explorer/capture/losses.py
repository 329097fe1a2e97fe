"""What leads from log-probabilities to a loss, and back: its own calls, views, sums for smoothed labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from explorer.capture.cross_entropy import NLL_BACKWARD, kept_too_long, smoothed_of
from explorer.capture.joining import require
from explorer.operators.cross_entropy import cross_entropy_backward
from explorer.operators.loss_plan import VIEWS, Step
from explorer.operators.registry import all_arguments, output_of, value_of
from explorer.torch_private import storage_key

aten = torch.ops.aten
_FORWARD = (aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)


@dataclass
class Loss:
    """The calls of a loss.

    Attributes:
        log_softmax: what it reads, or a view of it.
        gradient: of the loss.
        target: the classes.
        class_weight: of each class.
        reduction: as PyTorch counts them.
        ignored: a class whose rows count nothing.
        total: weight of all rows.
        smoothed: what each row adds to the gradient of all its log-probabilities.
        shares: of the classes in that.
        dtype: of the gradient of what log-softmax reads, where it is another one.
        between: views from log-softmax to the loss.
        back: those from the loss's gradient to log-softmax's.
        within: nodes that nobody reads any more once the calls are joined.
        kept_bytes: of what it reads and a joined call would hold for longer; 0: too few to count.
        node: the loss's own call.
        results: of that.
        sums: of log-probabilities.
        weighted: each class's by its weight.
    """

    log_softmax: fx.Node
    gradient: Any
    target: Any
    class_weight: Any
    reduction: int
    ignored: int
    total: Any
    smoothed: fx.Node | None
    shares: fx.Node | None
    dtype: torch.dtype | None
    between: tuple[Step, ...] = ()
    back: tuple[Step, ...] = ()
    within: set[fx.Node] = field(default_factory=set)
    kept_bytes: int = 0
    node: fx.Node = field(init=False)
    results: list[fx.Node] = field(init=False)
    sums: fx.Node | None = field(init=False, default=None)
    weighted: bool = field(init=False, default=False)

    def find_calls(self, read: fx.Node, backward: fx.Node) -> None:
        """Those of the forward pass: the loss reads ``read``, and what ``backward`` is of reads the log-probabilities.

        Raises:
            OtherwiseError: others read them, too.
        """
        wanted = [read, self.target, self.class_weight, self.reduction, self.ignored]
        losses = [x for x in read.users if x.target in _FORWARD and all_arguments(x) == wanted]
        require(len(losses) == 1)
        (self.node,) = losses
        results = [output_of(self.node, number) for number in (0, 1)]
        require(None not in results and results[1] is self.total)
        self.results = [x for x in results if x is not None]
        known = {self.node, backward, *self.within}
        sums = [x for x in self.log_softmax.users if x not in known]
        require(len(sums) <= 1 and set(read.users) <= {*known, *sums})
        if sums:
            self._find_sums(sums[0])

    def _find_sums(self, node: fx.Node) -> None:
        axis = all_arguments(self.log_softmax)[1]
        if node.target is aten.mul.Tensor:
            log_softmax, weights = node.args
            require(log_softmax is self.log_softmax and self._are_weights(weights, axis))
            require(len(node.users) == 1)
            self.weighted = True
            self.within.add(node)
            (node,) = node.users
        require(node.target is aten.sum.dim_IntList and node.args[1:] == ([axis],) and not node.kwargs)
        require(self.node < node)
        self.sums = node

    def _are_weights(self, node: Any, axis: int) -> bool:
        """Is it the weight of each class, along the classes' axis?"""
        if not isinstance(node, fx.Node) or not isinstance(self.class_weight, fx.Node):
            return False
        seen, weights = value_of(node), value_of(self.class_weight)
        shape = [1] * value_of(self.log_softmax).dim()
        shape[axis] = len(weights)
        same = storage_key(seen) == storage_key(weights) and seen.storage_offset() == weights.storage_offset()
        return same and weights.is_contiguous() and list(seen.shape) == shape


def loss_of(backward: fx.Node) -> Loss:
    """The loss of which a call makes the gradient for what log-softmax reads.

    Raises:
        OtherwiseError: it is of something else.
    """
    if backward.target is cross_entropy_backward:
        gradient, log_softmax, *others = backward.args
        require(isinstance(log_softmax, fx.Node) and log_softmax.target is aten._log_softmax.default)
        loss = Loss(log_softmax, gradient, *others)  # type: ignore[arg-type]
        loss.find_calls(loss.log_softmax, backward)
        return loss
    given, log_softmax, _, dtype = all_arguments(backward)
    require(isinstance(log_softmax, fx.Node) and log_softmax.target is aten._log_softmax.default)
    smoothed = shares = None
    require(len(given.users) == 1)
    first, back = _behind_views(given)
    if given.target is aten.add.Tensor and not given.kwargs:
        (one, other) = given.args
        first, back = _behind_views(one)
        if first.target not in NLL_BACKWARD:
            other, (first, back) = one, _behind_views(other)
        smoothed, shares = smoothed_of(other, log_softmax)
        require(smoothed is not None)
    require(first.target in NLL_BACKWARD and len(first.users) == 1)
    gradient, read, *others = all_arguments(first)
    # Constants are there, too.
    given_storages = {storage_key(value_of(x)) for x in backward.graph.nodes if x.op in ("placeholder", "get_attr")}
    kept = kept_too_long(gradient, *others, smoothed, given=given_storages, log_probabilities=log_softmax)
    start, between = _behind_views(read, readers=None)
    require(start is log_softmax)
    target, class_weight, reduction, ignored, total = others
    loss = Loss(
        log_softmax=log_softmax,
        gradient=gradient,
        target=target,
        class_weight=class_weight,
        reduction=reduction,
        ignored=ignored,
        total=total,
        smoothed=smoothed,
        shares=shares,
        dtype=dtype if dtype != value_of(log_softmax).dtype else None,
        between=tuple(_step(x) for x in between),
        back=tuple(_step(x) for x in back),
        within={*between, *back, first, given},
        kept_bytes=kept,
    )
    require(all(set(x.users) == {y} for x, y in pairwise(between)))
    loss.find_calls(read, backward)
    return loss


def _behind_views(node: Any, readers: int | None = 1) -> tuple[Any, list[fx.Node]]:
    """What views are of, and the views, the outermost last; each has as many readers, None: any number."""
    views: list[fx.Node] = []
    while isinstance(node, fx.Node) and node.target in VIEWS and readers in (None, len(node.users)):
        views.insert(0, node)
        node = node.args[0]
    require(isinstance(node, fx.Node))
    return node, views


def _step(node: fx.Node) -> Step:
    require(not node.kwargs)
    return Step(node.target, tuple(node.args[1:]), moves=True)
