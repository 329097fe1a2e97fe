"""A linear layer and the cross-entropy behind it as one call in each pass, so that they may go by parts of the rows.

Joined only where logits are that large that eager mode has its peak among them: then nothing that the joined backward
call keeps to its end, and autograd does not, can be seen in any peak.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from explorer.capture.joining import OtherwiseError, element_of, products_of, replace_by, require
from explorer.capture.losses import Loss, loss_of
from explorer.capture.rows_of_classes import axis_behind, keeps_rows, of_one_number, step_of
from explorer.graph import Role
from explorer.operators import linear_cross_entropy as ways
from explorer.operators.cross_entropy import cross_entropy_backward
from explorer.operators.loss_by_rows import precise
from explorer.operators.loss_plan import NONE, VIEWS, Made, Plan, Step, counts_of_parts, of_layer
from explorer.operators.registry import AS_EAGER, OWN_RESULTS, ROLE, all_arguments, value_of

aten = torch.ops.aten
_MOST = 0.005
"""Of the joined backward call's worst moment: what autograd would have freed by then, such as a last token's row."""
_MOST_TIMES = 64
"""PyTorch's own kernels go backward so often, for some of log-softmax's first axis at a time."""


def join_linear_layers(graph: fx.Graph, named: Collection[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Replace every layer whose logits nothing but a loss reads.

    Args:
        graph: joint, without what nobody reads; it is changed in place.
        named: nodes that are results or gradients.

    Returns:
        For each node that another one stands for now, that one.
    """
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target in (cross_entropy_backward, aten._log_softmax_backward_data.default):
            try:
                found = _Found(node, named)
            except OtherwiseError:
                continue
            replaced |= found.join(graph)
    return replaced


