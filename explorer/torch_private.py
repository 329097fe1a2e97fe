"""PyTorch's private calls outside tracing, in one place, tested on every supported version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import fx

OpOverload = torch._ops.OpOverload
"""The type of ``torch.ops.aten.relu.default``."""


def storage_key(tensor: torch.Tensor) -> int:
    """Equal for tensors, real or fake, that share their memory."""
    return tensor.untyped_storage()._cdata


def bare_binding(function: Callable[..., Any]) -> Callable[..., Any]:
    """What an OpOverload calls after a Python frame of its own; other functions as they are."""
    return function._op if isinstance(function, OpOverload) else function


def graph_is_kept() -> bool:
    """Within a backward pass: was it asked for with ``retain_graph`` or ``create_graph``?"""
    autograd: Any = torch._C._autograd  # type: ignore[attr-defined]  # a compiled module without a stub
    return autograd._get_current_graph_task_keep_graph()


def forget_cublas_workspaces() -> None:
    """Release what PyTorch keeps for cuBLAS on CUDA devices; the next product allocates it again."""
    private: Any = torch._C
    private._cuda_clearCublasWorkspaces()


def cuda_memory_trace(run: Callable[[], None]) -> list[dict[str, Any]]:
    """The caching allocator's events on the current CUDA device during ``run``."""
    torch.cuda.memory._record_memory_history(context=None)
    try:
        run()
        torch.cuda.synchronize()
        snapshot: Any = torch.cuda.memory._snapshot()
        return snapshot["device_traces"][torch.cuda.current_device()]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def activation_budget(share: float) -> AbstractContextManager[Any]:
    """While open, ``torch.compile``'s partitioner has this ``activation_memory_budget``."""
    from torch._functorch import config

    settings: Any = config
    return settings.patch(activation_memory_budget=share)


def saved_by_partitioner(joint: fx.GraphModule, *, outputs: int, budget: float) -> list[str]:
    """What ``torch.compile``'s partitioner saves between the passes, by the nodes' names.

    Args:
        joint: forward and backward graph as ahead-of-time autograd traces it; used up.
        outputs: how many results of the joint graph belong to the forward pass.
        budget: share of activations to save, from 0 to 1.
    """
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    with activation_budget(budget):
        forward, _ = min_cut_rematerialization_partition(joint, None, num_fwd_outputs=outputs)
    (results,) = next(x for x in forward.graph.nodes if x.op == "output").args
    assert isinstance(results, tuple | list)
    return [x.name for x in results[outputs:] if isinstance(x, fx.Node)]
