"""One model bound to a captured step: where its tensors are, and what must be as it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import nn

from explorer.capture import Capture
from explorer.capture.batch import TensorLayout
from explorer.capture.traced import GraphInput, Source
from explorer.execution.buffer import StepBuffer
from explorer.execution.company import check_company
from explorer.execution.guards import ModelChangedError, ModelGuards, Versions
from explorer.execution.surroundings import watched_surroundings
from explorer.execution.used_gradients import gradient_of
from explorer.torch_arguments import SHARDED, is_part
from explorer.torch_private import storage_key
from explorer.units import format_bytes

_TWICE = (
    "the batch holds one tensor twice that requires a gradient, whose parts are added up in another order than in "
    "eager mode: it may differ in the last bits"
)
_SHARED_BATCH = (
    "tensors of this batch share memory with one another, or with the model, and the step changes some in place; "
    "those of the sample batch did not: give copies (.clone()), or change nothing in place"
)
_SHARED_BUFFERS = (
    "a buffer that the step changes in place shares memory with other tensors than when the step was captured: give it "
    "memory of its own, or profile, solve and apply again, with the model as it is now"
)
_CALLS_WATCHED = 16  # for gradients of an earlier step in every parameter


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
        strides: likewise, of dimensions with several elements.
        device: it is on.
        trained: it requires a gradient, or may.
        tensor: it was.
    """

    index: int
    path: str
    holder: dict[str, Any]
    name: str
    dtype: torch.dtype
    shape: torch.Size
    strides: tuple[int, ...]
    device: torch.device
    trained: bool
    tensor: torch.Tensor

    def tensor_now(self) -> torch.Tensor:
        """What is there.

        Raises:
            ModelChangedError: nothing, or another kind of tensor.
        """
        found = self.holder.get(self.name)
        # The shape of one object changes only with its data, by hand.
        same = found is self.tensor or getattr(found, "shape", None) == self.shape
        if found is None or not same or found.dtype is not self.dtype:
            raise ModelChangedError(_other_tensor(self, found))
        if is_part(found):
            raise ModelChangedError(SHARDED)
        if found.device != self.device or _strides(found) != self.strides:
            raise ModelChangedError(_elsewhere(self, found))
        return found


