"""What PyTorch's fake tensors get wrong of operators' results, mended while a step is traced."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from explorer.operators.registry import device_kind
from explorer.torch_private import fake_implementation

aten = torch.ops.aten
_LEGIT = aten._native_batch_norm_legit  # noqa: SLF001 - an operator of ATen
_ALIGNED_BYTES = 16


@contextlib.contextmanager
def mended() -> Iterator[None]:
    """While open, fake tensors are as real ones where they are known not to be."""
    with contextlib.ExitStack() as stack:
        for operator, mend in _MENDED.items():
            stack.enter_context(fake_implementation(operator, _mending(mend, _QUICK.get(operator))))
        stack.enter_context(fake_implementation(aten.native_group_norm_backward.default, _gradients_of_groups))
        stack.enter_context(fake_implementation(aten._grouped_mm.default, grouped_product))  # noqa: SLF001 - likewise
        yield


def _mending(mend: Callable[..., Any], quick: Callable[..., Any] | None) -> Callable[..., Any]:
    """``quick``: the same result for usual arguments, else None."""

    def run(_mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        made = quick(*args) if quick is not None and not kwargs else None
        if made is not None:
            return made
        with fake_implementation(operator, None):
            return mend(operator(*args, **kwargs), *args)

    return run


def _statistics(result: tuple[torch.Tensor, ...], *args: Any) -> tuple[torch.Tensor, ...]:
    """On the CPU mean and deviation have the precision of the weights, as autocast leaves them."""
    source = args[0]
    weights = [x for x in args[1:] if isinstance(x, torch.Tensor) and x.is_floating_point()]
    dtype = weights[0].dtype if device_kind(source.device) == "cpu" and weights else result[1].dtype
    return _with_statistics(_dense_pictures(result, source), dtype, *args)


def _precise_statistics(result: tuple[torch.Tensor, ...], *args: Any) -> tuple[torch.Tensor, ...]:
    """On CUDA they are sums as kernels keep them: float32 for half precision."""
    if device_kind(args[0].device) == "cpu":
        return _statistics(result, *args)
    precise = torch.promote_types(args[0].dtype, torch.float32)
    return _with_statistics(_dense_pictures(result, args[0]), precise, *args)


def _with_statistics(result: tuple[torch.Tensor, ...], dtype: torch.dtype, *args: Any) -> tuple[torch.Tensor, ...]:
    """New running statistics, where the operator returns them, are as the old ones."""
    first, mean, deviation, *others = result
    others = [x.to(y.dtype) for x, y in zip(others, args[3:5], strict=False)]
    return (first, mean.to(dtype), deviation.to(dtype), *others)


def _normalised(source: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...] | None:
    """PyTorch takes a batch normalisation apart, into twenty fake calls, to see that its results look so."""
    *given, training, _, _ = args
    if not training or not _is_plain(source) or not _for_channels(source, *given):
        return None
    _, _, *running = given
    found, mean_now, deviation = (source.new_empty(x) for x in (source.shape, source.shape[1], source.shape[1]))
    others = (x.new_empty(x.shape) for x in running)
    return _precise_statistics((found, mean_now, deviation, *others), source, *args)


def _normalised_backward(gradient: torch.Tensor, source: torch.Tensor, *args: Any) -> tuple[Any, ...] | None:
    """Likewise."""
    weight, *given, training, _, wanted = args
    if not training or gradient.shape != source.shape or not _is_plain(source):
        return None
    if not _for_channels(source, weight, *given) or any(x is None for x in given[2:]):
        return None
    like = source if weight is None else weight
    gradients = (like.new_empty(source.shape[1]) if x else None for x in wanted[1:])
    return (_usual(source), *gradients)


def _is_plain(source: torch.Tensor) -> bool:
    """More than one number in each channel, and contiguous in the one way alone."""
    if source.ndim < 2 or source.numel() <= source.shape[1] or not source.is_contiguous():
        return False
    return not any(x == 1 for x in source.shape)


def _for_channels(source: torch.Tensor, *given: torch.Tensor | None) -> bool:
    return all(x is None or (x.shape == source.shape[1:2] and x.device == source.device) for x in given)


def _dense_pictures(result: tuple[torch.Tensor, ...], source: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """A normalised tensor lies in memory in one of the usual ways, whatever its source does."""
    return (result[0] if _is_usual(source) else _contiguous(result[0]), *result[1:])


def _is_usual(source: torch.Tensor) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    usual = [torch.contiguous_format, *([formats[source.ndim]] if source.ndim in formats else [])]
    return any(source.is_contiguous(memory_format=x) for x in usual)


def _rolled(result: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(source) if _is_usual(source) else _contiguous(result)


def _contiguous(result: torch.Tensor, *_: Any) -> torch.Tensor:
    """Of backward operators that make a tensor for their result before they look at their arguments."""
    return result.new_empty(result.shape)


def _element_by_element(result: torch.Tensor, *args: Any) -> torch.Tensor:
    """As a sum of the first two tensors lies in memory."""
    first, second, *_ = (x for x in args if isinstance(x, torch.Tensor))
    return torch.empty_like(first + second, dtype=result.dtype)


def _as_source(result: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    """Laid out like the source, where it is no mean or sum."""
    return torch.empty_like(source) if result.ndim == source.ndim else result


def _gradient_as_source(_result: torch.Tensor, _gradient: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(source)


def _usual(like: torch.Tensor) -> torch.Tensor:
    """Of operators that make their result in one of the usual ways: channels last where the source is."""
    return torch.empty_like(like, memory_format=suggest_memory_format(like))


def _usual_as_source(_result: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    return _usual(source)


def _usual_gradient(_result: torch.Tensor, _gradient: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    return _usual(source)


def _contiguous_gradients(result: tuple[torch.Tensor, ...], *_: Any) -> tuple[torch.Tensor, ...]:
    first, *others = result
    return (first if first is None else _contiguous(first), *others)


def _gradients(result: tuple[torch.Tensor, ...], *args: Any) -> tuple[torch.Tensor, ...]:
    """The gradient of the input has the input's precision, and its layout if that is one of the usual ones."""
    first, *others = result
    return (first if first is None else _usual(args[1]), *others)


