"""From a module and a sample batch to the training graph of one step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import nn

from explorer.arguments import a_flag, a_loss
from explorer.autocast import Autocast
from explorer.capture.ambient import Ambient, an_autocast, autocast_region
from explorer.capture.batch import (
    Batch,
    BatchLayout,
    Loss,
    TrainingStep,
    call_arguments,
    check_kind,
    flatten,
    parameter_specs,
    uncompiled,
)
from explorer.capture.building import Built, build
from explorer.capture.grouping import join_groups
from explorer.capture.normalise import normalise
from explorer.capture.refusing import check_modules, own_hooks_aside
from explorer.capture.traced import Traced
from explorer.capture.tracing import trace
from explorer.graph import TrainingGraph
from explorer.iteration import Iteration
from explorer.operators.encodings import Encoding
from explorer.torch_arguments import a_batch, a_model
from explorer.torch_errors import explained

__all__ = ["Batch", "Capture", "Loss", "capture"]


@dataclass(frozen=True)
class Capture:
    """A captured training step.

    Attributes:
        built: the training graph and the calls that run it.
        traced: the joint graph below it, with its interface.
        batch: what a batch must look like.
        loss: as given to ``capture``.
        ambient: settings of PyTorch that the trace depended on.
        batch_gradients: for each leaf of the batch, whether it requires a gradient.
    """

    built: Built
    traced: Traced
    batch: BatchLayout
    loss: Loss | None
    ambient: Ambient
    batch_gradients: tuple[bool, ...]

    @property
    def graph(self) -> TrainingGraph:
        """The torch-free training graph."""
        return self.built.graph

    def in_iteration(self, iteration: Iteration) -> Capture:
        """The same step with what an iteration does besides."""
        return self if iteration == self.graph.iteration else replace(self, built=self.built.in_iteration(iteration))


def capture(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Loss | None = None,
    encoding: Encoding | str | None = None,
    autocast: Autocast | torch.dtype | str | None = None,
    fuse: bool = False,
) -> Capture:
    """Capture forward and backward of one training step; runs nothing and changes no state.

    Args:
        model: in training mode.
        batch: a tensor, tuple or dict for the model; with a loss the pair (inputs, target).
        loss: ``loss(model(inputs), target)`` gives the scalar to train on. Without it, the scalars that the model
            returns carry the gradient; if it returns none, all that it returns do.
        encoding: also offer Gist's encodings: ``"lossless"``, ``"fp16"``, ``"fp10"``, ``"fp8"`` or an ``Encoding``. The
            graph is another one then, with more operators.
        autocast: the forward pass, loss included, runs under ``torch.autocast`` to this dtype: ``torch.bfloat16`` or
            ``torch.float16``, or their names. None: under what is active here. The graph's ``autocast`` says which.
        fuse: chains of calls that PyTorch's compiler can make one kernel of are operators, with those kernels among
            their implementations. The graph is another one then, with fewer operators, and its ``fused`` says so.

    Returns:
        The capture; its ``graph`` is what profiles and schedules are made for.

    Raises:
        ValueError: the model is in evaluation mode, the batch does not fit the loss, control flow or shapes depend
            on tensor values (the message names the line), nothing needs a gradient, or there is no such autocast.
    """
    model = uncompiled(a_model(model))
    check_kind(model)
    a_batch(batch, model)
    args, kwargs = call_arguments(batch, loss=a_loss(loss))
    flat = flatten(args, kwargs)
    layout = BatchLayout.of(flat)
    wanted = None if encoding is None else Encoding.of(encoding)
    step = TrainingStep(model, loss)
    check_modules(model, with_loss=loss is not None)
    kind = next(model.parameters()).device.type
    casts = an_autocast(autocast, kind)
    with autocast_region((kind, casts)):
        with torch.enable_grad(), explained(model, batch, loss=loss), own_hooks_aside(model):
            traced = normalise(trace(step, args, kwargs), step)
            traced = join_groups(traced) if a_flag(fuse, "fuse") else traced
        devices = {x.device.type for x in (*model.parameters(), *flat.leaves) if isinstance(x, torch.Tensor)}
        ambient = Ambient.now(devices, with_defaults=traced.enters_autocast)
    built = build(
        traced,
        model=type(model).__name__,
        batch=layout.specs,
        parameters=parameter_specs(model),
        autocast=casts,
        encoding=wanted,
        fused=fuse,
    )
    return Capture(
        built=built,
        traced=traced,
        batch=layout,
        loss=loss,
        ambient=ambient,
        batch_gradients=tuple(isinstance(x, torch.Tensor) and x.requires_grad for x in flat.leaves),
    )