class Binding:
    """Finds the values of the graph inputs in a model, and checks at every call that it is what was captured.

    Attributes:
        new: no step of a training has begun yet.
        updating: how many see to updates within the backward pass: one, or none.
        buffer: what steps run in; None: in PyTorch's memory as it comes.
        wrong: how the model was not as it was captured when it was copied, so that the copy cannot be compared.
    """

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
        leaves = zip(capture.batch.leaves, capture.batch_gradients, strict=True)
        tensors = [(number, trained) for number, (x, trained) in enumerate(leaves) if isinstance(x, TensorLayout)]
        self._constant = [number for number, trained in tensors if not trained]
        self._trained = [number for number, trained in tensors if trained]
        self._places = [
            _place(model, capture.loss, index, x)
            for index, x in enumerate(capture.traced.inputs)
            if x.source in (Source.PARAMETER, Source.BUFFER)
        ]
        changed = set(capture.traced.changed)
        inputs = capture.traced.inputs
        self._written_places = [number for number, x in enumerate(self._places) if inputs[x.index] in changed]
        self._written_leaves = [leaf for index, leaf in self._leaves if inputs[index] in changed]
        self._tensor_leaves = [leaf for _, leaf in self._leaves]
        self._written: set[int] = set()
        self._sharing = _sharing([x.tensor for x in self._places], self._written_places)
        self._frozen = [number for number, x in enumerate(self._places) if not x.trained]
        asked = capture.traced.asked
        self._asked = [n for n, x in enumerate(self._places) if x.trained and inputs[x.index].name in asked]
        self._dtypes = [x.dtype for x in self._places]
        self._strides = [x.tensor.stride() for x in self._places]
        self._tied = _tied(model)
        ties = (x for first, _, second, _, _ in self._tied for x in (first, second))
        self._holders = Versions([*(x.holder for x in self._places), *ties])
        self._tensors: list[torch.Tensor] = []
        self._calls = 0
        self._iteration = capture.graph.iteration
        self._model = ref(model)
        self.new = True
        self.updating = 0
        self.buffer: StepBuffer | None = None
        self.wrong = ""
        self._told = capture.graph.iteration.accumulate  # the plan knows of gradients that are there
        self._twice_told = False

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The value of each graph input in this step; None for tangents, which come later.

        Raises:
            ModelChangedError: model, batch or PyTorch's settings are not what was captured; says what, and the remedy.
        """
        leaves = self._capture.batch.leaves_of(args, kwargs)
        for number in self._constant:
            if leaves[number].requires_grad:
                raise ModelChangedError(_new_gradient(self._capture.batch.names[number]))
        if len({id(leaves[x]) for x in self._trained}) < len(self._trained) and not self._twice_told:
            self._twice_told = True
            warnings.warn(_TWICE, stacklevel=4)
        self._check()
        if self._iteration.within and not self.updating:
            raise ModelChangedError(
                f"this schedule has parameters updated within the backward pass, by {self._iteration.optimizer}, and "
                "nothing here does that: explorer.update_within(module, optimizer) first"
            )
        values: list[Any] = [None] * self._size
        for place, tensor in zip(self._places, self._current(), strict=True):
            values[place.index] = tensor
        for index, leaf in self._leaves:
            values[index] = leaves[leaf]
        self._check_memory(leaves)
        if not self._told:
            self._notice_gradients()
        if self.new:
            model = self._model()
            assert model is not None, "it is being called"
            check_company(model, self._iteration)
            self.new = False
        return values

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """While open, a step is nobody's training: what else works on the parameters does not matter."""
        new, self.new = self.new, False
        self.updating += 1
        try:
            yield
        finally:
            self.new = new
            self.updating -= 1

    def changed(self) -> str:
        """How the model differs from what was captured, in words; empty where it does not."""
        try:
            self._check()
            self._current()
        except ModelChangedError as error:
            return str(error)
        return ""

    def _check(self) -> None:
        if self.wrong:
            raise ModelChangedError(f"when this was copied, the model was not as it was captured: {self.wrong}")
        for guards in self._guards:
            guards.check()
        for watched in self._surroundings:
            if not watched.holds():
                raise ModelChangedError(watched.change())
        if difference := self._capture.ambient.difference():
            raise ModelChangedError(difference)

    def _current(self) -> list[torch.Tensor]:
        """The tensors at the places now."""
        if not self._tensors or not self._holders.same():
            self._tensors = []  # until all are found
            self._holders.note()
            self._check_ties()
            self._tensors = [place.tensor_now() for place in self._places]
            self._written = {storage_key(self._tensors[x]) for x in self._written_places}
            if _sharing(self._tensors, self._written_places) != self._sharing:
                self._tensors = []
                raise ModelChangedError(_SHARED_BUFFERS)
        # One tensor may change all the same: ``half()``, ``to(memory_format=…)``, ``requires_grad_()`` leave it there.
        strides = [x.stride() for x in self._tensors]
        if strides != self._strides or [x.dtype for x in self._tensors] != self._dtypes:
            for place in self._places:
                place.tensor_now()
            self._strides = strides
        for number in self._frozen:
            if self._tensors[number].requires_grad:
                raise ModelChangedError(
                    f"{self._places[number].path} requires a gradient now, and did not when the step was captured, so "
                    "it would get none: profile, solve and apply again, with the model as it is now"
                )
        for number in self._asked:
            if not self._tensors[number].requires_grad:
                raise ModelChangedError(
                    f"{self._places[number].path} needs no gradient now, and did when the step was captured, and the "
                    "forward pass asks for that: profile, solve and apply again, with the model as it is now"
                )
        return self._tensors

    def _check_memory(self, leaves: Sequence[Any]) -> None:
        """Nothing that the step changes in place may be something else, too, that was not when it was captured."""
        if not (self._written or self._written_leaves):
            return
        keys = [storage_key(leaves[x]) for x in self._tensor_leaves if leaves[x].numel()]
        if self._written.intersection(keys):
            raise ModelChangedError(_SHARED_BATCH)
        if self._written_leaves:
            keys += {storage_key(x) for x in self._tensors}
            if any(keys.count(storage_key(leaves[x])) > 1 for x in self._written_leaves if leaves[x].numel()):
                raise ModelChangedError(_SHARED_BATCH)

    def _check_ties(self) -> None:
        for first, first_name, second, second_name, path in self._tied:
            if first.get(first_name) is not second.get(second_name):
                raise ModelChangedError(
                    f"{path} was tied to another parameter when the step was captured and is one of its own now: "
                    "tie it again, or profile, solve and apply again"
                )

    def _notice_gradients(self) -> None:
        """Say once that gradients of an earlier step take memory that the schedule does not know of.

        The first calls look at every parameter; later ones at one each, in turn.
        """
        self._calls += 1
        if self._calls > _CALLS_WATCHED and self._places:
            place = self._calls % len(self._places)
            if not self._places[place].trained or _gradient(self._tensors[place]) is None:
                return
        trained = [x for place, x in zip(self._places, self._tensors, strict=True) if place.trained]
        gradients = [_gradient(x) for x in trained]
        extra_bytes = sum(x.untyped_storage().nbytes() for x in gradients if x is not None)
        if extra_bytes:
            self._told = True
            warnings.warn(
                f"this step begins with gradients in memory: it peaks up to {format_bytes(extra_bytes)} above what was "
                "predicted, which is for steps that begin without. If they are accumulated on purpose, plan for it: "
                "profile(…, accumulate=True); else call optimizer.zero_grad(set_to_none=True) after each step",
                stacklevel=5,
            )


def _sharing(tensors: Sequence[torch.Tensor], written: Sequence[int]) -> frozenset[tuple[int, int]]:
    """Which of the tensors that are written lie in the memory of which others."""
    if not written:
        return frozenset()
    homes: dict[int, list[int]] = {}
    for number, x in enumerate(tensors):
        if x.numel():
            homes.setdefault(storage_key(x), []).append(number)
    own = set(written)
    return frozenset((x, y) for found in homes.values() if len(found) > 1 for x in found if x in own for y in found)


def _gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    return gradient_of(tensor) if tensor.is_leaf else None


def _new_gradient(name: str) -> str:
    return (
        f"{name} requires a gradient here, and did not in the sample batch, so it would get none: profile, "
        f"solve and apply with a sample batch whose {name} requires one (.requires_grad_()), or detach it"
    )


def _place(model: nn.Module, loss: Any, index: int, graph_input: GraphInput) -> _Place:
    section, path = graph_input.name.split(".", 1)
    module, _, name = path.rpartition(".")
    found = (model if section == "model" else loss).get_submodule(module)
    holder: dict[str, Any] = vars(found)  # of tensors that are plain attributes
    for registered in (found._parameters, found._buffers):  # noqa: SLF001
        holder = registered if name in registered else holder
    tensor = holder[name]
    layout = (tensor.dtype, tensor.shape, _strides(tensor), tensor.device)
    return _Place(index, path, holder, name, *layout, tensor.requires_grad, tensor)


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Of what is one long the stride is anything."""
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)


def _elsewhere(place: _Place, found: torch.Tensor) -> str:
    if found.device != place.device:
        return (
            f"{place.path} is on {found.device} now, and was on {place.device} when the step was captured: move the "
            "model back, or profile, solve and apply again where it is"
        )
    return (
        f"{place.path} lies in another memory format now, with strides {found.stride()}, than when the step was "
        "captured, and ways to run operators depend on that: give the model its format before apply, and load states "
        "with load_state_dict(assign=False)"
    )


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
