"""A linear layer and the cross-entropy behind it, by parts of the rows: logits are never whole.

A language model's logits are a row of the vocabulary for each token, by far its largest tensor, and eager mode makes
several of that size. Nothing but the loss and three gradients comes out of them, and each row counts by itself, so any
number of rows may go all the way at once: forward alone and once more in the backward pass, or, because nothing but a
factor is missing then, forward and backward together.
"""

# Arguments of captured calls are tensors by position, and there are many.
# ruff: noqa: PLR0913, PLR0917

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization, When
from explorer.operators.cross_entropy import (
    cross_entropy_backward,
    cross_entropy_backward_by_rows_,
    gradient_of_log_probabilities,
)
from explorer.operators.loss_by_rows import Gradients, Layer, LossesSoFar, OfLoss
from explorer.operators.loss_plan import MEAN, SUM, Plan, counts_of_parts, of_layer
from explorer.operators.registry import Variant, rule, value_of

aten = torch.ops.aten
_IN_PARTS: dict[str, Any] = {"exact": False, "optimization": Optimization.CONVOLUTION}


def as_eager(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    class_weight: torch.Tensor | None,
    target: torch.Tensor,
    plan: Plan,
    *,
    over: bool = False,
) -> tuple[torch.Tensor, ...]:
    """Forward in PyTorch's own calls.

    Args:
        source: (rows, width).
        weight: (width, classes).
        bias: (classes,).
        class_weight: (classes,).
        target: (rows with a loss,), or with more axes.
        plan: what happens in between.
        over: log-softmax is over what it reads.

    Returns:
        The loss, the total weight of all rows, sums of log-probabilities where those are asked for, log-probabilities,
        and what the backward pass reads of what leads to them.
    """
    layer = Layer(source, weight, bias, class_weight, target, plan)
    made: dict[int, torch.Tensor] = {}
    value = layer.log_probabilities(source, made, whole=True, over=over)
    return (*layer.whole_losses(value), value, *(made[x] for x in plan.saved))


def over_logits(*args: Any) -> tuple[torch.Tensor, ...]:
    """``as_eager`` with log-softmax over what it reads."""
    return as_eager(*args, over=True)


def loss_alone(*args: Any) -> tuple[torch.Tensor, ...]:
    """Forward in as many parts as the last argument says: nothing that is as large as the logits."""
    *arguments, parts = args
    layer, target = Layer(*arguments).by_rows(), arguments[-2]
    plan, losses = layer.plan, LossesSoFar(layer.plan)
    for rows, part in layer.parts(parts):
        reduction = SUM if plan.reduction == MEAN else plan.reduction
        losses.found.append(layer.losses(layer.log_probabilities(part, {}), rows, reduction))
    return losses.results(target.shape)


