"""A model, its sample batch and its loss as one callable step with a flat list of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import UnionType
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from torch._dynamo import OptimizedModule
from torch.utils import _pytree as pytree

from explorer.capture.results import take_apart, tensors_of_result
from explorer.graph import TensorSpec
from explorer.torch_private import is_cut_off

Batch = Any
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DeepSpeedEngine")
Loss = Callable[[Any, Any], torch.Tensor]
TOLD_BY_VALUE = (
    *(bytes, complex, range, slice, frozenset, type(...), np.generic),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
"""Constants that tracing does not know as arguments: a schedule holds for those that are equal."""
_TRACED = (torch.Tensor, int, float, bool, str, type(None), Enum)
_VALUES = (*_TRACED[1:], *TOLD_BY_VALUE, tuple)


def uncompiled(model: nn.Module) -> nn.Module:
    """The model below ``torch.compile``, which shares all with it; any other as it is."""
    return cast("nn.Module", model._orig_mod) if isinstance(model, OptimizedModule) else model  # noqa: SLF001 - no getter


def check_kind(model: nn.Module) -> None:
    """Refuse what wraps a model, or is none that Python runs.

    Raises:
        ValueError: naming the remedy.
    """
    name = type(model).__name__
    if name in _WRAPPERS:
        raise ValueError(
            f"the model is wrapped in {name}, which has a backward pass of its own: apply the schedule to the model "
            f"inside, then wrap the result, {name}(explorer.apply(model, ...))"
        )
    if "forward" in vars(model):
        raise ValueError(
            f"forward of this {name} was replaced on the object (accelerate does so when it prepares a model), and "
            "would run in the schedule's place: apply the schedule to the model as it was before, then prepare the "
            "result"
        )
    if getattr(model, "_compiled_call_impl", None) is not None:
        raise ValueError(
            f"this {name} was compiled in place by model.compile(), which would run in the schedule's place: apply the "
            "schedule to a model that is not; explorer.compiled makes schedules that torch.compile runs"
        )
    scripted = next((path for path, x in model.named_modules() if isinstance(x, torch.jit.ScriptModule)), None)
    if scripted is not None:
        raise ValueError(
            f"{scripted or 'the model'} is a TorchScript module, whose operators cannot be captured: use the module "
            "that it was made from, and script again after training"
        )


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
        """The result, in which only scalars carry a gradient if there are any."""
        tensors, structure = take_apart(self.result(*args, **kwargs))
        return structure.build(with_scalar_gradients(tensors))

    def result(self, *args: Any, **kwargs: Any) -> Any:
        """``loss(model(inputs), target)``, or what the model returns."""
        if self.loss is not None:
            inputs, target = args
            model_args, model_kwargs = as_arguments(inputs)
            return self.loss(self.model(*model_args, **model_kwargs), target)
        return self.model(*args, **kwargs)


def with_scalar_gradients(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors of a result as it is trained on: beside scalars that carry a gradient, everything else is detached.

    So is a view that ``torch.no_grad()`` made: it says that it requires a gradient, and PyTorch gives it none.
    """
    tensors = [x.detach() if is_cut_off(x) else x for x in tensors]
    if not any(x.ndim == 0 and x.requires_grad for x in tensors):
        return tensors
    return [x if x.ndim == 0 else x.detach() for x in tensors]


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

    def fits(self, value: Any) -> bool:
        """Has a leaf this layout?"""
        return (
            isinstance(value, torch.Tensor)
            and value.shape == self.shape
            and value.dtype is self.dtype
            and value.device == self.device
            and value.stride() == self.strides
        )


