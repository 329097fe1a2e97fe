"""From a module and a sample batch to the training graph of one step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from explorer.capture.batch import Batch, BatchLayout, Loss, TrainingStep, call_arguments, dtype_name, flatten
from explorer.capture.building import Built, build
from explorer.capture.normalise import normalise
from explorer.capture.tracing import Traced, trace
from explorer.graph import TensorSpec, TrainingGraph
from explorer.operators.encodings import Encoding

__all__ = ["Batch", "Capture", "Loss", "capture"]


@dataclass(frozen=True)
class Capture:
    """A captured training step.

    Attributes:
        built: the training graph and the calls that run it.
        traced: the joint graph below it, with its interface.
        batch: what a batch must look like.
        loss: as given to ``capture``.
    """

    built: Built
    traced: Traced
    batch: BatchLayout
    loss: Loss | None

    @property
    def graph(self) -> TrainingGraph:
        """The torch-free training graph."""
        return self.built.graph


def capture(
    model: nn.Module, batch: Batch, *, loss: Loss | None = None, encoding: Encoding | str | None = None
) -> Capture:
    """Capture forward and backward of one training step; runs nothing and changes no state.

    Args:
        model: in training mode.
        batch: a tensor, tuple or dict for the model; with a loss the pair (inputs, target).
        loss: ``loss(model(inputs), target)`` gives the scalar to train on. Without it, the scalars that the model
            returns carry the gradient; if it returns none, all that it returns do.
        encoding: also offer Gist's encodings: ``"lossless"``, ``"fp16"``, ``"fp10"``, ``"fp8"`` or an ``Encoding``. The
            graph is another one then, with more operators.

    Returns:
        The capture; its ``graph`` is what profiles and schedules are made for.

    Raises:
        ValueError: the model is in evaluation mode, the batch does not fit the loss, control flow or shapes depend
            on tensor values (the message names the line), or nothing needs a gradient.
    """
    if not model.training:
        raise ValueError(f"{type(model).__name__} is in evaluation mode; call model.train() before capturing it")
    args, kwargs = call_arguments(batch, loss=loss)
    layout = BatchLayout.of(flatten(args, kwargs))
    wanted = None if encoding is None else Encoding.of(encoding)
    step = TrainingStep(model, loss)
    with torch.enable_grad():
        traced = normalise(trace(step, args, kwargs), step)
    parameters = tuple(TensorSpec(name, tuple(x.shape), dtype_name(x.dtype)) for name, x in model.named_parameters())
    built = build(traced, model=type(model).__name__, batch=layout.specs, parameters=parameters, encoding=wanted)
    return Capture(built, traced, layout, loss)