def with_gradients(*args: Any) -> tuple[torch.Tensor, ...]:
    """``loss_alone``, and the gradients as they are where that of the loss is 1; sums are not rounded yet."""
    *arguments, parts = args
    layer, target = Layer(*arguments).by_rows(), arguments[-2]
    losses, gradients = LossesSoFar(layer.plan), Gradients(layer)
    begin: list[OfLoss] = []

    def of_part(rows: slice, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        made: dict[int, torch.Tensor] = {}
        value = layer.log_probabilities(part, made)
        losses.found.append(layer.losses(value, rows, SUM))
        if not begin:
            one = value.new_ones(())
            begin.append(OfLoss(one, layer.total_weight(one.dtype)))
        return begin[0].of_logits(layer, rows, value, made, over=True)

    for rows, part in layer.parts(parts):
        gradients.add(rows, part, *of_part(rows, part))
    return (*losses.results(target.shape), *gradients.sums())


def linear_cross_entropy(*args: Any) -> tuple[torch.Tensor, ...]:
    """All that any implementation makes; the arguments are those of ``as_eager``."""
    plan: Plan = args[-1]
    whole = as_eager(*args)
    return (*whole, *with_gradients(*args, 1)[plan.losses :]) if plan.at_once else whole


def linear_cross_entropy_backward(
    gradient: torch.Tensor,
    total: torch.Tensor,
    smoothed: torch.Tensor | None,
    shares: torch.Tensor | None,
    source: torch.Tensor,
    weight: torch.Tensor,
    class_weight: torch.Tensor | None,
    target: torch.Tensor,
    log_probabilities: torch.Tensor,
    saved: tuple[torch.Tensor, ...],
    plan: Plan,
    *_: Any,
) -> tuple[torch.Tensor, ...]:
    """Backward in PyTorch's own calls.

    Args:
        gradient: of the loss.
        total: as the forward pass made it.
        smoothed: see ``cross_entropy_backward``.
        shares: likewise.
        source: as in the forward pass.
        weight: likewise.
        class_weight: likewise.
        target: likewise.
        log_probabilities: as the forward pass made them.
        saved: what it saved besides.
        plan: as there.
        _: what other ways read: the layer's bias, gradients made before.

    Returns:
        The gradients of source, weight and bias that are wanted.
    """
    others = (class_weight, plan.reduction, plan.ignored, total)
    if plan.flat:
        value = cross_entropy_backward(gradient, log_probabilities, target, *others, smoothed, shares, plan.dtype)
    else:
        value = _of_log_softmax(gradient, log_probabilities, target, *others, smoothed, shares, plan)
    made = dict(zip(plan.saved, saved, strict=True))
    for step in plan.backward:
        value = step.run(value, made)
    return _products(source, weight, plan, value)


def _of_log_softmax(gradient: torch.Tensor, log_probabilities: torch.Tensor, *others: Any) -> torch.Tensor:
    """The gradient of what log-softmax reads, as autograd makes it, where the loss reads a view of log-softmax."""
    target, class_weight, reduction, ignored, total, smoothed, shares, plan = others
    read = plan.runs(log_probabilities, plan.between)
    of_loss = (target, class_weight, reduction, ignored, total, None, None)
    given = plan.runs(gradient_of_log_probabilities(torch.empty_like(read), gradient, read, *of_loss), plan.back)
    if smoothed is not None:
        given.add_(smoothed if shares is None else smoothed * shares)
    return aten._log_softmax_backward_data.default(given, log_probabilities, plan.classes, plan.dtype or given.dtype)


def some_at_a_time(*args: Any) -> tuple[torch.Tensor, ...]:
    """``linear_cross_entropy_backward``, where eager mode frees before its last steps what a joined call holds.

    The same kernels and bits, but for some of log-softmax's first axis at a time.
    """
    *_, source, weight, _, _, _, _, plan = args
    return _products(source, weight, plan, _of_layer(*args))


def _of_layer(*args: Any) -> torch.Tensor:
    """The gradient of the layer's result."""
    *of_loss, source, weight, class_weight, target, log_probabilities, saved, plan = args
    layer = Layer(source, weight, None, class_weight, target, plan).by_rows()
    begin = OfLoss.by_rows(*of_loss)
    chosen = plan.chosen(len(source), source.device)
    chosen = torch.arange(len(source), device=source.device) if chosen is None else chosen
    result = source.new_zeros((len(source), weight.shape[1]))
    count = target.numel() // len(log_probabilities)

    def write(part: torch.Tensor, rows: slice) -> None:
        """What it makes is gone before the next part's is there."""
        made = {}
        for number, x in zip(plan.saved, saved, strict=True):
            made[number] = x.flatten(0, -2)[chosen[rows] if of_layer(plan.forward, number) else rows]
        value = begin.by_kernels(layer, rows, part)
        for step in plan.backward:
            value = value if step.moves else step.run(value, made)
        # Rows of classes, or as many such matrices as there are entries, transposed.
        places = chosen[rows].view(1 if plan.last else len(part), -1)
        for at, one in zip(places, [value] if plan.last else value.flatten(2).transpose(1, 2), strict=True):
            result.index_copy_(0, at, one)

    for first in range(0, len(log_probabilities), plan.at_a_time):
        part = log_probabilities[first : first + plan.at_a_time]
        write(part, slice(first * count, (first + len(part)) * count))
    return result


def over_log_probabilities(*args: Any) -> tuple[torch.Tensor, ...]:
    """The same, with the gradient of the logits over the log-probabilities, in as many parts as the last one says."""
    gradient, total, smoothed, shares, source, weight, class_weight, target, log_probabilities, _, plan, parts = args
    others = (class_weight, plan.reduction, plan.ignored, total, smoothed, shares, None, parts)
    value = cross_entropy_backward_by_rows_(gradient, log_probabilities, target, *others)
    for step in plan.backward:
        value = step.run(value, {})
    return _products(source, weight, plan, value)


def _products(source: torch.Tensor, weight: torch.Tensor, plan: Plan, of_logits: torch.Tensor) -> tuple[Any, ...]:
    of_source, of_weight, of_bias = plan.wanted
    found = []
    if of_source:
        found.append(of_logits @ weight.t())
    if of_weight:
        found.append(of_logits.t() @ source if plan.by_class else source.t() @ of_logits)
    if of_bias:
        found.append(of_logits.sum([0], keepdim=True))
    return tuple(found)


def in_parts(*args: Any) -> tuple[torch.Tensor, ...]:
    """Backward in as many parts as the last argument says: the gradient of the logits is never whole."""
    *of_loss, source, weight, class_weight, target, log_probabilities, saved, plan, parts = args
    layer = Layer(source, weight, None, class_weight, target, plan).by_rows()
    begin, gradients = OfLoss.by_rows(*of_loss), Gradients(layer)
    saved = [x.flatten(0, -2) for x in saved]
    log_probabilities = log_probabilities.flatten(0, -2)
    for rows, part in layer.parts(parts):
        # What was saved before rows were chosen has all of them.
        own = [gradients.chosen if of_layer(plan.forward, x) else None for x in plan.saved]
        chosen = [rows if x is None else x[rows] for x in own]
        made = {number: x[at] for number, x, at in zip(plan.saved, saved, chosen, strict=True)}
        gradients.add(rows, part, *begin.of_logits(layer, rows, log_probabilities[rows], made))
    return gradients.results()


def logits_again(*args: Any) -> tuple[torch.Tensor, ...]:
    """Backward in parts, from the layer's source: nothing as large as the logits is ever whole."""
    *of_loss, source, weight, bias, class_weight, target, plan, parts = args
    layer = Layer(source, weight, bias, class_weight, target, plan).by_rows()
    begin, gradients = OfLoss.by_rows(*of_loss), Gradients(layer)

    def of_part(rows: slice, part: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        made: dict[int, torch.Tensor] = {}
        return begin.of_logits(layer, rows, layer.log_probabilities(part, made), made, over=True)

    for rows, part in layer.parts(parts):
        gradients.add(rows, part, *of_part(rows, part))
    return gradients.results()


def gradients_made_before(
    gradient: torch.Tensor, dtype: torch.dtype, largest: torch.Tensor, *others: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The gradients of ``with_gradients`` times that of the loss; the largest in its own memory.

    Args:
        gradient: of the loss.
        dtype: of the results.
        largest: of the others, which is of no use afterwards.
        others: all of them.
    """
    return tuple((x.mul_(gradient) if x is largest else x * gradient.to(x.dtype)).to(dtype) for x in others)


@rule(linear_cross_entropy)
def forward_ways(node: fx.Node) -> Iterator[Variant]:
    """Whole, or only what is no larger than the rows, in parts."""
    target: Any
    *_, target, plan = node.args
    assert isinstance(plan, Plan)
    losses, made = tuple(range(plan.losses)), tuple(range(plan.kept, len(value_of(node))))
    if plan.flat and plan.alone and not plan.half_to_float and plan.last_computed not in plan.saved:
        yield Variant("in place", over_logits, node.args, tuple(range(plan.kept)), optimization=Optimization.INPLACE)
    for parts in counts_of_parts(value_of(target).numel()):
        args = (*node.args, parts)
        yield Variant(f"loss alone, in {parts} parts", loss_alone, args, losses, When.FIRST, **_IN_PARTS)
        if made:
            name = f"with gradients, in {parts} parts"
            yield Variant(name, with_gradients, args, (*losses, *made), When.FIRST, **_IN_PARTS)


@rule(linear_cross_entropy_backward)
def backward_ways(node: fx.Node) -> Iterator[Variant]:
    """In parts, from the log-probabilities or from the layer's source; or little is left to do.

    The call has the layer's bias and the gradients made before behind what PyTorch's own way reads.
    """
    whole: list[Any]
    made: Any
    *whole, bias, made = node.args
    *of_loss, source, weight, class_weight, target, log_probabilities, _, plan = whole
    assert isinstance(plan, Plan)
    assert isinstance(log_probabilities, fx.Node)
    for parts in counts_of_parts(value_of(target).numel()):
        if plan.last and all(of_layer(plan.forward, x) is not None for x in plan.saved):
            yield Variant(f"in {parts} parts", in_parts, (*whole, parts), **_IN_PARTS)
        if plan.flat and plan.dtype is None and all(x.moves for x in plan.backward):
            yield Variant(
                f"in {parts} parts, in place",
                over_log_probabilities,
                (*whole, parts),
                optimization=Optimization.INPLACE,
                overwrites=log_probabilities,
            )
        again = (*of_loss, source, weight, bias, class_weight, target, plan, parts)
        yield Variant(f"logits again, in {parts} parts", logits_again, again, **_IN_PARTS)
    if made:
        largest = max(made, key=lambda x: value_of(x).numel())
        args = (of_loss[0], value_of(weight).dtype, largest, *made)
        yield Variant("made before", gradients_made_before, args, overwrites=largest, **_IN_PARTS)
