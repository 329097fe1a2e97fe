"""Normalisation: recomputed from kept statistics, and backward from the output.

Batch, layer, group and root-mean-square normalisation compute ``y = w·n + b`` from the normalised input n, and their
gradients need n alone: ``n = (y − b) / w``. That is as precise as the output where |b| is not much larger than |w|.
It is wrong where a weight is 0, which is why each step is guarded: see ``Guard``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization, When
from explorer.operators.registry import (
    Guard,
    Variant,
    all_arguments,
    device_kind,
    fits_over,
    forward_call,
    is_dense,
    is_precise,
    layout_of,
    origin,
    output_of,
    rule,
    value_of,
)

aten = torch.ops.aten
_BATCH_NORMS = (aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default)
_NO_STATISTICS = aten._native_batch_norm_legit.no_stats

LARGEST_SHIFT = 32.0
"""Up to this |b/w|, n from y has an error of a few millionths: the error of y, relative to |w|."""
SMALLEST_WEIGHT = 1e-20


@rule(*_BATCH_NORMS)
def batch_norm_again(node: fx.Node) -> Iterator[Variant]:
    """Running statistics change once, in the first run; a recomputation leaves them alone."""
    source, weight, bias, _mean, _variance, training, momentum, epsilon = all_arguments(node)
    assert training, "without training there is nothing to update, and another operator is captured"
    args = (source, weight, bias, True, momentum, epsilon)
    yield Variant("no statistics", _NO_STATISTICS, args, (0, 1, 2), when=When.AGAIN)
    yield from _from_statistics(node)


@rule(_NO_STATISTICS)
def from_statistics(node: fx.Node) -> Iterator[Variant]:
    """Batch normalisation that keeps no running statistics."""
    yield from _from_statistics(node)


def _from_statistics(node: fx.Node) -> Iterator[Variant]:
    source, weight, bias = all_arguments(node)[:3]
    mean, scale, output = (output_of(node, x) for x in (1, 2, 0))
    if mean is None or scale is None or output is None or not is_precise(source, weight, bias):
        return
    # Bit-equal to the kernels of the CPU, which multiply and add in one step.
    if device_kind(value_of(source).device) == "cpu" and is_dense(output) and layout_of(source) == layout_of(output):
        args = (source, weight, bias, mean, scale)
        yield Variant("from statistics", batch_norm_from_statistics, args, (0,), when=When.AGAIN)
        if fits_over(source, output):
            yield Variant(
                "from statistics, in place",
                batch_norm_from_statistics_,
                args,
                (0,),
                when=When.AGAIN,
                optimization=Optimization.INPLACE,
                overwrites=source,
            )


def batch_norm_from_statistics(
    source: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    """The output from the mean and the reciprocal standard deviation, rounded as PyTorch's own kernel rounds."""
    return _from_statistics_into(torch.empty_like(source), source, weight, bias, mean, scale)


