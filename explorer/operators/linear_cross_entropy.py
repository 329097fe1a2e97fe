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
from dataclasses import dataclass, field
from typing import Any

import torch

from explorer.operators.cross_entropy import (
    cross_entropy_backward,
    cross_entropy_backward_by_rows_,
    gradient_of_log_probabilities,
)

aten = torch.ops.aten
_NONE, _MEAN, _SUM = range(3)  # as PyTorch counts reductions


@dataclass(frozen=True, slots=True)
class Made:
    """Stands for what the forward pass made.

    Attributes:
        number: of the step that made it; −1 for the logits.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Step:
    """A call on what the step before it made.

    Attributes:
        target: of ATen.
        args: behind the first.
        kwargs: names and values.
        moves: it moves rows (a view, a slice); otherwise it computes each element from its own.
    """

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    moves: bool = False

    def run(self, value: torch.Tensor, made: dict[int, torch.Tensor]) -> torch.Tensor:
        """Its result; ``made`` is what ``Made`` stands for."""
        args = [made[x.number] if isinstance(x, Made) else x for x in self.args]
        return self.target(value, *args, **dict(self.kwargs))


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens between a linear layer and a loss.

    Attributes:
        forward: from the layer's result to what log-softmax reads.
        backward: from the gradient of that to the gradient of the layer's result.
        rows: those of ``forward`` that move rows, for one number a row; empty where all rows stay in their places.
        half_to_float: log-softmax's own argument.
        dtype: of the gradient of what log-softmax reads, where it is another one than that of the log-probabilities.
        reduction: as PyTorch counts them.
        ignored: a class whose rows count nothing.
        sums: the sum of each row's log-probabilities is asked for, too (smoothed labels).
        saved: numbers of ``Made`` that the backward pass reads.
        wanted: are gradients of the layer's source, weight and bias?
        by_class: the weight's gradient has a row for each class.
        at_once: forward and backward may run together.
    """

    forward: tuple[Step, ...]
    backward: tuple[Step, ...]
    rows: tuple[Step, ...]
    half_to_float: bool
    dtype: torch.dtype | None
    reduction: int
    ignored: int
    sums: bool
    saved: tuple[int, ...]
    wanted: tuple[bool, bool, bool]
    by_class: bool
    at_once: bool

    @property
    def losses(self) -> int:
        """Results that are no larger than a number for each row."""
        return 3 if self.sums else 2

    @property
    def kept(self) -> int:
        """Results of PyTorch's own way: those, the log-probabilities, and what is saved besides."""
        return self.losses + 1 + len(self.saved)

    @property
    def last_computed(self) -> int:
        """Number of what is in the memory that log-softmax reads."""
        return max((n for n, x in enumerate(self.forward) if not x.moves or x.target is aten.clone.default), default=-1)

    def chosen(self, count: int, device: torch.device) -> torch.Tensor | None:
        """Which of the layer's ``count`` rows have a loss, in order; None if all of them have."""
        if not self.rows:
            return None
        numbers = torch.arange(count, device=device).unsqueeze(1)
        for step in self.rows:
            numbers = step.run(numbers, {})
        return numbers.flatten()


