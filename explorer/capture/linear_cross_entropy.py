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
from explorer.graph import Role
from explorer.operators import linear_cross_entropy as ways
from explorer.operators.cross_entropy import cross_entropy_backward
from explorer.operators.loss_by_rows import Made, Plan, Step, counts_of_parts, precise
from explorer.operators.registry import (
    AS_EAGER,
    OWN_RESULTS,
    ROLE,
    all_arguments,
    draws_random_numbers,
    output_of,
    value_of,
)

aten = torch.ops.aten
_VIEWS = (aten.view.default, aten._unsafe_view.default)
_MOVES = (*_VIEWS, aten.clone.default)
_COPY = aten._to_copy.default
_MOST = 0.005
"""Of the joined backward call's worst moment: what autograd would have freed by then, such as a last token's row."""
_NONE = 0  # ``reduction="none"``


def join_linear_layers(graph: fx.Graph, named: Collection[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Replace every layer whose logits nothing but a joined cross-entropy reads.

    Args:
        graph: joint, without what nobody reads; it is changed in place.
        named: nodes that are results or gradients.

    Returns:
        For each node that another one stands for now, that one.
    """
    replaced: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node.target is cross_entropy_backward:
            try:
                found = _Found(node, named)
            except OtherwiseError:
                continue
            replaced |= found.join(graph)
    return replaced


@dataclass
class _Chain:
    """Steps between a layer and a loss, in one pass, with their nodes."""

    nodes: list[fx.Node] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


class _Found:
    """The calls of a layer and its loss in both passes.

    Raises:
        OtherwiseError: something else reads logits or their gradient, or computes otherwise with them.
    """

    def __init__(self, backward: fx.Node, named: Collection[fx.Node]) -> None:
        """From the loss's backward call."""
        self.backward = backward
        args: Any = backward.args
        gradient, log_softmax, *loss, total, smoothed, shares, self.dtype = args
        self.of_loss = (gradient, total, smoothed, shares)
        self.target, self.class_weight, self.reduction, self.ignored = loss
        require(isinstance(log_softmax, fx.Node) and log_softmax.target is aten._log_softmax.default)
        self.log_softmax: fx.Node = log_softmax
        self.forward = self._forward()
        self.loss, self.sums = self._losses()
        self.after = self._after()
        of_logits = self.after.nodes[-1] if self.after.nodes else backward
        *self.products, self.by_class = products_of(of_logits, self.source, self.weight)
        require(any(x is not None for x in self.products))
        self.saved = [x for x in self._numbers() if any(Made(x) in step.args for step in self.after.steps)]
        self._check_readers()
        require(not {backward, log_softmax, *self._numbers().values(), *self.after.nodes}.intersection(named))
        require(counts_of_parts(len(value_of(self.target))))
        require(self._no_higher())

    def _forward(self) -> _Chain:
        """From the layer to log-softmax."""
        found = _Chain()
        value: Any = self.log_softmax.args[0]
        while value.target not in (aten.mm.default, aten.addmm.default):
            found.nodes.insert(0, value)
            found.steps.insert(0, _step(value, {}))
            value = value.args[0]
            require(isinstance(value, fx.Node) and value.op == "call_function")
        arguments = all_arguments(value)
        self.source: Any
        self.weight: Any
        *biases, self.source, self.weight = arguments[:2] if value.target is aten.mm.default else arguments[:3]
        bias = biases[0] if biases else None
        require(arguments[3:] in ([], [1, 1]))
        require(bias is None or value_of(bias).shape == value_of(self.weight).shape[1:])
        self.layer, self.bias = value, bias
        return found

    def _numbers(self) -> dict[int, fx.Node]:
        """What ``Made`` stands for."""
        return dict(enumerate((self.layer, *self.forward.nodes), start=-1))

    def _losses(self) -> tuple[fx.Node, fx.Node | None]:
        """The loss's own call, and the sums of log-probabilities if there are any."""
        readers = [x for x in self.log_softmax.users if x is not self.backward]
        losses = [x for x in readers if x.target is aten.nll_loss_forward.default]
        sums = [x for x in readers if x.target is aten.sum.dim_IntList]
        require(len(losses) == 1 and len(sums) <= 1 and len(readers) == len(losses) + len(sums))
        wanted = [self.log_softmax, self.target, self.class_weight, self.reduction, self.ignored]
        require(all_arguments(losses[0]) == wanted)
        require(all(x.args[1:] == ([1],) and not x.kwargs and losses[0] < x for x in sums))
        results = [output_of(losses[0], number) for number in (0, 1)]
        require(None not in results and results[1] is self.of_loss[1])
        self.results = [x for x in results if x is not None]
        return losses[0], next(iter(sums), None)

    def _after(self) -> _Chain:
        """From the gradient of what log-softmax reads to that of the layer's result."""
        found, value = _Chain(), self.backward
        number_of = {node: number for number, node in self._numbers().items()}
        while True:
            readers = list(value.users)
            if any(x.target in (aten.mm.default, aten.t.default) for x in readers):
                return found
            require(len(readers) == 1)
            (value,) = readers
            found.nodes.append(value)
            found.steps.append(_step(value, number_of))

    def _check_readers(self) -> None:
        """Nothing else reads what leads to the loss."""
        for number, node in self._numbers().items():
            following = [*self.forward.nodes, self.log_softmax][number + 1]
            require(set(node.users) <= {following, *self.after.nodes})

    def _no_higher(self) -> bool:
        """Is the joined backward call's worst moment one that autograd's calls have, too?"""
        kept = _bytes(self.log_softmax) + sum(_bytes(self._numbers()[x]) for x in self.saved)
        first = kept + _bytes(self.log_softmax) + _bytes(self.backward)
        steps = [self.backward, *(x for x in self.after.nodes if x.target not in _VIEWS)]
        moments = [kept + _bytes(x) + _bytes(y) for x, y in pairwise(steps)]
        results = sum(_bytes(x) for x in self.products if x is not None)
        return max(*moments, kept + _bytes(steps[-1]) + results, 0) <= first * (1 + _MOST)

    def plan(self) -> Plan:
        """What happens in between."""
        moves = all(x.target in _VIEWS for x in self.forward.nodes if _moves(x))
        rows = () if moves else tuple(_of_one_number(x) for x in self.forward.nodes if _moves(x))
        halves = value_of(self.layer).dtype is torch.float16
        return Plan(
            forward=tuple(self.forward.steps),
            backward=tuple(self.after.steps),
            rows=rows,
            half_to_float=bool(all_arguments(self.log_softmax)[2]),
            dtype=self.dtype,
            reduction=self.reduction,
            ignored=self.ignored,
            sums=self.sums is not None,
            saved=tuple(self.saved),
            wanted=tuple(x is not None for x in self.products),  # type: ignore[arg-type]  # three of them
            by_class=self.by_class,
            # Of halves, gradients of a loss that is not scaled yet may be too small for numbers of sixteen bits.
            at_once=self.reduction != _NONE and self.of_loss[2] is None and not halves,
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
        args: Any = (self.source, self.weight, self.bias, self.class_weight, self.target, plan)
        sums = () if self.sums is None else (self.sums,)
        old = [*self.results, *sums, self.log_softmax, *(self._numbers()[x] for x in self.saved)]
        with graph.inserting_before(self.loss):
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
        # By now ``of_loss`` has the total weight of the new call.
        gradient, total, smoothed, shares = self.backward.args[0], results[1], *self.backward.args[7:9]
        own: Any = (gradient, total, smoothed, shares, self.source, self.weight, self.class_weight, self.target)
        own = (*own, log_probabilities, saved, plan)
        with graph.inserting_before(self.backward):
            products = graph.call_function(ways.linear_cross_entropy_backward, (*own, self.bias, before))
        wanted = [x for x in self.products if x is not None]
        products.meta = {**wanted[-1].meta, "val": tuple(map(value_of, wanted))}
        products.meta[AS_EAGER] = (ways.linear_cross_entropy_backward, own, {})
        return dict(zip([*old, *wanted], [*results, *replace_by(products, wanted)], strict=True))


def _step(node: fx.Node, made: dict[fx.Node, int]) -> Step:
    """A node that works row by row on its first argument, as a step.

    Args:
        node: a call.
        made: what other arguments may be, by number.
    """
    kwargs = tuple((k, x) for k, x in node.kwargs.items() if node.target is not _COPY or k == "dtype")
    args = tuple(Made(made[x]) if isinstance(x, fx.Node) and x in made else x for x in node.args[1:])
    require(not any(isinstance(x, fx.Node) for x in (*args, *(x for _, x in kwargs))))
    if _moves(node):
        return Step(node.target, args, kwargs, moves=True)
    tags = getattr(node.target, "tags", ())
    require(node.target is _COPY or (torch.Tag.pointwise in tags and not draws_random_numbers(node)))
    source = node.args[0]
    require(isinstance(source, fx.Node))
    assert isinstance(source, fx.Node)
    result, read = value_of(node), value_of(source)
    require(isinstance(result, torch.Tensor) and isinstance(read, torch.Tensor))
    require(result.shape == read.shape and result.device == read.device)
    return Step(node.target, args, kwargs)


def _moves(node: fx.Node) -> bool:
    """Does it move rows, and leave each as it is?"""
    source = value_of(node.args[0]) if node.args and isinstance(node.args[0], fx.Node) else None
    if not isinstance(source, torch.Tensor) or not isinstance(value_of(node), torch.Tensor) or not source.dim():
        return False
    same_rows = value_of(node).shape[-1:] == source.shape[-1:]
    if node.target is aten.slice.Tensor:
        return same_rows and all_arguments(node)[1] % source.dim() != source.dim() - 1
    if node.target is aten.slice_backward.default:
        return same_rows and node.args[2] % source.dim() != source.dim() - 1  # type: ignore[operator]
    return same_rows and node.target in _MOVES


def _of_one_number(node: fx.Node) -> Step:
    """The same for rows of one number."""
    args = tuple(node.args[1:])
    if node.target in _VIEWS:
        (shape,) = args
        return Step(aten.reshape.default, ([*shape[:-1], 1],), moves=True)  # type: ignore[misc]
    return Step(node.target, args, tuple(node.kwargs.items()), moves=True)


def _bytes(node: fx.Node) -> int:
    return value_of(node).nbytes