def batch_norm_from_statistics_(
    source: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    """``batch_norm_from_statistics`` over the source."""
    return _from_statistics_into(source, source, weight, bias, mean, scale)


def _from_statistics_into(
    result: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    factor = scale if weight is None else scale * weight
    shift = torch.addcmul(torch.zeros_like(mean) if bias is None else bias, mean, factor, value=-1)
    return torch.addcmul(by_channel(shift, source), source, by_channel(factor, source), out=result)


@rule(aten.native_batch_norm_backward.default)
def batch_norm_from_output(node: fx.Node) -> Iterator[Variant]:
    """Backward from the output and the reciprocal standard deviation."""
    gradient, source, weight, _mean, _variance, _saved_mean, scale, _training, _epsilon, wanted = all_arguments(node)
    forward = forward_of_batch_norm(node)
    if forward is None:
        return
    output, bias = output_of(forward, 0), all_arguments(forward)[2]
    if output is not None and layout_of(output) == layout_of(source):
        args = (gradient, output, weight, bias, scale, wanted)
        yield from from_output_variant(batch_norm_backward_from_output, args, (weight, bias))


def forward_of_batch_norm(backward: fx.Node) -> fx.Node | None:
    """The call that normalised by statistics of the batch; None for a backward pass of another kind."""
    saved_mean, training = all_arguments(backward)[5], all_arguments(backward)[7]
    if not training or not isinstance(saved_mean, fx.Node):
        return None
    forward = origin(saved_mean)
    return forward if forward.target in (*_BATCH_NORMS, _NO_STATISTICS) else None


def batch_norm_backward_from_output(
    gradient: torch.Tensor,
    output: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    scale: torch.Tensor,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """PyTorch's own kernel on the normalised input, whose mean is 0 and whose deviation is 1."""
    normalised = _normalised(output, weight, bias, 1)
    factor = scale if weight is None else scale * weight
    mean, deviation = torch.zeros_like(scale), torch.ones_like(scale)
    kernel = aten.native_batch_norm_backward.default
    # Epsilon, here 0, is part of the deviation.
    return kernel(gradient, normalised, factor, None, None, mean, deviation, True, 0.0, list(wanted))


@rule(aten.native_layer_norm_backward.default)
def layer_norm_from_output(node: fx.Node) -> Iterator[Variant]:
    """Backward from the output and the reciprocal standard deviation."""
    gradient, source, shape, _mean, scale, weight, bias, wanted = all_arguments(node)
    forward = forward_call(source, aten.native_layer_norm.default, [shape, weight, bias])
    if forward is not None:
        args = (gradient, output_of(forward, 0), shape, scale, weight, bias, wanted)
        yield from from_output_variant(layer_norm_backward_from_output, args, (weight, bias))


def layer_norm_backward_from_output(
    gradient: torch.Tensor,
    output: torch.Tensor,
    shape: Sequence[int],
    scale: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """PyTorch's own kernel on the normalised input, and the scale afterwards."""
    normalised = _normalised(output, weight, bias, None)
    mean, deviation = torch.zeros_like(scale), torch.ones_like(scale)
    kernel = aten.native_layer_norm_backward.default
    source, *parameters = kernel(gradient, normalised, shape, mean, deviation, weight, bias, list(wanted))
    return (None if source is None else source.mul_(scale), *parameters)


@rule(aten.native_group_norm_backward.default)
def group_norm_from_output(node: fx.Node) -> Iterator[Variant]:
    """Backward from the output and the reciprocal standard deviation."""
    gradient, source, saved_mean, scale, weight, *sizes, wanted = all_arguments(node)
    forward = origin(saved_mean) if isinstance(saved_mean, fx.Node) else None
    if forward is None or forward.target is not aten.native_group_norm.default:
        return
    bias = all_arguments(forward)[2]
    args = (gradient, output_of(forward, 0), scale, weight, bias, *sizes, wanted)
    if value_of(source).is_contiguous():
        yield from from_output_variant(group_norm_backward_from_output, args, (weight, bias))


def group_norm_backward_from_output(  # noqa: PLR0913, PLR0917  (the arguments of PyTorch's own)
    gradient: torch.Tensor,
    output: torch.Tensor,
    scale: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    samples: int,
    channels: int,
    places: int,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Any, ...]:
    """PyTorch's own kernel on the normalised input, and the scale afterwards."""
    normalised = _normalised(output, weight, bias, 1)
    mean, deviation = torch.zeros_like(scale), torch.ones_like(scale)
    kernel = aten.native_group_norm_backward.default
    sizes = (samples, channels, places, groups)
    source, *parameters = kernel(gradient, normalised, mean, deviation, weight, *sizes, list(wanted))
    if source is not None:
        source.view(samples, groups, -1).mul_(scale.view(samples, groups, 1))
    return (source, *parameters)


def from_output_variant(
    target: Any, args: tuple[Any, ...], parameters: tuple[fx.Node | None, ...], *, over: fx.Node | None = None
) -> Iterator[Variant]:
    """The variant, where output and parameters are precise, and the parameters can be looked at before a step.

    Args:
        target: what to call.
        args: its arguments; the second is the output.
        parameters: weight and bias.
        over: what it overwrites.
    """
    output = args[1]
    if output is None or not is_precise(*(x for x in args if isinstance(x, fx.Node))) or not is_dense(output):
        return
    given = [x for x in parameters if x is not None]
    if any(x.op != "placeholder" for x in given):
        return
    guard = Guard(invertible, parameters, "a weight is 0 or much smaller than its bias") if given else None
    yield Variant(
        "from output" if over is None else "from output, in place",
        target,
        args,
        exact=False,
        optimization=Optimization.OUTPUT,
        overwrites=over,
        guard=guard,
    )


def invertible(weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    """Is every weight large enough, by itself and next to its bias, to compute back through? Never with a NaN."""
    if weight is None:
        assert bias is not None
        return bias.abs().le(LARGEST_SHIFT).all()
    size = weight.abs()
    enough = size.ge(SMALLEST_WEIGHT).all()
    return enough if bias is None else enough.logical_and(bias.abs().le(size * LARGEST_SHIFT).all())


def _normalised(
    output: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, axis: int | None
) -> torch.Tensor:
    """The input from w·n + b: with parameters along ``axis``, or along the last axes."""

    def placed(parameter: torch.Tensor) -> torch.Tensor:
        return parameter if axis is None else by_channel(parameter, output)

    if bias is not None:
        output = output - placed(bias)
        return output if weight is None else output.div_(placed(weight))
    return output if weight is None else output / placed(weight)


def by_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """One value a channel, in a shape that goes with ``like``."""
    return values.view(-1, *(1 for _ in range(like.dim() - 2)))


@rule(aten.mul.Tensor, aten.mul.Scalar)
def root_mean_square_from_normalised(node: fx.Node) -> Iterator[Variant]:
    """RMSNorm, captured as ``n = x·r`` with ``r = rsqrt(…)``: its gradient reads x, which is n / r."""
    first, second = all_arguments(node)
    source, other = (second, first) if isinstance(second, fx.Node) else (first, second)
    if not isinstance(source, fx.Node) or other is source:
        return
    for product in source.users:
        scale = all_arguments(product)[1] if product.target is aten.mul.Tensor else None
        if product.args[0] is not source or not isinstance(scale, fx.Node) or scale.target is not aten.rsqrt.default:
            continue
        if layout_of(product) == layout_of(source) == layout_of(node) and is_precise(source, scale):
            args = (product, scale, other)
            yield Variant("from output", product_with_source, args, exact=False, optimization=Optimization.OUTPUT)
            return


def product_with_source(normalised: torch.Tensor, scale: torch.Tensor, other: torch.Tensor | float) -> torch.Tensor:
    """``other · x``."""
    return (normalised / scale).mul_(other)
