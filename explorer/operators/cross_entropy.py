"""Cross-entropy: the gradient of the logits some rows at a time, where the log-probabilities are.

Autograd makes the gradient of the log-probabilities first, as large as they are and 0 but for one number a row, and
from it that of the logits: three tensors as large as the logits. By rows the first is only as large as some of them,
and what comes out may take the place of the log-probabilities, of which each row is read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.registry import Variant, fits_over, rule, value_of

aten = torch.ops.aten
_PARTS = (4, 16, 64)
_FLAT = 2  # axes of what has no places
_NONE = 0  # ``reduction="none"``: a gradient for each row, not one for all


def cross_entropy_backward(gradient: torch.Tensor, log_probabilities: torch.Tensor, *others: Any) -> torch.Tensor:
    """The gradient of the logits as autograd makes it, in two calls; a third for smoothed labels.

    Args:
        gradient: of the loss, of each row's where ``reduction`` is "none".
        log_probabilities: of (N, C) or (N, C, H, W), over C.
        others: what ``gradient_of_log_probabilities`` takes besides; the dtype of the logits, where it is another one.
    """
    *of_loss, dtype = others
    given = gradient_of_log_probabilities(torch.empty_like(log_probabilities), gradient, log_probabilities, *of_loss)
    return aten._log_softmax_backward_data.default(given, log_probabilities, 1, dtype or given.dtype)


def gradient_of_log_probabilities(  # noqa: PLR0913, PLR0917  (the arguments of PyTorch's own, and two)
    result: torch.Tensor,
    gradient: torch.Tensor,
    log_probabilities: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignored: int,
    total_weight: torch.Tensor,
    smoothed: torch.Tensor | None,
    shares: torch.Tensor | None,
) -> torch.Tensor:
    """The gradient of the log-probabilities.

    Args:
        result: where it goes.
        gradient: as above.
        log_probabilities: as above.
        target: the classes, (N,) or (N, H, W).
        weight: of the classes, (C,).
        reduction: as PyTorch counts them.
        ignored: a class whose rows count nothing.
        total_weight: of all rows.
        smoothed: what each row adds to all its classes, (N, 1) or (N, 1, H, W); None: labels are not smoothed.
        shares: what it is multiplied by for each class, (1, C) or (1, C, 1, 1).
    """
    kernel = aten.nll_loss_backward if log_probabilities.dim() == _FLAT else aten.nll_loss2d_backward
    loss = (log_probabilities, target, weight, reduction, ignored, total_weight)
    kernel.grad_input(gradient, *loss, grad_input=result)
    if smoothed is not None:
        result.add_(smoothed if shares is None else smoothed * shares)
    return result


@rule(cross_entropy_backward)
def by_rows(node: fx.Node) -> Iterator[Variant]:
    """The same kernels, which go row by row, on some rows after the other."""
    log_probabilities = node.args[1]
    assert isinstance(log_probabilities, fx.Node)
    rows = len(value_of(log_probabilities))
    for parts in _PARTS:
        if rows >= 2 * parts:
            args = (*node.args, parts)
            name = f"in {parts} parts"
            yield Variant(name, cross_entropy_backward_by_rows, args, optimization=Optimization.CONVOLUTION)
            if fits_over(log_probabilities, node):
                yield Variant(
                    f"{name}, in place",
                    cross_entropy_backward_by_rows_,
                    args,
                    optimization=Optimization.INPLACE,
                    overwrites=log_probabilities,
                )


def cross_entropy_backward_by_rows(
    gradient: torch.Tensor, log_probabilities: torch.Tensor, *others: Any
) -> torch.Tensor:
    """``cross_entropy_backward`` in as many parts as the last argument says."""
    *_, dtype, _parts = others
    return _by_rows(torch.empty_like(log_probabilities, dtype=dtype), gradient, log_probabilities, *others)


def cross_entropy_backward_by_rows_(
    gradient: torch.Tensor, log_probabilities: torch.Tensor, *others: Any
) -> torch.Tensor:
    """``cross_entropy_backward_by_rows`` over the log-probabilities."""
    return _by_rows(log_probabilities, gradient, log_probabilities, *others)


def _by_rows(
    result: torch.Tensor, gradient: torch.Tensor, log_probabilities: torch.Tensor, target: torch.Tensor, *others: Any
) -> torch.Tensor:
    weight, reduction, ignored, total_weight, smoothed, shares, dtype, parts = others
    size = -(-len(result) // parts)
    buffer = torch.empty_like(log_probabilities[:size])
    for begin in range(0, len(result), size):
        rows = slice(begin, begin + size)
        part = log_probabilities[rows]
        of_rows = gradient[rows] if reduction == _NONE else gradient
        smoothed_rows = None if smoothed is None else smoothed[rows]
        loss = (weight, reduction, ignored, total_weight, smoothed_rows, shares)
        given = gradient_of_log_probabilities(buffer[: len(part)], of_rows, part, target[rows], *loss)
        aten._log_softmax_backward_data.out(given, part, 1, dtype or part.dtype, out=result[rows])
    return result
