"""Capture for a GPU that is not here: fake tensors stand for the model and the batch, and take no memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from explorer.autocast import Autocast
from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.ambient import an_autocast, autocast_now
from explorer.capture.casts_of_cuda import cast_for_autocast, cuda_casts
from explorer.operators.registry import captured_for

aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_WIDEST_OF_CUDNN = 128


def capture_for_cuda(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    dtype: torch.dtype | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    cudnn_attention: bool = False,
    fuse: bool = False,
) -> Capture:
    """As ``capture``, with the operators that the model has on a CUDA device.

    Args:
        model: on any device, ``meta`` included; it is copied without its values.
        batch: likewise.
        loss: as for ``capture``.
        dtype: for all floating-point tensors; None: their own.
        autocast: as for ``capture``, by CUDA's rules. None: what is active for CUDA, or else for the CPU.
        cudnn_attention: the device is one where PyTorch takes cuDNN's attention in half precision.
        fuse: as for ``capture``.

    Raises:
        ValueError: as ``capture`` does.
    """
    standing, batch = stand_in_for(model, batch, dtype=dtype)
    with as_on_cuda(autocast, cudnn_attention=cudnn_attention) as casts:
        return capture(standing, batch, loss=loss, autocast=casts, fuse=fuse)


def stand_in_for(model: nn.Module, batch: Batch, *, dtype: torch.dtype | None) -> tuple[nn.Module, Batch]:
    """Copies without values, of the CPU: fake tensors of a CUDA device need a PyTorch that is built for one."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        known: dict[int, Any] = {}
        for tensor in _tensors(model):
            known.setdefault(id(tensor), _stand_in(tensor, dtype))
        standing = copy.deepcopy(model, known)
        return standing, pytree.tree_map_only(torch.Tensor, lambda x: _stand_in(x, dtype), batch)


@contextmanager
def as_on_cuda(autocast: Autocast | torch.dtype | str | None, *, cudnn_attention: bool = False) -> Iterator[Autocast]:
    """While open, what stands for a CUDA device's tensors meets its kernels; gives the autocast to capture under."""
    active = next((x for x in ("cuda", "cpu") if torch.is_autocast_enabled(x)), "cpu")
    casts = autocast_now(active) if autocast is None else an_autocast(autocast, "cpu")
    casting = nullcontext() if casts.dtype is None else cuda_casts()
    with captured_for("cuda"), _FusedAttention(by_cudnn=cudnn_attention), casting:
        yield casts


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    """Parameters, buffers and the tensors that modules keep as plain attributes."""
    plain = [x for module in model.modules() for x in vars(module).values() if isinstance(x, torch.Tensor)]
    return [*model.parameters(), *model.buffers(), *plain]


def _stand_in(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    wanted = dtype if dtype is not None and tensor.dtype.is_floating_point else tensor.dtype
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=wanted, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(made, requires_grad=tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


class _FusedAttention(TorchFunctionMode):
    """Makes of attention the kernels that PyTorch chooses on CUDA: memory-efficient, or others in half precision."""

    def __init__(self, *, by_cudnn: bool) -> None:
        """In half precision cuDNN's, or flash."""
        super().__init__()
        self._by_cudnn = by_cudnn

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            found = _fused(*args, by_cudnn=self._by_cudnn, **kwargs)
            if found is not None:
                return found
        return func(*args, **kwargs)


def _fused(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 - as PyTorch's own function has it
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002 - likewise
    *,
    by_cudnn: bool,
) -> torch.Tensor | None:
    """The result of the fused kernel, or None where PyTorch would take none."""
    query, key, value, attn_mask = cast_for_autocast(query, key, value, attn_mask)
    boolean = attn_mask is not None and attn_mask.dtype == torch.bool
    if boolean or any(x.dim() != 4 or x.shape[-1] % 8 for x in (query, key, value)):
        return None
    half, width = query.dtype in _HALVES, query.shape[-1]
    learned_bias = attn_mask is not None and attn_mask.requires_grad  # cuDNN's has no gradient of it
    if half and by_cudnn and width <= _WIDEST_OF_CUDNN and not learned_bias:
        kernel = aten._scaled_dot_product_cudnn_attention.default  # noqa: SLF001 - an operator of ATen
        return kernel(query, key, value, attn_mask, True, dropout_p, is_causal, False, scale=scale)[0]
    if half and attn_mask is None:  # the only one that takes several queries for a key as they are
        kernel = aten._scaled_dot_product_flash_attention.default  # noqa: SLF001 - an operator of ATen
        return kernel(query, key, value, dropout_p, is_causal, scale=width**-0.5 if scale is None else scale)[0]
    if enable_gqa:
        return None
    kernel = aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001 - an operator of ATen
    return kernel(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
