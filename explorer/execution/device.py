"""Naming the device at hand."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from explorer.device_profile import Device
from explorer.torch_private import forget_cublas_workspaces

CUDA_ROUNDING_BYTES = 512


def device_of(module: nn.Module) -> torch.device:
    """Where the module's parameters are.

    Raises:
        ValueError: it has none, they are on several devices, or on one that cannot be profiled.
    """
    devices = {x.device for x in module.parameters()}
    if len(devices) != 1:
        found = ", ".join(sorted(map(str, devices))) or "none"
        raise ValueError(f"the model's parameters must be on one device; found: {found}")
    (device,) = devices
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"the model is on {device}; allowed: cpu and cuda")
    return device


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """While open, a CUDA device is the current one, whose statistics, events and generators calls without one mean."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def describe_device(device: torch.device) -> Device:
    """Name and allocator of ``device`` (``"cpu"`` or ``"cuda"``)."""
    # Torch's own is of a class of its own: a process that unpickles a profile would have to import torch.
    torch_version = str(torch.__version__)
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return Device(
            name=properties.name,
            kind="cuda",
            torch_version=torch_version,
            rounding_bytes=CUDA_ROUNDING_BYTES,
            memory_bytes=properties.total_memory,
            note=_cuda_note(device),
        )
    return Device(
        name=f"{_processor()}, {torch.get_num_threads()} threads",
        kind="cpu",
        torch_version=torch_version,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None,
    )


def free_bytes(device: torch.device) -> int:
    """What of its memory is not taken; 2^63 where a system does not tell, whose own limits decide."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(x for x in lines if x.startswith("MemAvailable")).split()[1]) * 1024
    return 2**63


def cublas_workspace_bytes(device: torch.device, *, biased: bool) -> int:
    """What PyTorch keeps on a CUDA device for cuBLAS throughout a training step, measured by a small one.

    It appears with the first product of matrices, and again with the first in the backward pass, which runs in a thread
    with a handle of its own.

    Args:
        device: where.
        biased: products with a bias are among the step's; their library (cuBLASLt) has a workspace besides.
    """
    forget_cublas_workspaces()
    with torch.cuda.device(device):
        before = torch.cuda.memory_allocated()
        _small_step(device, biased=biased)
        torch.cuda.synchronize()
        return max(0, torch.cuda.memory_allocated() - before)


def _small_step(device: torch.device, *, biased: bool) -> None:
    """Products forward and backward, of which nothing is left afterwards but what libraries keep."""
    with torch.enable_grad():
        source, weight = (torch.ones(64, 64, device=device, requires_grad=True) for _ in range(2))
        bias = torch.ones(64, device=device, requires_grad=True) if biased else None
        F.linear(source, weight, bias).sum().backward()


def _cuda_note(device: torch.device) -> str:
    """Versions, and clock and temperature where the driver's library is installed to ask."""
    known = [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}"]
    # Without pynvml, or where it may not ask, these two raise errors of many types.
    with contextlib.suppress(Exception):
        known.append(f"{torch.cuda.clock_rate(device)} MHz, {torch.cuda.temperature(device)} °C")
    return ", ".join(known)


def _processor() -> str:
    """The processor's model name where the system tells it, its architecture elsewhere."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