@dataclass(frozen=True, slots=True)
class _Layer:
    """Arguments of the forward pass, see ``as_eager``."""

    source: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    class_weight: torch.Tensor | None
    target: torch.Tensor
    plan: Plan

    def parts(self, count: int) -> Iterator[tuple[slice, torch.Tensor]]:
        """In ``count`` parts, which rows have a loss, and the source's rows for those."""
        chosen = self.plan.chosen(len(self.source), self.source.device)
        size = -(-len(self.target) // count)
        for begin in range(0, len(self.target), size):
            rows = slice(begin, begin + size)
            yield rows, self.source[rows] if chosen is None else self.source.index_select(0, chosen[rows])

    def log_probabilities(
        self, part: torch.Tensor, made: dict[int, torch.Tensor], *, whole: bool = False, over: bool = True
    ) -> torch.Tensor:
        """Of some rows; ``made`` gets what the backward pass reads.

        Args:
            part: the source's rows.
            made: by number, see ``Made``.
            whole: they are all rows, as captured; else moves are left out.
            over: log-softmax may write over what it reads, unless that is needed.
        """
        plan = self.plan
        value = part @ self.weight if self.bias is None else torch.addmm(self.bias, part, self.weight)
        if -1 in plan.saved:
            made[-1] = value
        for number, step in enumerate(plan.forward):
            if whole or not step.moves:
                value = step.run(value, made)
            if number in plan.saved:
                made[number] = value
        if over and not plan.half_to_float and plan.last_computed not in plan.saved:
            return aten._log_softmax.out(value, 1, False, out=value)
        return aten._log_softmax.default(value, 1, plan.half_to_float)

    def losses(self, log_probabilities: torch.Tensor, rows: slice, reduction: int) -> tuple[torch.Tensor, ...]:
        """Loss, total weight, and sums where they are asked for, of some rows."""
        plan = self.plan
        found = aten.nll_loss_forward.default(
            log_probabilities, self.target[rows], self.class_weight, reduction, plan.ignored
        )
        return (*found, log_probabilities.sum([1])) if plan.sums else found

    def total_weight(self, dtype: torch.dtype) -> torch.Tensor:
        """Of all rows, as the loss computes it."""
        counts = self.target != self.plan.ignored
        if self.class_weight is None:
            return counts.sum().to(dtype)
        return (self.class_weight[torch.where(counts, self.target, 0)] * counts).sum()


@dataclass(frozen=True, slots=True)
class _OfLoss:
    """What the backward pass begins with, see ``cross_entropy_backward``."""

    gradient: torch.Tensor
    total: torch.Tensor
    smoothed: torch.Tensor | None = None
    shares: torch.Tensor | None = None

    def of_logits(
        self, layer: _Layer, rows: slice, log_probabilities: torch.Tensor, made: dict[int, torch.Tensor]
    ) -> torch.Tensor:
        """The gradient of some rows of the layer's result."""
        plan = layer.plan
        value = gradient_of_log_probabilities(
            torch.empty_like(log_probabilities),
            self.gradient[rows] if plan.reduction == _NONE else self.gradient,
            log_probabilities,
            layer.target[rows],
            layer.class_weight,
            plan.reduction,
            plan.ignored,
            self.total,
            None if self.smoothed is None else self.smoothed[rows],
            self.shares,
        )
        if plan.dtype is None:
            aten._log_softmax_backward_data.out(value, log_probabilities, 1, value.dtype, out=value)
        else:
            value = aten._log_softmax_backward_data.default(value, log_probabilities, 1, plan.dtype)
        for step in plan.backward:
            if not step.moves:
                value = step.run(value, made)
        return value


@dataclass(slots=True)
class _LossesSoFar:
    """Losses of parts, added up in single precision at least."""

    plan: Plan
    found: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def results(self) -> tuple[torch.Tensor, ...]:
        losses, totals, *sums = zip(*self.found, strict=True)
        if self.plan.reduction == _NONE:
            return torch.cat(losses), totals[-1], *map(torch.cat, sums)
        dtype = losses[0].dtype
        loss, total = (torch.stack(x).to(_precise(dtype)).sum() for x in (losses, totals))
        loss = loss / total if self.plan.reduction == _MEAN else loss
        return loss.to(dtype), total.to(dtype), *map(torch.cat, sums)


class _Gradients:
    """Gradients of a layer's source, weight and bias, from those of some rows of its result after the other."""

    def __init__(self, layer: _Layer) -> None:
        plan, source, weight = layer.plan, layer.source, layer.weight
        of_source, of_weight, of_bias = plan.wanted
        precise = _precise(weight.dtype)
        self.layer = layer
        self.chosen = plan.chosen(len(source), source.device)
        shape = (source.shape[1], weight.shape[1])
        self.source = self.weight = self.bias = None
        if of_source:
            self.source = torch.empty(source.shape, dtype=source.dtype, device=source.device)
            if self.chosen is not None:
                self.source.zero_()
        if of_weight:
            self.weight = weight.new_empty(shape[::-1] if plan.by_class else shape, dtype=precise)
        if of_bias:
            self.bias = weight.new_zeros((1, weight.shape[1]), dtype=precise)

    def add(self, rows: slice, part: torch.Tensor, of_logits: torch.Tensor) -> None:
        """Rows of the source and the gradient of the layer's result for them."""
        if self.source is not None and self.chosen is None:
            torch.mm(of_logits, self.layer.weight.t(), out=self.source[rows])
        elif self.source is not None and self.chosen is not None:
            self.source.index_copy_(0, self.chosen[rows], of_logits @ self.layer.weight.t())
        if self.bias is not None:
            self.bias += of_logits.sum(0, keepdim=True, dtype=self.bias.dtype)
        if self.weight is not None:
            first, second = (of_logits, part) if self.layer.plan.by_class else (part, of_logits)
            _add_product(self.weight, first.t(), second, first=rows.start == 0)

    def results(self) -> tuple[torch.Tensor, ...]:
        """Those that are wanted."""
        dtype = self.layer.weight.dtype
        return tuple(x.to(dtype) for x in (self.source, self.weight, self.bias) if x is not None)


def _precise(dtype: torch.dtype) -> torch.dtype:
    """In which sums over parts are made: halves would be rounded after each."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _add_product(into: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, first: bool) -> None:
    """``into`` += ``one`` @ ``other``, or = for the first part."""
    if into.dtype != one.dtype and one.device.type != "cpu":
        # There halves are multiplied quickly, and added up in single precision inside.
        product = one @ other
        into.copy_(product) if first else into.add_(product)
        return
    one, other = one.to(into.dtype), other.to(into.dtype)
    torch.addmm(into, one, other, beta=0 if first else 1, out=into)


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
        target: (rows with a loss,).
        plan: what happens in between.
        over: log-softmax is over what it reads.

    Returns:
        The loss, the total weight of all rows, sums of log-probabilities where those are asked for, log-probabilities,
        and what the backward pass reads of what leads to them.
    """
    layer = _Layer(source, weight, bias, class_weight, target, plan)
    made: dict[int, torch.Tensor] = {}
    value = layer.log_probabilities(source, made, whole=True, over=over)
    return (*layer.losses(value, slice(None), plan.reduction), value, *(made[x] for x in plan.saved))


def over_logits(*args: Any) -> tuple[torch.Tensor, ...]:
    """``as_eager`` with log-softmax over what it reads."""
    return as_eager(*args, over=True)


def loss_alone(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    class_weight: torch.Tensor | None,
    target: torch.Tensor,
    plan: Plan,
    parts: int,
) -> tuple[torch.Tensor, ...]:
    """Forward in parts: nothing that is as large as the logits."""
    layer = _Layer(source, weight, bias, class_weight, target, plan)
    losses = _LossesSoFar(plan)
    for rows, part in layer.parts(parts):
        reduction = _SUM if plan.reduction == _MEAN else plan.reduction
        losses.found.append(layer.losses(layer.log_probabilities(part, {}), rows, reduction))
    return losses.results()


def with_gradients(
    source: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    class_weight: torch.Tensor | None,
    target: torch.Tensor,
    plan: Plan,
    parts: int,
) -> tuple[torch.Tensor, ...]:
    """``loss_alone``, and the gradients as they are where that of the loss is 1."""
    layer = _Layer(source, weight, bias, class_weight, target, plan)
    losses, gradients = _LossesSoFar(plan), _Gradients(layer)
    begin: list[_OfLoss] = []

    def of_part(rows: slice, part: torch.Tensor) -> torch.Tensor:
        made: dict[int, torch.Tensor] = {}
        value = layer.log_probabilities(part, made)
        losses.found.append(layer.losses(value, rows, _SUM))
        if not begin:
            one = value.new_ones(())
            begin.append(_OfLoss(one, layer.total_weight(one.dtype)))
        return begin[0].of_logits(layer, rows, value, made)

    for rows, part in layer.parts(parts):
        gradients.add(rows, part, of_part(rows, part))
    return (*losses.results(), *gradients.results())


def linear_cross_entropy(*args: Any) -> tuple[torch.Tensor, ...]:
    """All that any implementation makes; the arguments are those of ``as_eager``."""
    plan: Plan = args[-1]
    return (*as_eager(*args), *(with_gradients(*args, 1)[plan.losses :] if plan.at_once else ()))


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
    others = (class_weight, plan.reduction, plan.ignored, total, smoothed, shares, plan.dtype)
    value = cross_entropy_backward(gradient, log_probabilities, target, *others)
    made = dict(zip(plan.saved, saved, strict=True))
    for step in plan.backward:
        value = step.run(value, made)
    return _products(source, weight, plan, value)


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
    gradient, total, smoothed, shares, source, weight, class_weight, target, log_probabilities, saved, plan, parts = args
    layer = _Layer(source, weight, None, class_weight, target, plan)
    begin, gradients = _OfLoss(gradient, total, smoothed, shares), _Gradients(layer)
    saved = [x.flatten(0, -2) for x in saved]
    for rows, part in layer.parts(parts):
        # What was saved before rows were chosen has all of them.
        chosen = [rows if len(x) == len(target) or gradients.chosen is None else gradients.chosen[rows] for x in saved]
        made = {number: x[at] for number, x, at in zip(plan.saved, saved, chosen, strict=True)}
        gradients.add(rows, part, begin.of_logits(layer, rows, log_probabilities[rows], made))
    return gradients.results()


def logits_again(*args: Any) -> tuple[torch.Tensor, ...]:
    """Backward in parts, from the layer's source: nothing as large as the logits is ever whole."""
    gradient, total, smoothed, shares, source, weight, bias, class_weight, target, plan, parts = args
    layer = _Layer(source, weight, bias, class_weight, target, plan)
    begin, gradients = _OfLoss(gradient, total, smoothed, shares), _Gradients(layer)

    def of_part(rows: slice, part: torch.Tensor) -> torch.Tensor:
        made: dict[int, torch.Tensor] = {}
        return begin.of_logits(layer, rows, layer.log_probabilities(part, made), made)

    for rows, part in layer.parts(parts):
        gradients.add(rows, part, of_part(rows, part))
    return gradients.results()


def gradients_made_before(gradient: torch.Tensor, *made: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The gradients of ``with_gradients`` times that of the loss; the first of the largest in its own memory."""
    largest = max(made, key=torch.Tensor.numel)
    return tuple(x.mul_(gradient) if x is largest else x * gradient.to(x.dtype) for x in made)
