"""Work in place, to the last bit as in eager mode.

A trace without in-place calls has a new tensor in the place of the changed one, and some operators return a contiguous
one whatever they are given: what sums over it later adds up in another order. And what is written to an expanded tensor
it takes for the source's value plus the difference, which is rounded, even where nothing is expanded. And where each
element is drawn, eager mode draws in the order of memory.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_NAMES = (
    *("masked_fill", "masked_scatter", "scatter", "scatter_add", "scatter_reduce", "index_copy", "index_add"),
    *("index_reduce", "tril", "triu", "cumsum", "cumprod", "addmm", "addbmm", "baddbmm", "renorm", "mvlgamma"),
)
_OUT_OF_PLACE = {getattr(torch.Tensor, f"{x}_"): getattr(torch.Tensor, x) for x in _NAMES}


_DRAWN = (torch.Tensor.bernoulli_, torch.dropout_, torch.alpha_dropout_)
_DROPPED = (F.dropout, F.alpha_dropout)  # their last argument says whether in place
_EXPANSIONS = (torch.Tensor.expand, torch.Tensor.expand_as, torch.Tensor.broadcast_to, torch.broadcast_to)


class InPlaceAsInEager(TorchFunctionMode):
    """While open, a tensor that is changed stays where and as it lies, and one that is not expanded is a plain view."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _EXPANSIONS:
            expanded = func(*args, **kwargs)
            return args[0].view_as(expanded) if expanded.shape == args[0].shape else expanded
        if func in _DRAWN or (func in _DROPPED and (kwargs.get("inplace") or args[3:] == (True,))):
            func(_in_order_of_memory(args[0]), *args[1:], **kwargs)
            return args[0]
        compute = _OUT_OF_PLACE.get(func)
        if compute is None or args[0].is_contiguous():
            return func(*args, **kwargs)
        return args[0].copy_(compute(*args, **kwargs))


def _in_order_of_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Itself if it is contiguous, or a view that is, if there is one by another order of the dimensions."""
    if tensor.is_contiguous():
        return tensor
    order = sorted(range(tensor.ndim), key=tensor.stride, reverse=True)
    permuted = tensor.permute(order)
    return permuted if permuted.is_contiguous() else tensor
