"""A model, its sample batch and its loss as one callable step with a flat list of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from explorer.graph import TensorSpec

Batch = Any
Loss = Callable[[Any, Any], torch.Tensor]


class TrainingStep(nn.Module):
    """Model and loss as one module, the model below the name ``model``.

    Where the result holds scalars (losses), only they carry a gradient; other tensors come back detached.
    """

    def __init__(self, model: nn.Module, loss: Loss | None) -> None:
        """Wrap without changing the model's mode."""
        super().__init__()
        self.model = model
        self.loss = loss
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """``loss(model(inputs), target)``, or what the model returns."""
        if self.loss is not None:
            inputs, target = args
            model_args, model_kwargs = as_arguments(inputs)
            return _with_scalar_gradients(self.loss(self.model(*model_args, **model_kwargs), target))
        return _with_scalar_gradients(self.model(*args, **kwargs))


def _with_scalar_gradients(result: Any) -> Any:
    tensors = [x for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    if not any(x.ndim == 0 for x in tensors):
        return result
    return pytree.tree_map_only(torch.Tensor, lambda x: x if x.ndim == 0 else x.detach(), result)


@dataclass(frozen=True)
class FlatBatch:
    """A batch as a pytree: leaves with a path each, and the structure that rebuilds it."""

    leaves: tuple[Any, ...]
    names: tuple[str, ...]
    structure: pytree.TreeSpec


@dataclass(frozen=True)
class TensorLayout:
    """What must be equal of two tensors for one schedule to serve both."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    strides: tuple[int, ...]


@dataclass(frozen=True)
class BatchLayout:
    """What a schedule expects of a batch; holds no tensor, so a sample batch is not kept alive.

    Attributes:
        names: of the leaves.
        leaves: a ``TensorLayout`` for each tensor, the value itself for anything else.
        structure: of the pytree.
    """

    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec

    @classmethod
    def of(cls, batch: FlatBatch) -> BatchLayout:
        """The layout of a flattened batch."""
        return cls(batch.names, tuple(_layout(leaf) for leaf in batch.leaves), batch.structure)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of the tensors among the leaves."""
        return tuple(
            TensorSpec(name, leaf.shape, dtype_name(leaf.dtype))
            for name, leaf in zip(self.names, self.leaves, strict=True)
            if isinstance(leaf, TensorLayout)
        )

    def check(self, batch: FlatBatch) -> None:
        """Refuse a batch that the schedule was not made for.

        Raises:
            ValueError: naming the first difference.
        """
        if self.structure != batch.structure:
            raise ValueError(f"the batch is {batch.structure}; the schedule was made for {self.structure}")
        for name, expected, value in zip(self.names, self.leaves, batch.leaves, strict=True):
            given = _layout(value)
            if given == expected:
                continue
            if not isinstance(expected, TensorLayout) or not isinstance(given, TensorLayout):
                raise ValueError(f"{name} is {value!r}; the schedule was made for {expected!r}")
            for what in ("shape", "dtype", "device", "strides"):
                here, there = getattr(given, what), getattr(expected, what)
                if here != there:
                    advice = "; for a smaller last batch, use drop_last=True" if what == "shape" else ""
                    raise ValueError(f"{name} has {what} {here}; the schedule was made for {there}{advice}")


def _layout(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return TensorLayout(tuple(leaf.shape), leaf.dtype, leaf.device, leaf.stride())


def dtype_name(dtype: torch.dtype) -> str:
    """As ``float32``."""
    return str(dtype).removeprefix("torch.")


def as_arguments(batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a batch is passed to a model: tensor → one argument, tuple or list → several, dict → keywords."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    if isinstance(batch, tuple | list):
        return tuple(batch), {}
    return (batch,), {}


def call_arguments(batch: Batch, *, loss: Loss | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the step.

    Raises:
        ValueError: a loss was named, but the batch is not a pair (inputs, target).
    """
    if loss is None:
        return as_arguments(batch)
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(
            f"with a loss the batch must be a pair (inputs, target); it is a {type(batch).__name__}"
            + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
        )
    return tuple(batch), {}


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> FlatBatch:
    """Flatten the arguments of a call."""
    pairs, structure = pytree.tree_flatten_with_path((args, kwargs))
    names = tuple(_path_name(path) for path, _ in pairs)
    return FlatBatch(tuple(leaf for _, leaf in pairs), names, structure)


def _path_name(path: tuple[Any, ...]) -> str:
    """Path of a leaf below (args, kwargs) as a person would write it: ``batch[0]``, ``labels``."""
    section, *rest = path
    if section.idx == 1:
        name, *rest = rest
        return str(name.key) + pytree.keystr(tuple(rest))
    return "batch" + pytree.keystr(tuple(rest))