def _gradients_of_groups(_mode: Any, operator: Any, gradient: Any, source: Any, *args: Any) -> Any:
    """The fake operator takes contiguous arguments only."""
    with fake_implementation(operator, None):
        return _gradients(operator(gradient.contiguous(), source.contiguous(), *args), gradient, source)


def _bags(result: tuple[torch.Tensor, ...], *args: Any) -> tuple[torch.Tensor, ...]:
    """Two of the results begin a little more memory than they take."""
    first, bag_of_each, sizes, largest = result
    if first.device.type == "cpu":
        if bag_of_each.numel():
            bag_of_each = bag_of_each.new_empty(bag_of_each.numel() + 1)[:-1]
        sizes = sizes.new_empty(args[2].numel())[: sizes.numel()]
    return first, bag_of_each, sizes, largest


def _scattered(result: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    """What is written to lies in a copy of all the memory that the source lies in, where no two elements share it."""
    if any(size > 1 and stride == 0 for size, stride in zip(source.shape, source.stride(), strict=True)):
        return torch.empty_like(source, dtype=result.dtype)
    whole = source.new_empty(source.untyped_storage().nbytes() // source.element_size())
    return whole.as_strided(source.shape, source.stride(), source.storage_offset())


def grouped_product(mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    """Products of single precision too, of which the one on fake tensors, and on ``meta``, refuses all."""
    left, right, *rest = args
    if left.dtype == torch.bfloat16:
        with fake_implementation(operator, None):
            return operator(*args, **kwargs)
    groups = rest[0] if rest else kwargs["offs"]
    rows, columns = left.shape[-2], right.shape[-1]
    size = [rows, columns]
    if left.ndim == right.ndim:
        size = [groups.shape[0] if left.ndim == 2 else left.shape[0], rows, columns]
    aligned = _ALIGNED_BYTES // left.element_size()
    row = math.ceil(columns / aligned) * aligned
    strides = [row, 1] if len(size) == 2 else [rows * row, row, 1]
    with contextlib.nullcontext() if mode is None else mode:
        return torch.empty_strided(size, strides, dtype=left.dtype, device=left.device)


_MENDED = {
    aten.mse_loss_backward.default: _contiguous,
    aten.smooth_l1_loss_backward.default: _contiguous,
    aten.huber_loss_backward.default: _contiguous,
    aten.softplus_backward.default: _element_by_element,
    aten.elu_backward.default: _element_by_element,
    aten.hardtanh_backward.default: _element_by_element,
    aten.hardswish_backward.default: _element_by_element,
    aten.hardsigmoid_backward.default: _element_by_element,
    aten._log_softmax_backward_data.default: _contiguous,  # noqa: SLF001 - an operator of ATen
    aten.roll.default: _rolled,
    aten.native_dropout_backward.default: _element_by_element,
    aten.native_layer_norm.default: _precise_statistics,
    aten.native_group_norm.default: _statistics,
    aten.native_batch_norm_backward.default: _gradients,
    aten.native_layer_norm_backward.default: _contiguous_gradients,
    aten.glu_backward.default: _contiguous,
    aten._embedding_bag.default: _bags,  # noqa: SLF001 - an operator of ATen
    aten.reflection_pad2d_backward.default: _usual_gradient,
    aten.replication_pad2d_backward.default: _usual_gradient,
    aten.channel_shuffle.default: _usual_as_source,
    aten.binary_cross_entropy.default: _as_source,
    aten.binary_cross_entropy_backward.default: _gradient_as_source,
    aten.select_scatter.default: _scattered,
    aten.slice_scatter.default: _scattered,
    aten.diagonal_scatter.default: _scattered,
    aten.as_strided_scatter.default: _scattered,
    _LEGIT.default: _precise_statistics,
    _LEGIT.no_stats: _precise_statistics,
    aten._native_batch_norm_legit_functional.default: _precise_statistics,  # noqa: SLF001 - an operator of ATen
    aten._native_batch_norm_legit_no_training.default: _precise_statistics,  # noqa: SLF001 - an operator of ATen
}
_QUICK = {
    aten._native_batch_norm_legit_functional.default: _normalised,  # noqa: SLF001 - an operator of ATen
    aten.native_batch_norm_backward.default: _normalised_backward,
}
