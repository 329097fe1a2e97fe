"""One model bound to a captured step: where its tensors are, and what must be as it was."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from explorer.capture import Capture
from explorer.capture.batch import FlatBatch
from explorer.capture.tracing import GraphInput, Source
from explorer.execution.guards import ModelChangedError, ModelGuards
from explorer.execution.surroundings import watched_surroundings
from explorer.units import format_bytes


@dataclass(frozen=True)
class _Place:
    """Where a parameter or buffer is found, and what it must be.

    Attributes:
        index: in ``Traced.inputs``.
        path: its full name.
        holder: the module's dictionary of parameters or of buffers.
        name: in that dictionary.
        dtype: it has.
        shape: it has.
        trained: it requires a gradient, or may.
        tensor: it was.
    """

    index: int
    path: str
    holder: dict[str, Any]
    name: str
    dtype: torch.dtype
    shape: torch.Size
    trained: bool
    tensor: torch.Tensor


class Binding:
    """Finds the values of the graph inputs in a model, and checks at every call that it is what was captured."""

    def __init__(self, capture: Capture, model: nn.Module) -> None:
        """Bind; the model is now as it was captured."""
        self._capture = capture
        self._guards = [ModelGuards(model, with_own_hooks=capture.loss is not None)]
        if isinstance(capture.loss, nn.Module):
            self._guards.append(ModelGuards(capture.loss, with_own_hooks=True))
        self._surroundings = watched_surroundings(model, capture.loss)
        self._size = len(capture.traced.inputs)
        self._leaves = [
            (index, int(x.name)) for index, x in enumerate(capture.traced.inputs) if x.source is Source.INPUT
        ]
        self._places = [
            _place(model, capture.loss, index, x)
            for index, x in enumerate(capture.traced.inputs)
            if x.source in (Source.PARAMETER, Source.BUFFER)
        ]
        self._tied = _tied(model)
        self._told = False

    def values(self, flat: FlatBatch) -> list[Any]:
        """The value of each graph input in this step; None for tangents, which come later.

        Raises:
            ModelChangedError: model, batch or PyTorch's settings are not what was captured; says what, and the remedy.
        """
        flat = self._capture.batch.arranged(flat)
        self._check(flat)
        values: list[Any] = [None] * self._size
        for place in self._places:
            found = place.holder.get(place.name)
            # The shape of one object changes only with its data, by hand.
            same = found is place.tensor or getattr(found, "shape", None) == place.shape
            if found is None or not same or found.dtype is not place.dtype:
                raise ModelChangedError(_other_tensor(place, found))
            if found.requires_grad and not place.trained:
                raise ModelChangedError(
                    f"{place.path} requires a gradient now, and did not when the step was captured, so it would get "
                    "none: profile, solve and apply again, with the model as it is now"
                )
            values[place.index] = found
        for index, leaf in self._leaves:
            values[index] = flat.leaves[leaf]
        if not self._told:
            self._notice_gradients(values)
        return values

    def _check(self, flat: FlatBatch) -> None:
        self._capture.batch.check(flat)
        for name, leaf, captured in zip(flat.names, flat.leaves, self._capture.batch_gradients, strict=True):
            if not captured and isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                raise ModelChangedError(
                    f"{name} requires a gradient here, and did not in the sample batch, so it would get none: profile, "
                    f"solve and apply with a sample batch whose {name} requires one (.requires_grad_()), or detach it"
                )
        for guards in self._guards:
            guards.check()
        for watched in self._surroundings:
            if not watched.holds():
                raise ModelChangedError(watched.change())
        for first, first_name, second, second_name, path in self._tied:
            if first.get(first_name) is not second.get(second_name):
                raise ModelChangedError(
                    f"{path} was tied to another parameter when the step was captured and is one of its own now: "
                    "tie it again, or profile, solve and apply again"
                )
        if difference := self._capture.ambient.difference():
            raise ModelChangedError(difference)

    def _notice_gradients(self, values: list[Any]) -> None:
        """Say once that gradients of an earlier step take memory that the schedule does not know of."""
        trained = [values[place.index] for place in self._places if place.trained]
        gradients = [x.grad for x in trained if x.is_leaf]
        extra_bytes = sum(x.untyped_storage().nbytes() for x in gradients if x is not None)
        if extra_bytes:
            self._told = True
            warnings.warn(
                f"this step begins with gradients in memory: it peaks up to {format_bytes(extra_bytes)} above what was "
                "predicted, which is for steps that begin without. If gradients are accumulated on purpose, solve for "
                "a budget smaller by that; else call optimizer.zero_grad(set_to_none=True) after each step",
                stacklevel=5,
            )


def _place(model: nn.Module, loss: Any, index: int, graph_input: GraphInput) -> _Place:
    section, path = graph_input.name.split(".", 1)
    module, _, name = path.rpartition(".")
    found = (model if section == "model" else loss).get_submodule(module)
    holder: dict[str, Any] = vars(found)  # of tensors that are plain attributes
    for registered in (found._parameters, found._buffers):  # noqa: SLF001
        holder = registered if name in registered else holder
    tensor = holder[name]
    return _Place(index, path, holder, name, tensor.dtype, tensor.shape, tensor.requires_grad, tensor)


def _other_tensor(place: _Place, found: torch.Tensor | None) -> str:
    now = "gone" if found is None else f"{found.dtype} {tuple(found.shape)}"
    return (
        f"{place.path} is {now} now, and was {place.dtype} {tuple(place.shape)} when the step was captured: profile, "
        "solve and apply again, with the model as it is now"
    )


def _tied(model: nn.Module) -> list[tuple[dict[str, Any], str, dict[str, Any], str, str]]:
    """Pairs of places that hold one parameter."""
    first: dict[int, tuple[dict[str, Any], str]] = {}
    pairs = []
    for path, module in model.named_modules():
        for name, parameter in module._parameters.items():  # noqa: SLF001
            if parameter is None:
                continue
            holder, known = first.setdefault(id(parameter), (module._parameters, name))  # noqa: SLF001
            if holder is not module._parameters or known != name:  # noqa: SLF001
                pairs.append((holder, known, module._parameters, name, f"{path}.{name}"))  # noqa: SLF001
    return pairs
