"""Which kernel PyTorch takes for attention on a CUDA device, and what it makes of the arguments before.

As ATen has it for CUDA in PyTorch 2.11 to 2.13 (its sdp_utils and attention), for dense tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch
from torch.nn import functional as F

from explorer.torch_dispatch import composites_by

aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_ALIGNMENT = 8
"""Of the width of heads for flash and cuDNN's attention, and of the strides of a mask, in elements."""
_TENSOR_CORE_BYTES = 16
_WIDEST_OF_FLASH = 256
_WIDEST_OF_CUDNN = 128
_UNEQUAL_OF_CUDNN = (192, 128)
_MOST_OF_CUDNN = 65535
_SINCE_2_12 = tuple(int(x) for x in torch.__version__.split(".")[:2]) >= (2, 12)


@dataclass(frozen=True, slots=True)
class Architecture:
    """What PyTorch's choice of a kernel asks of a device.

    Attributes:
        compute_capability: as NVIDIA writes it, 8.6 or 10.0.
        cudnn_attention: cuDNN's attention comes first; None: where PyTorch has it so.
    """

    compute_capability: float = 8.0
    cudnn_attention: bool | None = None

    @property
    def version(self) -> tuple[int, int]:
        """The capability, major and minor."""
        tenths = round(self.compute_capability * 10)
        return tenths // 10, tenths % 10

    @property
    def prefers_cudnn(self) -> bool:
        """Does cuDNN's attention come first?"""
        return self.version[0] in (9, 10) if self.cudnn_attention is None else self.cudnn_attention


AMPERE = Architecture()