@dataclass
class _Chain:
    """Steps between a layer and a loss, in one pass, with their nodes and the axis of the classes behind each."""

    nodes: list[fx.Node] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    axes: list[int] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Are there any but views?"""
        return any(x.moves and x.target not in VIEWS for x in self.steps)

    def add(self, node: fx.Node, made: dict[fx.Node, int], axis: int) -> int:
        """One more; returns the axis of the classes behind it, ``axis`` is that before it."""
        step, axis = step_of(node, made, axis)
        self.nodes.append(node)
        self.steps.append(step)
        self.axes.append(axis)
        return axis


class _Found:
    """The calls of a layer and its loss in both passes.

    Raises:
        OtherwiseError: something else reads logits or their gradient, or computes otherwise with them.
    """

    def __init__(self, backward: fx.Node, named: Collection[fx.Node]) -> None:
        """From the call that makes the gradient of what log-softmax reads."""
        self.backward = backward
        self.loss: Loss = loss_of(backward)
        self.log_softmax = self.loss.log_softmax
        self.classes = all_arguments(self.log_softmax)[1] % value_of(self.log_softmax).dim()
        self.forward = self._forward()
        self.after = self._after()
        of_logits = self.after.nodes[-1] if self.after.nodes else backward
        *self.products, self.by_class = products_of(of_logits, self.source, self.weight)
        require(any(x is not None for x in self.products))
        self.saved = [x for x in self._numbers() if any(Made(x) in step.args for step in self.after.steps)]
        self._check_readers()
        within = {backward, self.log_softmax, *self._numbers().values(), *self.after.nodes, *self.loss.within}
        require(not within.intersection(named))
        require(counts_of_parts(value_of(self.loss.target).numel()))
        self.at_a_time = None if self._no_higher() else self._at_a_time()

    def _forward(self) -> _Chain:
        """From the layer to log-softmax."""
        nodes: list[fx.Node] = []
        value: Any = self.log_softmax.args[0]
        while value.target not in (aten.mm.default, aten.addmm.default):
            nodes.insert(0, value)
            value = value.args[0] if value.args else None
            require(isinstance(value, fx.Node) and value.op == "call_function")
        arguments = all_arguments(value)
        self.source: Any
        self.weight: Any
        *biases, self.source, self.weight = arguments[:2] if value.target is aten.mm.default else arguments[:3]
        bias = biases[0] if biases else None
        require(arguments[3:] in ([], [1, 1]))
        require(bias is None or value_of(bias).shape == value_of(self.weight).shape[1:])
        self.layer, self.bias = value, bias
        found, axis = _Chain(), 1
        for node in nodes:
            axis = found.add(node, {}, axis)
        require(axis == self.classes)
        return found

    def _numbers(self) -> dict[int, fx.Node]:
        """What ``Made`` stands for."""
        return dict(enumerate((self.layer, *self.forward.nodes), start=-1))

    def _after(self) -> _Chain:
        """From the gradient of what log-softmax reads to that of the layer's result."""
        found, value, axis = _Chain(), self.backward, self.classes
        number_of = {node: number for number, node in self._numbers().items()}
        while True:
            readers = list(value.users)
            if any(x.target in (aten.mm.default, aten.t.default) for x in readers):
                return found
            require(len(readers) == 1)
            (value,) = readers
            axis = found.add(value, number_of, axis)

    def _check_readers(self) -> None:
        """Nothing else reads what leads to the loss."""
        for number, node in self._numbers().items():
            following = [*self.forward.nodes, self.log_softmax][number + 1]
            require(set(node.users) <= {following, *self.after.nodes})

    def _no_higher(self) -> bool:
        """Is the joined backward call's worst moment one that autograd's calls have, too?"""
        kept = self._kept_bytes()
        steps = self._computing()
        moments = [kept + _bytes(x) + _bytes(y) for x, y in pairwise(steps)]
        return max(*moments, kept + _bytes(steps[-1]) + self._results_bytes(), 0) <= self._autograd_bytes() * (
            1 + _MOST
        )

    def _at_a_time(self) -> int:
        """Of log-softmax's first axis, as much as goes backward at a time in memory that autograd's calls have, too."""
        matrices = value_of(self.log_softmax).dim() == 2 + 1 and self.classes == 1 and not self.saved
        require(self._last or matrices)
        # Plain rows whose loss holds too much are few classes, which are none of the largest tensors.
        require(not self.loss.kept_bytes or self.loss.between or self.forward.moves)
        require(all(of_layer(self.forward.steps, x) is not None for x in self.saved))
        # The gradient of the log-probabilities; in its memory, unless dtypes differ, that of what log-softmax reads.
        most = first = _bytes(self.log_softmax)
        before = 0 if self.loss.dtype is None else _bytes(self.backward)
        most += max(before, first if self.loss.shares is not None else 0)
        for node, step in zip(self.after.nodes, self.after.steps, strict=True):
            if not step.moves:
                most = max(most, first + before + _bytes(node))
                before = _bytes(node)
        most += sum(_bytes(self._numbers()[x]) for x in self.saved)
        count = len(value_of(self.log_softmax))
        autograd = max(self._autograd_bytes(), 0, *(_bytes(x) + _bytes(y) for x, y in pairwise(self._computing())))
        left = autograd - self._kept_bytes() - self.loss.kept_bytes - _bytes(self.layer)
        require(left >= self._results_bytes())
        found = left * count // most
        require(found >= 1 and found * _MOST_TIMES >= count)
        return min(found, count)

    def _kept_bytes(self) -> int:
        """Of what autograd's calls read until log-softmax's backward pass is done."""
        return _bytes(self.log_softmax) + sum(_bytes(self._numbers()[x]) for x in self.saved)

    def _autograd_bytes(self) -> int:
        """What autograd's calls have at their worst moment that is known."""
        return self._kept_bytes() + _bytes(self.log_softmax) + _bytes(self.backward)

    def _results_bytes(self) -> int:
        return sum(_bytes(x) for x in self.products if x is not None)

    def _computing(self) -> list[fx.Node]:
        """What makes gradients from that of what log-softmax reads on, in memory of their own."""
        views = [x for x in self.after.nodes if x.target in VIEWS or getattr(x.target, "is_view", False)]
        return [x for x in (self.backward, *self.after.nodes) if x not in views]

    @property
    def _last(self) -> bool:
        """Do the last axes have the classes, all the way?"""
        values = [self.layer, *self.forward.nodes]
        axes = zip(values, [1, *self.forward.axes], strict=True)
        return all(axis == value_of(x).dim() - 1 for x, axis in axes)

    def plan(self) -> Plan:
        """What happens in between."""
        axes = [1, *self.forward.axes]
        moved = [(x, *axis) for x, axis in zip(self.forward.nodes, pairwise(axes), strict=True)]
        moved = [x for x in moved if axis_behind(x[0], x[1]) is not None]
        still = all(keeps_rows(node, axis) for node, axis, _ in moved)
        halves = value_of(self.layer).dtype is torch.float16
        loss = self.loss
        sums = None if loss.sums is None else value_of(loss.sums).shape
        return Plan(
            forward=tuple(self.forward.steps),
            backward=tuple(self.after.steps),
            rows=() if still else tuple(of_one_number(node, axis) for node, _, axis in moved),
            half_to_float=bool(all_arguments(self.log_softmax)[2]),
            dtype=loss.dtype,
            reduction=loss.reduction,
            ignored=loss.ignored,
            sums=loss.sums is not None,
            saved=tuple(self.saved),
            wanted=tuple(x is not None for x in self.products),  # type: ignore[arg-type]  # three of them
            by_class=self.by_class,
            # Of halves, gradients of a loss that is not scaled yet may be too small for numbers of sixteen bits.
            at_once=loss.reduction != NONE and loss.smoothed is None and not halves,
            classes=self.classes,
            last=self._last,
            between=loss.between,
            back=loss.back,
            weighted=loss.weighted,
            of_sums=None if sums is None or sums == value_of(loss.target).shape else tuple(sums),
            at_a_time=self.at_a_time,
        )

    def _sums(self) -> list[torch.Tensor]:
        """Fake tensors for the gradients that are made in the forward pass."""
        found = []
        for product in self.products:
            if product is not None:
                value = value_of(product)
                dtype = value.dtype if product is self.products[0] else precise(value.dtype)
                with value.fake_mode:
                    found.append(torch.empty(value.shape, dtype=dtype, device=value.device))
        return found

    def join(self, graph: fx.Graph) -> dict[fx.Node, fx.Node]:
        """Put the joined calls in; returns what stands for what."""
        plan = self.plan()
        loss = self.loss
        args: Any = (self.source, self.weight, self.bias, loss.class_weight, loss.target, plan)
        sums = () if loss.sums is None else (loss.sums,)
        old = [*loss.results, *sums, self.log_softmax, *(self._numbers()[x] for x in self.saved)]
        with graph.inserting_before(loss.node):
            layer = graph.call_function(ways.linear_cross_entropy, args)
        made = self._sums() if plan.at_once else []
        layer.meta = {**self.layer.meta, "val": (*map(value_of, old), *made)}
        layer.meta[AS_EAGER] = (ways.as_eager, args, {})
        layer.meta[OWN_RESULTS] = tuple(range(plan.kept))
        results = replace_by(layer, old)
        log_probabilities = results[plan.losses]
        saved = tuple(results[plan.losses + 1 : plan.kept])
        before = tuple(element_of(layer, n, after=results[-1]) for n in range(plan.kept, plan.kept + len(made)))
        for element, product in zip(before, [x for x in self.products if x is not None], strict=False):
            element.meta[ROLE] = Role.GRADIENT if product is self.products[0] else Role.PARAMETER_GRADIENT
        own: Any = (loss.gradient, results[1], loss.smoothed, loss.shares, self.source, self.weight)
        own = (*own, loss.class_weight, loss.target)
        own = (*own, log_probabilities, saved, plan)
        with graph.inserting_before(self.backward):
            products = graph.call_function(ways.linear_cross_entropy_backward, (*own, self.bias, before))
        wanted = [x for x in self.products if x is not None]
        products.meta = {**wanted[-1].meta, "val": tuple(map(value_of, wanted))}
        as_eager = ways.linear_cross_entropy_backward if plan.at_a_time is None else ways.some_at_a_time
        products.meta[AS_EAGER] = (as_eager, own, {})
        return dict(zip([*old, *wanted], [*results, *replace_by(products, wanted)], strict=True))


def _bytes(node: fx.Node) -> int:
    return value_of(node).nbytes
