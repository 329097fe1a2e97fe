"""From a model and a batch to a profile of the step that PyTorch's compiler makes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from explorer.arguments import a_callback, a_loss
from explorer.capture import Batch, Loss
from explorer.capture.batch import BatchLayout, call_arguments, check_kind, dtype_name, flatten, uncompiled
from explorer.compiling.building import Built, build
from explorer.compiling.costs import costs_of
from explorer.compiling.joint import Joint, joint_of
from explorer.compiling.kernels import is_of_pictures
from explorer.device_profile import Profile
from explorer.execution.device import describe_device, device_of
from explorer.execution.steps import persistent_bytes
from explorer.graph import Identity, TensorSpec
from explorer.profiling.profiling import Progress
from explorer.torch_arguments import a_batch, a_model
from explorer.torch_inductor import lays_out_convolutions

_WORTH = 0.97  # of the time with channels last that the model's own layout may take at most: costs are measured


@dataclass(frozen=True)
class Traced:
    """A compiled step, before anything is decided.

    Attributes:
        joint: the compiler's graph.
        built: as a training graph, with channels last in convolutions of pictures.
        own: likewise in the model's own; None where there are no convolutions of pictures on a CPU.
        batch: what it expects of a batch.
        differentiated: of the batch's leaves, which are tensors with ``requires_grad``.
    """

    joint: Joint
    built: Built
    own: Built | None
    batch: BatchLayout
    differentiated: tuple[bool, ...]

    def is_own_layout(self, identity: Identity) -> bool:
        """Is a graph or schedule of this identity of this step in the model's own layout?"""
        return self.own is not None and identity.difference(self.own.graph.identity) is None

    def in_layout(self, *, own: bool) -> Built:
        """The graph in one of the layouts."""
        return self.own if own and self.own is not None else self.built


def profile_compiled(
    model: nn.Module, batch: Batch, *, loss: Loss | None = None, progress: Progress | None = None
) -> Profile:
    """Profile the step that ``torch.compile`` makes of a model, for ``solve(…, method="monet-compiled")``.

    Operators are the kernels that the compiler makes, as far as they can be known before it works: loops of fused
    pointwise calls and sums, which take as long as what they read and write goes through memory once, and calls of
    libraries, which are measured. What a loop has inside is never in memory. What PyTorch's own minimum cut computes
    again inside of other loops is computed again there; what it saves, schedules may save or not. On a CPU,
    convolutions of pictures are measured with channels last and in the model's own layout; the graph is of the quicker.

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
    """Measure and count what a traced step takes on the device where it runs, in the layout that takes less time."""
    return profiles_of(traced, device, progress=progress)[0]


def profiles_of(traced: Traced, device: torch.device, *, progress: Progress = lambda *_: None) -> tuple[Profile, ...]:
    """In every layout that convolutions have, that which takes less time first."""
    both = [traced.built, *([traced.own] if traced.own else [])]
    costs = costs_of({key: work for x in both for key, work in x.work.items()}, device=device, progress=progress)
    described = describe_device(device)
    profiles = tuple(Profile(x.graph, {key: costs[key] for key in x.work}, described) for x in both)
    times_ms = [sum(x.cost(y.default()).time_ms for y in x.graph.operators) for x in profiles]
    return profiles[::-1] if times_ms[-1] < _WORTH * times_ms[0] else profiles


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
    described = partial(
        build,
        joint,
        model=type(model).__name__,
        batch=layout.specs,
        parameters=tuple(TensorSpec(x, tuple(y.shape), dtype_name(y.dtype)) for x, y in model.named_parameters()),
        persistent_bytes=persistent_bytes(model, batch, loss=loss),
    )
    # Where the compiler leaves convolutions as they are, that is the one layout that there is.
    pictures = any(map(is_of_pictures, joint.module.graph.nodes))
    own = described(own_layout=True) if pictures else None
    built = described() if own is None or lays_out_convolutions() else own
    return Traced(joint, built, None if built is own else own, layout, tuple(map(differentiated, flat.leaves)))


def differentiated(leaf: Any) -> bool:
    """Is it a tensor with ``requires_grad``?"""
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad
