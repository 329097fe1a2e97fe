"""What an operator returns of fake tensors, known from an equal call: a capture asks the same thousands of times.

PyTorch's own cache confuses views with tensors of their own, so that what is captured would depend on what was captured
before. Here only results are known that had memory of their own and nothing beside it, of operators whose schema says
that they change nothing and return no views.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from explorer.torch_private import OpOverload, dispatching_by, fake_of, storage_key, told_by_value

_MOST_KNOWN = 50_000
_PLAIN = (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_DEPENDING = (torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output)

_Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]
_Result = tuple[type, tuple[_Layout | None, ...]]
_known: dict[Any, _Result | None] = {}
"""Of calls, in terms of their arguments, what they returned; None: it is made anew each time."""


@contextlib.contextmanager
def results_known(mode: FakeTensorMode) -> Iterator[None]:
    """While open, calls in ``mode`` whose results are known are not run; where all sizes are numbers."""
    with dispatching_by(mode, _Results(mode)) if mode.shape_env is None else contextlib.nullcontext():
        yield


class _OtherError(Exception):
    """A call has an argument that does not tell all of itself."""


class _Results:
    """Of calls in one mode; not of those that they are taken apart into, where an operator may be as PyTorch has it."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._within = False

    def __call__(self, operator: Any, args: Sequence[Any], kwargs: dict[str, Any], make: Callable[[], Any]) -> Any:
        if self._within or not _makes_its_results(operator):
            return make()
        mode = self._mode
        try:
            call = operator, _settings(), _told(mode, args), _told(mode, sorted(kwargs.items()))
        except _OtherError:
            return make()
        found = _known.get(call)
        if found is not None:
            return _made(mode, *found)
        self._within = True
        try:
            result = make()
        finally:
            self._within = False
        if call not in _known:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[call] = _described(mode, result, (args, kwargs))
        return result


@cache
def _makes_its_results(operator: Any) -> bool:
    """Does it return something, no views, and change nothing?"""
    if not isinstance(operator, OpOverload) or operator.namespace not in ("aten", "prims"):
        return False
    schema = operator._schema  # noqa: SLF001 - has no public name
    if schema.is_mutable or any(x.alias_info is not None for x in (*schema.arguments, *schema.returns)):
        return False
    return bool(schema.returns) and not any(x in operator.tags for x in _DEPENDING)


def _settings() -> tuple[Any, ...]:
    """What results depend on besides the arguments, most of it by the choice of a convolution's kernel."""
    return (
        torch.get_default_dtype(),
        torch.get_default_device(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
        torch.backends.mkldnn.enabled,
        torch.backends.cudnn.enabled,
        torch.backends.cudnn.deterministic,
    )


def _told(mode: FakeTensorMode, value: Any) -> Any:
    """All of an argument that a result can depend on, to be compared."""
    kind = type(value)
    if kind is FakeTensor:
        if not _is_plain(mode, value):
            raise _OtherError
        kind = value.dtype, value.device, value.requires_grad, value.is_conj(), value.is_neg(), value.is_inference()
        return tuple(value.shape), value.stride(), value.storage_offset(), value.untyped_storage().nbytes(), *kind
    if kind in _PLAIN:
        return kind, value  # True is 1
    if kind in (float, complex):
        return kind, repr(value)  # 0.0 is -0.0
    if kind in (list, tuple):
        return kind, tuple(_told(mode, x) for x in value)
    raise _OtherError


def _is_plain(mode: FakeTensorMode, tensor: Any) -> bool:
    return tensor.fake_mode is mode and tensor.layout is torch.strided and not told_by_value(tensor)


def _described(mode: FakeTensorMode, result: Any, given: Any) -> _Result | None:
    """In terms of its tensors, if each is plain and has a memory of its own and no more of it than it takes."""
    kind = type(result)
    made = result if kind in (list, tuple) else (result,)
    tensors = [x for x in made if x is not None]
    if not all(type(x) is FakeTensor and _is_plain(mode, x) and _is_whole(x) for x in tensors):
        return None
    homes = [storage_key(x) for x in (*tensors, *_tensors(given))]
    if not set(homes[: len(tensors)]).isdisjoint(homes[len(tensors) :]) or len({*homes[: len(tensors)]}) < len(tensors):
        return None
    return kind, tuple(x if x is None else (tuple(x.shape), x.stride(), x.dtype, x.device) for x in made)


def _tensors(given: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(given) if isinstance(x, torch.Tensor)]


def _is_whole(tensor: torch.Tensor) -> bool:
    """Does it take all of its memory, and is it nothing but its numbers?"""
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg() or tensor._is_view():  # noqa: SLF001 - no public name
        return False
    reach = sum((x - 1) * y for x, y in zip(tensor.shape, tensor.stride(), strict=True)) + 1 if tensor.numel() else 0
    return not tensor.storage_offset() and tensor.untyped_storage().nbytes() == reach * tensor.element_size()


def _made(mode: FakeTensorMode, kind: type, layouts: tuple[_Layout | None, ...]) -> Any:
    made = [x if x is None else fake_of(mode, *x) for x in layouts]
    return kind(made) if kind in (list, tuple) else made[0]
