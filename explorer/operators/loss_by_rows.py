"""Some rows of a linear layer and of the loss behind it: what ``linear_cross_entropy`` goes through part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from explorer.operators.cross_entropy import gradient_of_log_probabilities

aten = torch.ops.aten
NONE, MEAN, SUM = range(3)  # as PyTorch counts reductions
_PARTS = (4, 8, 16, 64)
_LEAST_ROWS = 8


def counts_of_parts(rows: int) -> tuple[int, ...]:
    """In how many parts these rows may go: none so small that products take much longer."""
    return tuple(x for x in _PARTS if rows >= _LEAST_ROWS * x)


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
class Layer:
    """Arguments of the forward pass, see ``as_eager``."""

    source: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    class_weight: torch.Tensor | None
    target: torch.Tensor
    plan: Plan
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)

    def buffer(self, name: str, rows: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory for some rows of logits, the same for every part: new memory has to be cleared first, page by page."""
        if name not in self.buffers:
            # The first part is the largest.
            self.buffers[name] = self.source.new_empty((rows, self.weight.shape[1]), dtype=dtype)
        return self.buffers[name][:rows]

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
        into = None if whole else self.buffer("logits", len(part), self.weight.dtype)
        if self.bias is None:
            value = torch.mm(part, self.weight, out=into)
        else:
            value = torch.addmm(self.bias, part, self.weight, out=into)
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
class OfLoss:
    """What the backward pass begins with, see ``cross_entropy_backward``."""

    gradient: torch.Tensor
    total: torch.Tensor
    smoothed: torch.Tensor | None = None
    shares: torch.Tensor | None = None

    def of_logits(
        self,
        layer: Layer,
        rows: slice,
        log_probabilities: torch.Tensor,
        made: dict[int, torch.Tensor],
        *,
        over: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The gradient of some rows of the layer's result.

        Args:
            layer: the forward pass's.
            rows: which.
            log_probabilities: of those.
            made: what the backward pass reads besides.
            over: the log-probabilities are of no use afterwards.

        Returns:
            A row for each, and what each is to be multiplied by; None: 1.
        """
        if self.smoothed is None and is_precise(log_probabilities):
            value = self._probabilities_less_one(layer, rows, log_probabilities, over=over)
            scale = self._scale(layer, rows)
        else:
            value, scale = self._by_kernels(layer, rows, log_probabilities), None
        for step in layer.plan.backward:
            if not step.moves:
                value = step.run(value, made)
        return value, scale

    @staticmethod
    def _probabilities_less_one(
        layer: Layer, rows: slice, log_probabilities: torch.Tensor, *, over: bool
    ) -> torch.Tensor:
        """Less one for each row's class: the gradient but for a factor, which need not go through all of it.

        Halves would lose what is left of a probability of nearly 1.
        """
        into = log_probabilities
        if not over:
            into = layer.buffer("gradient", len(log_probabilities), log_probabilities.dtype)
        value = torch.exp(log_probabilities, out=into)
        target = layer.target[rows]
        places = torch.where(target != layer.plan.ignored, target, 0).unsqueeze(1)
        value.scatter_add_(1, places, value.new_full((1, 1), -1.0).expand(len(target), 1))
        return value if layer.plan.dtype is None else value.to(layer.plan.dtype)

    def _scale(self, layer: Layer, rows: slice) -> torch.Tensor:
        """The loss's gradient, a row's weight, and what the loss was divided by."""
        plan, target = layer.plan, layer.target[rows]
        counts = target != plan.ignored
        scale = self.gradient[rows] if plan.reduction == NONE else self.gradient
        scale = scale / self.total if plan.reduction == MEAN else scale
        if layer.class_weight is not None:
            scale = scale * layer.class_weight[torch.where(counts, target, 0)]
        return torch.where(counts, scale, 0.0)

    def _by_kernels(self, layer: Layer, rows: slice, log_probabilities: torch.Tensor) -> torch.Tensor:
        """The gradient of what log-softmax reads, by PyTorch's kernels."""
        plan = layer.plan
        value = gradient_of_log_probabilities(
            layer.buffer("gradient", len(log_probabilities), log_probabilities.dtype),
            self.gradient[rows] if plan.reduction == NONE else self.gradient,
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
        return value


@dataclass(slots=True)
class LossesSoFar:
    """Losses of parts, added up in single precision at least."""

    plan: Plan
    found: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def results(self) -> tuple[torch.Tensor, ...]:
        """Of all rows: loss, total weight, and sums where they are asked for."""
        losses, totals, *sums = zip(*self.found, strict=True)
        if self.plan.reduction == NONE:
            return torch.cat(losses), totals[-1], *map(torch.cat, sums)
        dtype = losses[0].dtype
        loss, total = (torch.stack(x).to(precise(dtype)).sum() for x in (losses, totals))
        loss = loss / total if self.plan.reduction == MEAN else loss
        return loss.to(dtype), total.to(dtype), *map(torch.cat, sums)


class Gradients:
    """Gradients of a layer's source, weight and bias, from those of some rows of its result after the other."""

    def __init__(self, layer: Layer) -> None:
        """Begin with nothing; takes the memory for all of them."""
        plan, source, weight = layer.plan, layer.source, layer.weight
        of_source, of_weight, of_bias = plan.wanted
        accurate = precise(weight.dtype)
        self.layer = layer
        self.chosen = plan.chosen(len(source), source.device)
        shape = (source.shape[1], weight.shape[1])
        self.source = self.weight = self.bias = None
        if of_source:
            self.source = torch.empty(source.shape, dtype=source.dtype, device=source.device)
            if self.chosen is not None:
                self.source.zero_()
        if of_weight:
            self.weight = weight.new_empty(shape[::-1] if plan.by_class else shape, dtype=accurate)
        if of_bias:
            self.bias = weight.new_zeros((1, weight.shape[1]), dtype=accurate)

    def add(self, rows: slice, part: torch.Tensor, of_logits: torch.Tensor, scale: torch.Tensor | None) -> None:
        """Rows of the source and the gradient of the layer's result for them, as ``OfLoss.of_logits`` gives it."""
        scales = None if scale is None else scale.unsqueeze(1).to(of_logits.dtype)
        if self.source is not None:
            into = self.source[rows] if self.chosen is None else None
            found = torch.mm(of_logits, self.layer.weight.t(), out=into)
            if scales is not None:
                found.mul_(scales)
            if self.chosen is not None:
                self.source.index_copy_(0, self.chosen[rows], found)
        if self.bias is not None and scales is None:
            self.bias += of_logits.sum(0, keepdim=True, dtype=self.bias.dtype)
        elif self.bias is not None and scales is not None:
            self.bias += scales.t() @ of_logits
        if self.weight is not None:
            part = part if scales is None else part * scales
            first, second = (of_logits, part) if self.layer.plan.by_class else (part, of_logits)
            add_product(self.weight, first.t(), second, first=rows.start == 0)

    def sums(self) -> tuple[torch.Tensor, ...]:
        """Those that are wanted, sums in the precision in which they were made."""
        return tuple(x for x in (self.source, self.weight, self.bias) if x is not None)

    def results(self) -> tuple[torch.Tensor, ...]:
        """Those that are wanted."""
        return tuple(x.to(self.layer.weight.dtype) for x in self.sums())


def is_precise(tensor: torch.Tensor) -> bool:
    """Is it no half?"""
    return precise(tensor.dtype) == tensor.dtype


def precise(dtype: torch.dtype) -> torch.dtype:
    """In which sums over parts are made: halves would be rounded after each."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def add_product(into: torch.Tensor, one: torch.Tensor, other: torch.Tensor, *, first: bool) -> None:
    """``into`` += ``one`` @ ``other``, or = for the first part."""
    if into.dtype != one.dtype and one.device.type != "cpu":
        # There halves are multiplied quickly, and added up in single precision inside.
        product = one @ other
        into.copy_(product) if first else into.add_(product)
        return
    one, other = one.to(into.dtype), other.to(into.dtype)
    torch.addmm(into, one, other, beta=0 if first else 1, out=into)
