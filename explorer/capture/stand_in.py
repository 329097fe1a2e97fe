"""Capture for a GPU that is not here: fake tensors stand for the model and the batch, and take no memory."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from explorer.autocast import Autocast
from explorer.capture import Batch, Capture, Loss, capture
from explorer.capture.ambient import an_autocast, autocast_now
from explorer.capture.attention import AMPERE, Architecture, attention_of
from explorer.capture.casts_of_cuda import cuda_casts
from explorer.capture.kernels_of_cpu import check_operators, refused_for_cuda
from explorer.operators.registry import captured_for


def capture_for_cuda(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    dtype: torch.dtype | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    architecture: Architecture = AMPERE,
    fuse: bool = False,
) -> Capture:
    """As ``capture``, with the operators that the model has on a CUDA device.

    Args:
        model: on any device, ``meta`` included; it is copied without its values.
        batch: likewise.
        loss: as for ``capture``.
        dtype: for all floating-point tensors; None: their own.
        autocast: as for ``capture``, by CUDA's rules. None: what is active for CUDA, or else for the CPU.
        architecture: of the device, by which PyTorch chooses the kernel of attention.
        fuse: as for ``capture``.

    Raises:
        ValueError: as ``capture`` does, or the model has what runs other operators on a CUDA device, and is not known
            here.
    """
    standing, batch = stand_in_for(model, batch, dtype=dtype)
    with as_on_cuda(autocast, architecture) as casts:
        captured = capture(standing, batch, loss=loss, autocast=casts, fuse=fuse)
    check_operators(x.target for x in captured.graph.operators)
    return captured


def stand_in_for(model: nn.Module, batch: Batch, *, dtype: torch.dtype | None) -> tuple[nn.Module, Batch]:
    """Copies without values, of the CPU: fake tensors of a CUDA device need a PyTorch that is built for one."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        known: dict[int, Any] = {}
        for tensor in _tensors(model):
            known.setdefault(id(tensor), _stand_in(tensor, dtype))
        standing = copy.deepcopy(model, known)
        return standing, pytree.tree_map_only(torch.Tensor, lambda x: _stand_in(x, dtype), batch)


@contextmanager
def as_on_cuda(
    autocast: Autocast | torch.dtype | str | None, architecture: Architecture = AMPERE
) -> Iterator[Autocast]:
    """While open, what stands for a CUDA device's tensors meets its kernels; gives the autocast to capture under."""
    active = next((x for x in ("cuda", "cpu") if torch.is_autocast_enabled(x)), "cpu")
    casts = autocast_now(active) if autocast is None else an_autocast(autocast, "cpu")
    casting = nullcontext() if casts.dtype is None else cuda_casts()
    with captured_for("cuda"), attention_of(architecture), refused_for_cuda(), casting:
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
