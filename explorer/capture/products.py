"""Products of many numbers: their derivative depends on whether there is a zero among them.

Eager mode looks: without a zero, the gradient is that of the result times the result by each factor. A trace cannot
look, and PyTorch then records a formula that serves both, with cumulative products: other last bits, and more memory.
So that a trace has eager mode's derivative it is recorded as one call, which looks when it runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

_PRODUCTS = {
    torch.prod: torch.prod,
    torch.Tensor.prod: torch.prod,
    torch.cumprod: torch.cumprod,
    torch.Tensor.cumprod: torch.cumprod,
}


@torch.library.custom_op("explorer::product_backward", mutates_args=())
def product_backward(
    gradient: torch.Tensor,
    source: torch.Tensor,
    dim: int | None,
    keepdim: bool,  # noqa: FBT001 - the arguments of PyTorch's own
    cumulative: bool,  # noqa: FBT001 - likewise
) -> torch.Tensor:
    """Stands for ``product_gradient`` in a trace; an operator's own code cannot ask autograd."""
    raise NotImplementedError


@product_backward.register_fake
def _(
    gradient: torch.Tensor,
    source: torch.Tensor,
    dim: int | None,
    keepdim: bool,  # noqa: FBT001 - as above
    cumulative: bool,  # noqa: FBT001 - as above
) -> torch.Tensor:
    return _without_zeros(gradient, source, dim, keepdim=keepdim, cumulative=cumulative)


def _without_zeros(
    gradient: torch.Tensor, source: torch.Tensor, dim: int | None, *, keepdim: bool, cumulative: bool
) -> torch.Tensor:
    """The formula for factors of which none is zero: of interest is how its result lies in memory."""
    result = _product(source, dim, keepdim=keepdim, cumulative=cumulative)
    if cumulative:
        assert dim is not None, "as PyTorch has it"
        if source.numel() <= 1 or source.shape[dim] == 1:
            return gradient.clone()
        return (result * gradient).flip(dim).cumsum(dim).flip(dim) / source
    if dim is not None and not keepdim and source.ndim:
        gradient, result = gradient.unsqueeze(dim), result.unsqueeze(dim)
    return gradient * (result / source)


def with_plain_calls(graph: fx.Graph) -> None:
    """Let the graph call ``product_gradient`` itself."""
    for node in graph.nodes:
        if node.target is torch.ops.explorer.product_backward.default:
            node.target = product_gradient


def product_gradient(
    gradient: torch.Tensor,
    source: torch.Tensor,
    dim: int | None,
    keepdim: bool,  # noqa: FBT001 - as above
    cumulative: bool,  # noqa: FBT001 - as above
) -> torch.Tensor:
    """The gradient of a product's factors, by eager mode's own derivative; laid out as without zeros among them."""
    with torch.enable_grad():
        leaf = source.detach().requires_grad_()
        (found,) = torch.autograd.grad(_product(leaf, dim, keepdim=keepdim, cumulative=cumulative), leaf, gradient)
    grown, factors = (
        torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta") for x in (gradient, source)
    )
    usual = _without_zeros(grown, factors, dim, keepdim=keepdim, cumulative=cumulative)
    is_the_gradient = source.numel() <= 1 or (dim is not None and source.shape[dim] == 1)  # or a view of it
    if found.stride() == usual.stride() and not is_the_gradient:
        return found
    return torch.empty_strided(usual.shape, usual.stride(), dtype=found.dtype, device=found.device).copy_(found)


def _product(source: torch.Tensor, dim: int | None, *, keepdim: bool, cumulative: bool) -> torch.Tensor:
    if dim is None:
        return torch.prod(source)
    return torch.cumprod(source, dim) if cumulative else torch.prod(source, dim, keepdim=keepdim)


class _Product(torch.autograd.Function):
    """A product with its derivative as one call."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, dim: int | None, keepdim: bool, cumulative: bool) -> torch.Tensor:  # noqa: FBT001
        ctx.save_for_backward(source)
        ctx.how = dim, keepdim, cumulative
        return _product(source, dim, keepdim=keepdim, cumulative=cumulative)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        (source,) = ctx.saved_tensors
        return product_backward(gradient, source, *ctx.how), None, None, None


class ProductsOfEager(TorchFunctionMode):
    """While open, products are recorded so that their derivative is eager mode's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        product = _PRODUCTS.get(func)
        if product is None or kwargs.keys() - {"dim", "keepdim"} or not _floating(args[0]):
            return func(*args, **kwargs)
        rest = dict(zip(("dim", "keepdim"), args[1:], strict=False)) | kwargs
        return _Product.apply(args[0], rest.get("dim"), rest.get("keepdim", False), product is torch.cumprod)


def _floating(source: Any) -> bool:
    return isinstance(source, torch.Tensor) and source.requires_grad and source.dtype.is_floating_point
