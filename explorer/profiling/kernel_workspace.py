"""What kernels other than convolutions allocate inside, which a run on tensors without memory does not show.

Each rule is that of PyTorch's (or cuDNN's) CUDA kernel, and gives what was measured on an H200 to 512 bytes, but for
embeddings, where it depends on how often an index comes up and is the most that there can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from explorer.profiling.devices import DeviceSpec

_MIB = 2**20
_ACCUMULATED_BYTES = 4
_FLASH_ROWS, _FLASH_WIDTH = 128, 32
_ROWS_OF_A_SEGMENT = 10
_SORTED_BYTES = 48
"""Of an index of an embedding: itself and its place, twice, and where segments begin."""
_REDUCTIONS = {"sum", "mean", "amax", "amin", "prod"}


def kernel_workspace_bytes(name: str, tensors: Sequence[torch.Tensor], args: Any, spec: DeviceSpec) -> int:
    """Of an operator of ATen.

    Args:
        name: of the operator, without its overload.
        tensors: that it is called with.
        args: its positional arguments.
        spec: the device.
    """
    if name in _REDUCTIONS:
        return _reduction_bytes(tensors[0], args, spec)
    if name.startswith("_scaled_dot_product") and name.endswith("backward"):
        return _attention_bytes(name, tensors[1])
    if name == "embedding_dense_backward":
        gradient, indices = tensors[:2]
        segments = indices.numel() + indices.numel() // _ROWS_OF_A_SEGMENT
        return segments * gradient.shape[-1] * _ACCUMULATED_BYTES + indices.numel() * _SORTED_BYTES
    if name == "binary_cross_entropy_with_logits":
        return 2 * tensors[0].numel() * tensors[0].element_size()
    return 0


def _reduction_bytes(tensor: torch.Tensor, args: Any, spec: DeviceSpec) -> int:
    """Blocks that share a column leave partial sums in memory; rows of neighbours are summed within a block."""
    dims = args[1] if len(args) > 1 and isinstance(args[1], list | tuple) else []
    reduced = {x % tensor.dim() for x in dims} if tensor.dim() else set()
    side_by_side = [x for x in range(tensor.dim()) if tensor.stride(x) == 1 and tensor.shape[x] > 1]
    if not reduced or not side_by_side or reduced & set(side_by_side):
        return 0
    columns = prod(size for x, size in enumerate(tensor.shape) if x not in reduced)
    most = -(-spec.multiprocessors * _MIB // (columns * _ACCUMULATED_BYTES * 256)) * columns * _ACCUMULATED_BYTES * 256
    return min(2 * tensor.numel() * _ACCUMULATED_BYTES, most)


def _attention_bytes(name: str, query: torch.Tensor) -> int:
    """The query's gradient in float32 while it is added up, and a number for each row."""
    *batch, rows, width = query.shape
    if "flash" in name:
        rows, width = _up(rows, _FLASH_ROWS), _up(width, _FLASH_WIDTH)
    row_bytes = prod(batch) * rows * _ACCUMULATED_BYTES
    if "efficient" in name and query.dtype == torch.float32:
        return row_bytes
    return row_bytes * (width + 1)


def _up(amount: int, multiple: int) -> int:
    return -(-amount // multiple) * multiple