@dataclass(frozen=True)
class BatchLayout:
    """What a schedule expects of a batch; holds no tensor, so a sample batch is not kept alive.

    Attributes:
        names: of the leaves.
        leaves: a ``TensorLayout`` for each tensor, the value itself for anything else.
        structure: of the pytree.
        keywords: where every argument is a leaf, the names of those that were given by keyword; None elsewhere.
    """

    names: tuple[str, ...]
    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec
    keywords: list[str] | None

    @classmethod
    def of(cls, batch: FlatBatch) -> BatchLayout:
        """The layout of a flattened batch."""
        args, kwargs = batch.structure.children()
        flat = all(x.is_leaf() for x in (*args.children(), *kwargs.children()))
        layouts = tuple(_layout(leaf) for leaf in batch.leaves)
        return cls(batch.names, layouts, batch.structure, list(kwargs.context or ()) if flat else None)

    @cached_property
    def inputs_together(self) -> UnionType | type | None:
        """What the first argument is where it holds several of the model's: a kind of container; None: it is one."""
        positional = self.structure.children()[0].children()
        if not positional or positional[0].is_leaf():
            return None
        kind = positional[0].type
        if issubclass(kind, tuple | list):
            return tuple | list
        return Mapping if issubclass(kind, Mapping) else None

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and dtype of the tensors among the leaves."""
        return tuple(
            TensorSpec(name, leaf.shape, dtype_name(leaf.dtype))
            for name, leaf in zip(self.names, self.leaves, strict=True)
            if isinstance(leaf, TensorLayout)
        )

    def leaves_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The leaves of a call's arguments; keys of dicts, and keyword arguments, may be in another order.

        Raises:
            ValueError: a batch that the schedule was not made for; names the first difference.
        """
        leaves = [*args, *kwargs.values()]
        if not self._is_flat(args, kwargs, leaves):
            leaves, structure = pytree.tree_flatten((args, kwargs))
            if structure != self.structure:
                leaves = self._arranged(flatten(args, kwargs))
        self._check(leaves)
        return leaves

    def fits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Is a call's batch such a one?"""
        try:
            self.leaves_of(args, kwargs)
        except ValueError:
            return False
        return True

    def _is_flat(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> bool:
        """Are the leaves the arguments themselves, as in most batches? That is quicker to see than a pytree is."""
        if self.keywords is None or len(args) != len(self.leaves) - len(self.keywords) or [*kwargs] != self.keywords:
            return False
        return all(type(x) is torch.Tensor for x in leaves)

    def _arranged(self, batch: FlatBatch) -> list[Any]:
        """The leaves in the order of the sample's."""
        args, kwargs = pytree.tree_unflatten(list(batch.leaves), batch.structure)
        leaves, structure = pytree.tree_flatten(_in_order((args, kwargs), self.structure))
        if structure != self.structure:
            given, wanted = (", ".join(names) or "nothing" for names in (batch.names, self.names))
            how = ", in other containers" if given == wanted else ""
            raise ValueError(f"the batch is made of {given}; the schedule was made for {wanted}{how}")
        return leaves

    def _check(self, leaves: list[Any]) -> None:
        for name, expected, value in zip(self.names, self.leaves, leaves, strict=True):
            if isinstance(expected, TensorLayout) and expected.fits(value):
                continue
            given = _layout(value)
            if given is expected or _is_same(given, expected):
                continue
            if not isinstance(expected, TensorLayout) or not isinstance(given, TensorLayout):
                raise ValueError(f"{name} is {value!r}; the schedule was made for {expected!r}")
            for what in ("shape", "dtype", "device", "strides"):
                here, there = getattr(given, what), getattr(expected, what)
                if here != there:
                    advice = "; for a smaller last batch, use drop_last=True" if what == "shape" else ""
                    raise ValueError(f"{name} has {what} {here}; the schedule was made for {there}{advice}")


def _parts(leaf: Any) -> Iterable[Any]:
    if isinstance(leaf, slice):
        return leaf.start, leaf.stop, leaf.step
    return leaf if isinstance(leaf, frozenset) else ()


def _is_same(given: Any, planned: Any) -> bool:
    """Is a value the planned one, and of its kind? NaN is NaN, 1 is neither True nor 1.0; NumPy's 1 is 1.

    Exported files, whose text stands alone, have one of their own: ``exporting.planned.is_same``.
    """
    given, planned = (x.item() if isinstance(x, np.generic) else x for x in (given, planned))
    if type(given) is not type(planned):
        return False
    if isinstance(planned, frozenset):
        return {(type(x), x) for x in given} == {(type(x), x) for x in planned}
    if isinstance(planned, float | complex | slice | range):
        return repr(given) == repr(planned)
    return given == planned


def _in_order(value: Any, structure: pytree.TreeSpec) -> Any:
    children = structure.children()
    if type(value) is not structure.type or len(value) != len(children):
        return value
    if isinstance(value, dict):
        if set(structure.context) != value.keys():
            return value
        return {key: _in_order(value[key], x) for key, x in zip(structure.context, children, strict=True)}
    if type(value) in (tuple, list):
        return type(value)(_in_order(x, y) for x, y in zip(value, children, strict=True))
    return value


def _layout(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor):
        return leaf
    return TensorLayout(tuple(leaf.shape), leaf.dtype, leaf.device, leaf.stride())


def parameter_specs(model: nn.Module) -> tuple[TensorSpec, ...]:
    """Name, shape and dtype of each parameter."""
    return tuple(TensorSpec(name, tuple(x.shape), dtype_name(x.dtype)) for name, x in model.named_parameters())


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
            + ": several inputs go in a tuple of their own, ((first, second), target); or let the model compute its "
            "loss, and leave out loss="
        )
    return tuple(batch), {}


def flatten(args: tuple[Any, ...], kwargs: dict[str, Any]) -> FlatBatch:
    """Flatten the arguments of a call.

    Raises:
        ValueError: something in it is neither a tensor nor a value that can be compared with that of another batch.
    """
    pairs, structure = pytree.tree_flatten_with_path((args, kwargs))
    names = tuple(_path_name(path) for path, _ in pairs)
    for name, (_, leaf) in zip(names, pairs, strict=True):
        _check_leaf(name, leaf)
    return FlatBatch(tuple(leaf for _, leaf in pairs), names, structure)


def _check_leaf(name: str, leaf: Any) -> None:
    """Raises ValueError for what is neither a tensor nor a value that can be compared."""
    if hasattr(leaf, "__dict__") and not isinstance(leaf, torch.Tensor) and tensors_of_result(leaf):
        raise ValueError(
            f"{name} is a {type(leaf).__name__} with tensors in it, which cannot be told apart there: pass them in "
            "a tuple or dict, or make the class known: torch.export.register_dataclass, or "
            "torch.utils._pytree.register_pytree_node"
        )
    if isinstance(leaf, torch.Generator):
        raise ValueError(
            f"{name} is a random generator of its own, and a schedule repeats what PyTorch's draws "
            "(torch.manual_seed): leave it out, or draw before and give the numbers as a tensor"
        )
    if not isinstance(leaf, (*_TRACED, *TOLD_BY_VALUE)) or not all(isinstance(x, _VALUES) for x in _parts(leaf)):
        raise ValueError(
            f"{name} is a {type(leaf).__qualname__}, which is neither a tensor nor a value that would tell that a "
            "later batch is another one: give what the model reads of it (numbers, strings, in tuples, lists and "
            "dicts; a frozenset for a set), or keep it at the model"
        )


def _path_name(path: tuple[Any, ...]) -> str:
    """Path of a leaf below (args, kwargs) as a person would write it: ``batch[0]``, ``labels``."""
    section, *rest = path
    if section.idx == 1:
        name, *rest = rest
        return str(name.key) + pytree.keystr(tuple(rest))
    return "batch" + pytree.keystr(tuple(rest))