class Kernel(Enum):
    """One of PyTorch's ways to compute attention on CUDA."""

    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    MATH = "math"


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The arguments of ``scaled_dot_product_attention``."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    attn_mask: torch.Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """All but the mask."""
        return self.query, self.key, self.value

    @property
    def trains(self) -> bool:
        """Is a gradient wanted of any of them?"""
        return torch.is_grad_enabled() and any(x.requires_grad for x in self.inputs)


@contextmanager
def attention_of(architecture: Architecture) -> Iterator[None]:
    """While open, attention of this thread's tensors of the CPU is computed as on a CUDA device, whoever calls it."""

    def attention(operator: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        call = AttentionCall(*args, **kwargs)
        return attend(call, architecture) if _is_valid(call) else operator.decompose(*args, **kwargs)

    with composites_by({"scaled_dot_product_attention": attention}):
        yield


def kernel_for(call: AttentionCall, architecture: Architecture) -> Kernel:
    """The first of PyTorch's kernels that takes these arguments and is not switched off.

    Raises:
        ValueError: there is none.
    """
    order = [Kernel.FLASH, Kernel.EFFICIENT, Kernel.MATH]
    order.insert(0 if architecture.prefers_cudnn else len(order), Kernel.CUDNN)
    for kernel in order:
        enabled, takes = _KERNELS[kernel]
        if enabled() and takes(call, architecture):
            return kernel
    allowed = ", ".join(x.value for x, (enabled, _) in _KERNELS.items() if enabled())
    raise ValueError(
        f"attention of {call.query.dtype} with heads of {call.query.shape[-1]} has no kernel on a device of compute "
        f"capability {architecture.compute_capability} among those that are not switched off ({allowed or 'none'}): "
        "allow another (torch.nn.attention.sdpa_kernel), SDPBackend.MATH takes everything"
    )


def attend(call: AttentionCall, architecture: Architecture) -> torch.Tensor:
    """The result of that kernel, on arguments that are made ready for it.

    Raises:
        ValueError: as ``kernel_for`` does.
    """
    kernel = kernel_for(call, architecture)
    mask = _additive(call, kernel)
    rest = call.dropout_p, call.is_causal
    if kernel is Kernel.CUDNN:
        cudnn = aten._scaled_dot_product_cudnn_attention.default  # noqa: SLF001 - an operator of ATen
        return cudnn(*call.inputs, mask, call.trains, *rest, False, scale=call.scale)[0]
    if kernel is Kernel.FLASH:
        return _by_flash(call)
    if kernel is Kernel.EFFICIENT:
        efficient = aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001 - likewise
        mask = None if mask is None else _aligned(mask, call)
        return efficient(*call.inputs, mask, call.trains, *rest, scale=call.scale)[0]
    mathematical = aten._scaled_dot_product_attention_math.default  # noqa: SLF001 - likewise
    return mathematical(*call.inputs, mask, *rest, None, scale=call.scale, enable_gqa=call.enable_gqa)[0]


def _by_flash(call: AttentionCall) -> torch.Tensor:
    """Heads are filled up to a width that the kernel takes; the scale is of what they were."""
    flash = aten._scaled_dot_product_flash_attention.default  # noqa: SLF001 - an operator of ATen
    width = call.query.shape[-1]
    scale = 1.0 / math.sqrt(width) if call.scale is None else call.scale  # width**-0.5 has other last bits
    missing = -width % _ALIGNMENT
    padded = [F.pad(x, (0, missing)) if missing else x for x in call.inputs]
    found = flash(*padded, call.dropout_p, call.is_causal, scale=scale)[0]
    return aten.slice.Tensor(found, -1, 0, width) if missing else found


def _additive(call: AttentionCall, kernel: Kernel) -> torch.Tensor | None:
    """The mask as what is added to scores."""
    mask = call.attn_mask
    if mask is None or mask.dtype is not torch.bool:
        return mask
    least = -65504.0 if kernel is Kernel.CUDNN and not _SINCE_2_12 else -math.inf
    masked = aten.scalar_tensor.default(least, dtype=call.query.dtype, device=mask.device)
    return torch.where(mask, 0.0, masked)


def _aligned(mask: torch.Tensor, call: AttentionCall) -> torch.Tensor:
    """One of four dimensions whose rows begin where the kernel can read them."""
    if mask.stride(-1) != 1 or any(x % _ALIGNMENT for x in mask.stride()[:-1]):
        width = mask.shape[-1]
        mask = aten.slice.Tensor(F.pad(mask, (0, _ALIGNMENT - width % _ALIGNMENT)), -1, 0, width)
    return mask.expand(*call.query.shape[:3], call.key.shape[2])


def _is_valid(call: AttentionCall) -> bool:
    """Would PyTorch take these arguments? What is wrong with others it says itself."""
    dtype, mask = call.query.dtype, call.attn_mask
    plain = all(x.dtype == dtype and x.dim() >= 2 and not x.is_nested for x in call.inputs)
    return plain and (mask is None or mask.dtype in (torch.bool, torch.float32, dtype))


def _takes_cudnn(call: AttentionCall, architecture: Architecture) -> bool:
    width, width_of_values = call.query.shape[-1], call.value.shape[-1]
    deterministic = torch.are_deterministic_algorithms_enabled()
    return (
        _in_half_precision(call, architecture)
        and architecture.version >= (8, 0)
        and not (deterministic and not torch.is_deterministic_algorithms_warn_only_enabled())
        and (not _SINCE_2_12 or call.dropout_p * 16 == math.floor(call.dropout_p * 16))
        and _is_dense(call)
        and _mask_fits_cudnn(call)
        and _rows_are_rows(call, or_single=True)
        and _heads_fit(call, grouped=True, alike=False)
        and max(call.query.shape[:2]) <= _MOST_OF_CUDNN
        and width % _ALIGNMENT == 0
        and width_of_values % _ALIGNMENT == 0
        and (
            max(width, width_of_values) <= _WIDEST_OF_CUDNN
            or (architecture.version[0] in (9, 10) and (width, width_of_values) == _UNEQUAL_OF_CUDNN)
        )
        and call.key.shape[2] != 1
        and (call.dropout_p == 0.0 or call.query.shape[2] != 1)
    )


def _takes_flash(call: AttentionCall, architecture: Architecture) -> bool:
    width = call.query.shape[-1]
    # Their multiprocessors have less shared memory, too little for the backward pass of wide heads.
    small = (8, 6) <= architecture.version <= (8, 9) or architecture.version[0] == 12
    return (
        _in_half_precision(call, architecture)
        and architecture.version >= (8, 0)
        and call.attn_mask is None
        and _is_dense(call)
        and all(x.shape[-1] == width for x in call.inputs)
        and width <= _WIDEST_OF_FLASH
        and (not (small and call.trains) or width <= 192 or (width > 224 and call.dropout_p == 0.0))
        and (not call.is_causal or call.query.shape[2] == call.key.shape[2])
        and _heads_fit(call, grouped=True)
        and _rows_are_rows(call, or_single=True)
    )


def _takes_efficient(call: AttentionCall, architecture: Architecture) -> bool:
    precise = all(x.dtype is torch.float32 for x in call.inputs)
    half = _in_half_precision(call, architecture)
    size = call.query.element_size()
    cores = architecture.version >= (8, 0) or (half and architecture.version >= (7, 0))
    alignment = _TENSOR_CORE_BYTES // size if cores else 1
    offsets = [x.storage_offset() if architecture.version >= (8, 0) else 0 for x in call.inputs]
    widths = [x.shape[-1] for x in call.inputs]
    return (
        (precise or half)
        and architecture.version >= (5, 0)
        and _is_dense(call)
        and widths[0] == widths[1]
        and not any(x % alignment for x in (*widths, *offsets))
        and _rows_are_rows(call, or_single=False)
        and _heads_fit(call, grouped=False)
    )


def _takes_math(call: AttentionCall, architecture: Architecture) -> bool:
    del call, architecture
    return True


_CUDA = torch.backends.cuda
_KERNELS = {
    Kernel.CUDNN: (_CUDA.cudnn_sdp_enabled, _takes_cudnn),
    Kernel.FLASH: (_CUDA.flash_sdp_enabled, _takes_flash),
    Kernel.EFFICIENT: (_CUDA.mem_efficient_sdp_enabled, _takes_efficient),
    Kernel.MATH: (_CUDA.math_sdp_enabled, _takes_math),
}
"""Is it switched on, and does it take a call on a device?"""


def _in_half_precision(call: AttentionCall, architecture: Architecture) -> bool:
    allowed = _HALVES if architecture.version >= (8, 0) else (torch.float16,)
    return call.query.dtype in allowed and all(x.dtype == call.query.dtype for x in call.inputs)


def _is_dense(call: AttentionCall) -> bool:
    """Have all of them four dimensions, and both sequences something in them?"""
    return all(x.dim() == 4 for x in call.inputs) and call.query.shape[2] != 0 and call.key.shape[2] != 0


def _rows_are_rows(call: AttentionCall, *, or_single: bool) -> bool:
    """Do the elements of a row lie side by side?"""
    rows = all(x.stride(-1) == 1 for x in call.inputs) or (or_single and call.query.shape[-1] == 1)
    return rows and (call.attn_mask is None or call.attn_mask.stride(-1) == 1)


def _heads_fit(call: AttentionCall, *, grouped: bool, alike: bool = True) -> bool:
    """Are there as many samples everywhere, and as many heads; or heads for several queries each, if those are grouped?

    Args:
        call: of four dimensions.
        grouped: the kernel takes groups, where the caller asks for them.
        alike: only as many heads of keys as of values.
    """
    batches, heads = ({x.shape[i] for x in call.inputs} for i in (0, 1))
    if len(batches) > 1:
        return False
    if not (call.enable_gqa and grouped):
        return len(heads) == 1
    queries, keys, values = (x.shape[1] for x in call.inputs)
    return (keys == values or not alike) and queries % keys == 0 and queries % values == 0


def _mask_fits_cudnn(call: AttentionCall) -> bool:
    """Is it one for all or one for each, and does it want no gradient?"""
    mask = call.attn_mask
    if mask is None:
        return True
    batch, heads, queries = call.query.shape[:3]
    full = (batch, heads, queries, call.key.shape[2])
    fits = all(x in (1, y) for x, y in zip(mask.shape[::-1], full[::-1], strict=False))
    return fits and mask.dim() in (2, 4) and not mask.requires_grad
