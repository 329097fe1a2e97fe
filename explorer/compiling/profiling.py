"""From a model and a batch to a profile of the step that PyTorch's compiler makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from explorer.arguments import a_callback, a_loss
from explorer.capture import Batch, Loss
from explorer.capture.batch import BatchLayout, call_arguments, check_kind, dtype_name, flatten, uncompiled
from explorer.compiling.building import Built, build
from explorer.compiling.costs import costs_of
from explorer.compiling.joint import Joint, joint_of
from explorer.device_profile import Profile
from explorer.execution.device import describe_device, device_of
from explorer.execution.steps import persistent_bytes
from explorer.graph import TensorSpec
from explorer.profiling.profiling import Progress
from explorer.torch_arguments import a_batch, a_model


@dataclass(frozen=True)
class Traced:
    """A compiled step, before anything is decided.

    Attributes:
        joint: the compiler's graph.
        built: as a training graph.
        batch: what it expects of a batch.
        differentiated: of the batch's leaves, which are tensors with ``requires_grad``.
    """

    joint: Joint
    built: Built
    batch: BatchLayout
    differentiated: tuple[bool, ...]


def profile_compiled(
    model: nn.Module, batch: Batch, *, loss: Loss | None = None, progress: Progress | None = None
) -> Profile:
    """Profile the step that ``torch.compile`` makes of a model, for ``solve(…, method="monet-compiled")``.

    Operators are the kernels that the compiler makes, as far as they can be known before it works: loops of fused
    pointwise calls and sums, which take as long as what they read and write goes through memory once, and calls of
    libraries, which are measured. What a loop has inside is never in memory. What PyTorch's own minimum cut computes
    again inside of other loops is computed again there; what it saves, schedules may save or not.

    Args:
        model: in training mode; as before afterwards. Autocast is what the model enters by itself, or what is active.
        batch: as for ``profile``.
        loss: as for ``profile``: it is compiled, too.
        progress: called as the work goes on.

    Returns:
        The profile. Its schedules run by ``explorer.compiled``, and by nothing else.

    Raises:
        ValueError: the compiler cannot make one graph of the step, or the batch does not fit.
    """
    a_callback(progress, "progress")
    return profile_of(traced_of(model, batch, loss=loss), device_of(model), progress=progress or (lambda *_: None))


def profile_of(traced: Traced, device: torch.device, *, progress: Progress = lambda *_: None) -> Profile:
    """Measure and count what a traced step takes on the device where it runs."""
    costs = costs_of(traced.built.work, device=device, progress=progress)
    return Profile(traced.built.graph, costs, describe_device(device))


def traced_of(model: nn.Module, batch: Batch, *, loss: Loss | None = None) -> Traced:
    """Trace a step as the compiler does.

    Raises:
        ValueError: as ``profile_compiled``.
    """
    model = uncompiled(a_model(model))
    check_kind(model)
    a_batch(batch, model)
    args, kwargs = call_arguments(batch, loss=a_loss(loss))
    joint = joint_of(model, batch, loss=loss)
    flat = flatten(args, kwargs)
    layout = BatchLayout.of(flat)
    built = build(
        joint,
        model=type(model).__name__,
        batch=layout.specs,
        parameters=tuple(TensorSpec(x, tuple(y.shape), dtype_name(y.dtype)) for x, y in model.named_parameters()),
        persistent_bytes=persistent_bytes(model, batch, loss=loss),
    )
    return Traced(joint, built, layout, tuple(map(differentiated, flat.leaves)))


def differentiated(leaf: Any) -> bool:
    """Is it a tensor with ``requires_grad``?"""
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad
