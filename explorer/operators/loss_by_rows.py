"""Some rows of a linear layer and of the loss behind it: what ``linear_cross_entropy`` goes through part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch

from explorer.operators.cross_entropy import gradient_of_log_probabilities
from explorer.operators.loss_plan import MEAN, NONE, Plan

aten = torch.ops.aten
_ROWS = 2  # axes of rows of classes


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

    def by_rows(self) -> Layer:
        """With a row of classes for each target, wherever the classes are in what was captured."""
        return replace(self, target=self.target.flatten())

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
        return aten._log_softmax.default(value, plan.classes if whole else 1, plan.half_to_float)

    def losses(self, log_probabilities: torch.Tensor, rows: slice, reduction: int) -> tuple[torch.Tensor, ...]:
        """Loss, total weight, and sums where they are asked for, of some rows."""
        plan = self.plan
        target = self.target[rows]
        found = aten.nll_loss_forward.default(log_probabilities, target, self.class_weight, reduction, plan.ignored)
        return (*found, self.sums(log_probabilities, 1)) if plan.sums else found

    def whole_losses(self, log_probabilities: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The same of all rows, where the classes are as captured."""
        plan = self.plan
        read = plan.runs(log_probabilities, plan.between)
        kernel = aten.nll_loss_forward if read.dim() == _ROWS else aten.nll_loss2d_forward
        found = kernel.default(read, self.target, self.class_weight, plan.reduction, plan.ignored)
        return (*found, self.sums(log_probabilities, plan.classes)) if plan.sums else found

    def sums(self, log_probabilities: torch.Tensor, axis: int) -> torch.Tensor:
        """Of each row's log-probabilities."""
        if self.plan.weighted and self.class_weight is not None:
            shape = [1] * log_probabilities.dim()
            shape[axis] = -1
            log_probabilities = log_probabilities * self.class_weight.view(shape)
        return log_probabilities.sum([axis])

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

    @classmethod
    def by_rows(
        cls,
        gradient: torch.Tensor,
        total: torch.Tensor,
        smoothed: torch.Tensor | None,
        shares: torch.Tensor | None,
    ) -> OfLoss:
        """With a number, or a row of one, for each row of classes."""
        return cls(
            gradient.flatten() if gradient.dim() else gradient,
            total,
            None if smoothed is None else smoothed.reshape(-1, 1),
            None if shares is None else shares.reshape(1, -1),
        )

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
            value, scale = self.by_kernels(layer, rows, log_probabilities), None
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

    def by_kernels(self, layer: Layer, rows: slice, log_probabilities: torch.Tensor) -> torch.Tensor:
        """The gradient of what log-softmax reads, by PyTorch's kernels: of rows, or of several matrices of columns."""
        plan = layer.plan
        target = layer.target[rows]
        gradient = self.gradient[rows] if plan.reduction == NONE else self.gradient
        smoothed = None if self.smoothed is None else self.smoothed[rows]
        shares = self.shares
        if plan.last or log_probabilities.dim() == _ROWS:
            read = log_probabilities.flatten(0, -2)
            value = layer.buffer("gradient", len(read), read.dtype)
        else:
            count, classes = log_probabilities.shape[:2]
            read = log_probabilities.reshape(count, classes, 1, -1)
            value = torch.empty_like(read)
            target = target.view(count, 1, -1)
            gradient = gradient.view(count, 1, -1) if plan.reduction == NONE else gradient
            smoothed = None if smoothed is None else smoothed.view(count, 1, 1, -1)
            shares = None if shares is None else shares.view(1, -1, 1, 1)
        loss = (read, target, layer.class_weight, plan.reduction, plan.ignored, self.total, smoothed, shares)
        value = gradient_of_log_probabilities(value, gradient, *loss)
        if plan.dtype is None:
            aten._log_softmax_backward_data.out(value, read, 1, value.dtype, out=value)
        else:
            value = aten._log_softmax_backward_data.default(value, read, 1, plan.dtype)
        return value


@dataclass(slots=True)
class LossesSoFar:
    """Losses of parts, added up in single precision at least."""

    plan: Plan
    found: list[tuple[torch.Tensor, ...]] = field(default_factory=list)

    def results(self, shape: torch.Size) -> tuple[torch.Tensor, ...]:
        """Of all rows: loss, total weight, and sums where they are asked for; the targets have this shape."""
        losses, totals, *parts = zip(*self.found, strict=True)
        sums = [torch.cat(x).view(self.plan.of_sums or shape) for x in parts]
        if self.plan.reduction == NONE:
            return torch.cat(losses).view(shape), totals[-1], *sums
        dtype = losses[0].dtype
        loss, total = (torch.stack(x).to(precise(dtype)).sum() for x in (losses, totals))
        loss = loss / total if self.plan.reduction == MEAN else loss
        return loss.to(dtype), total.to(dtype), *sums


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
