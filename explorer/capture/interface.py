"""A step as it is traced: tensors in, tensors out, and nothing left behind in the objects that it touches."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from explorer.capture.batch import TrainingStep, with_scalar_gradients
from explorer.capture.chance import own_chance_only
from explorer.capture.explaining import called_from_outside, foreign, line_of
from explorer.capture.places import in_places
from explorer.capture.refusing import is_traced
from explorer.capture.results import ResultStructure, take_apart, tensors_of_result
from explorer.capture.state import Change, ObjectState
from explorer.torch_dispatch import parameters_cast_once
from explorer.torch_private import is_cut_off, is_of_a_transform, own_function, storage_key

_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
_OVERWRITING = {"__setitem__", *(f"__i{x}__" for x in _OPERATORS)}
_HARMLESS = {"requires_grad_", "share_memory_", "rename_"}
_RESHAPING = {f"{x}_" for x in ("detach", "unsqueeze", "squeeze", "t", "transpose", "swapaxes", "swapdims")}


@dataclass(frozen=True)
class Stored:
    """A tensor that a step assigns to an attribute, or keeps in a container.

    Attributes:
        place: as a person would write it.
        buffer: the name of the buffer (or plain tensor) in the step that was there before; None if there was none.
        is_plain: it is an attribute, not registered as a buffer.
        fits: the new tensor can take the place of the old one: same shape and dtype, no gradient that is wanted.
    """

    place: str
    buffer: str | None
    is_plain: bool
    fits: bool

    def refusal(self) -> ValueError:
        """What to tell of a tensor that the next step, or the user, would miss."""
        if self.buffer is None:
            return ValueError(
                f"the model's forward pass stores a tensor as {self.place!r}, which a scheduled step does not: return "
                "it instead; or, if the next step reads it, register a buffer for it in __init__"
            )
        return ValueError(
            f"the model's forward pass assigns to {self.place!r} a tensor that carries a gradient, or is of another "
            "shape or dtype than the one there, which a scheduled step does not: assign tensor.detach() of the same "
            "shape and dtype, or return it instead"
        )


class Interface(nn.Module):
    """Around a step: returns the tensors of its result, and remembers how the result is made of them.

    What the step assigns to objects is undone, so that tracing changes nothing, and remembered.

    Attributes:
        hidden: leaves of the batch, by their numbers, that tracing does not know: in their place it has None.
        structure: after a trace, how the result is made of its tensors.
        refused: for each of those, whether it lost the gradient that it has in eager mode, because only scalars carry
            one where there are any.
        differentiable: likewise, whether it carries a gradient.
        given: likewise, whether it is a tensor of the batch or the model itself, and no view of one.
        stored: what the step assigns; those tensors come after the result's.
        sets_chance_back: whether it sets the state of PyTorch's random generator, as ``torch.random.fork_rng`` does.
        enters_autocast: whether it enters autocast where that is not active around it.
        asked: the parameters that it asks whether they need a gradient.
    """

    def __init__(self, step: TrainingStep, plain: frozenset[str]) -> None:
        """Wrap without changing the step's mode; ``plain`` names the buffers that are plain attributes."""
        super().__init__()
        self.step = step
        self.plain = plain
        self.hidden: dict[int, Any] = {}
        self.structure: ResultStructure | None = None
        self.refused: tuple[bool, ...] = ()
        self.differentiable: tuple[bool, ...] = ()
        self.given: tuple[bool, ...] = ()
        self.stored: tuple[Stored, ...] = ()
        self.sets_chance_back = False
        self.enters_autocast = False
        self.asked = frozenset[str]()
        self.training = step.training
        self.casts_once = torch.is_autocast_cache_enabled()
        enabled = [x for x in ("cpu", "cuda") if torch.is_autocast_enabled(x)]
        self.casts = tuple((x, torch.get_autocast_dtype(x)) for x in enabled)

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The tensors of the step's result, each once; then those that it stores.

        Raises:
            ValueError: the step changes what a scheduled step would not.
        """
        args, kwargs = self._whole(args, kwargs)
        state = ObjectState(self.step, "step")
        own = {id(x): name for name, x in (*self.step.named_parameters(), *self.step.named_buffers())}
        try:
            known = self.step.parameters()
            with (
                self._autocast(),
                own_chance_only() as noted,
                _OwnTensorsOnly(own) as mode,
                parameters_cast_once(known, autocast=mode.autocast),
            ):
                tensors, self.structure = take_apart(self.step.result(*args, **kwargs))
            changes = state.changes()
            self.sets_chance_back = bool(noted)
            self.asked = frozenset(mode.asked)
            self.enters_autocast = not mode.seen.issubset(x for x, _ in self.casts)
        finally:
            state.restore()
        for change in changes:
            _refuse_counting(change)
        found = [(x, value) for x in changes for value in tensors_of_result(x.after) if _is_new(x, value, own)]
        self.stored = tuple(self._stored(x, value, own.get(id(x.before))) for x, value in found)
        kept = with_scalar_gradients(tensors)
        known = {*own, *(id(x) for x in pytree.tree_leaves((args, kwargs)))}
        self.given = tuple(id(x) in known for x in tensors)
        for x, given in zip(kept, self.given, strict=True):
            _refuse_history(x, given=given)
        self.differentiable = tuple(x.requires_grad for x in kept)
        self.refused = tuple(
            a.requires_grad and not (b.requires_grad or is_cut_off(a)) for a, b in zip(tensors, kept, strict=True)
        )
        # Two buffers may take each other's value: what shares memory with the model is copied before any is changed.
        states = {storage_key(x) for x in (*self.step.parameters(), *self.step.buffers())}
        with torch.no_grad():
            return *kept, *(x.clone() if storage_key(x) in states else x.detach() for _, x in found)

    def named_parameters(
        self,
        prefix: str = "",
        recurse: bool = True,  # noqa: FBT001, FBT002 - as PyTorch has it
        remove_duplicate: bool = True,  # noqa: FBT001, FBT002 - likewise
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """As of any module; with all duplicates, those of a module that is registered several times once.

        Tracing takes all, puts tensors of its own in their places, one after the other, and what it found there back
        in the same order: a place that it knew by two names would keep a tensor of the trace.
        """
        if remove_duplicate or not recurse:
            return super().named_parameters(prefix, recurse, remove_duplicate)
        return in_places(self, "_parameters", prefix)

    def named_buffers(
        self,
        prefix: str = "",
        recurse: bool = True,  # noqa: FBT001, FBT002 - as PyTorch has it
        remove_duplicate: bool = True,  # noqa: FBT001, FBT002 - likewise
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Likewise."""
        if remove_duplicate or not recurse:
            return super().named_buffers(prefix, recurse, remove_duplicate)
        return in_places(self, "_buffers", prefix)

    def _whole(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with what was hidden from tracing."""
        if not self.hidden:
            return args, kwargs
        leaves, structure = pytree.tree_flatten((args, kwargs))
        return pytree.tree_unflatten([self.hidden.get(n, x) for n, x in enumerate(leaves)], structure)

    @contextlib.contextmanager
    def _autocast(self) -> Iterator[None]:
        """The forward pass is cast as it was asked for when this was made."""
        cached = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(self.casts_once)  # tracing takes it away
        try:
            with contextlib.ExitStack() as stack:
                for device, dtype in self.casts:
                    stack.enter_context(torch.autocast(device, dtype))
                yield
        finally:
            torch.set_autocast_cache_enabled(cached)

    def without_autocast(self) -> contextlib.ExitStack:
        """For the trace around it: a backward pass is cast no more, as it belongs outside of autocast's context."""
        stack = contextlib.ExitStack()
        for device, _ in self.casts:
            stack.enter_context(torch.autocast(device, enabled=False))
        return stack

    def _stored(self, change: Change, value: torch.Tensor, name: str | None) -> Stored:
        if name is None or value is not change.after:
            return Stored(change.place, None, is_plain=True, fits=False)
        before, is_plain = change.before, name in self.plain
        fits = before.shape == value.shape and before.dtype == value.dtype
        return Stored(change.place, name, is_plain, fits and not before.requires_grad and not value.requires_grad)


def _is_new(change: Change, value: torch.Tensor, own: dict[int, str]) -> bool:
    """Is it more than another reference to a parameter or buffer?"""
    return id(value) not in own or (value is change.after and id(change.before) in own)


def _refuse_history(result: torch.Tensor, *, given: bool) -> None:
    """Refuse a result whose gradient would go elsewhere in eager mode than in a scheduled step."""
    if not result.requires_grad or given:
        return
    if result.grad_fn is None:
        raise ValueError(
            f"the model returns a tensor {tuple(result.shape)} that it makes and lets require a gradient, which "
            "nothing beyond it gets: register it as nn.Parameter, or call requires_grad_() on what comes back"
        )
    if name := own_function(result):
        raise ValueError(
            f"the model returns a view that {name.removesuffix('Backward')}, an autograd.Function, made, of which a "
            "scheduled step knows only whose memory it is: return a copy of it (.clone())"
        )


def _refuse_counting(change: Change) -> None:
    before, after = change.before, change.after
    counts = isinstance(before, int | float) and not isinstance(before, bool) and isinstance(after, int | float)
    grows = change.name.startswith("[") and before is None and not tensors_of_result(after)
    if change.owner.endswith("_hooks") and is_traced(after):
        return  # some libraries register theirs in the first step
    if counts or grows:
        text = f"appends to {change.owner!r}" if grows else f"changes {change.place!r} from {before} to {after}"
        raise ValueError(
            f"the model's forward pass {text}, which a scheduled step does not: keep it in a buffer (register_buffer "
            "with a tensor), or change it outside of forward"
        )


class _OwnTensorsOnly(TorchFunctionMode):
    """Refuses what a graph cannot tell of tensors that belong neither to the model nor to the batch.

    Attributes:
        autocast: the types of devices that autocast was enabled for when a function was called last.
        seen: those that it was enabled for when any was called.
        asked: the parameters that the model's code asks whether they need a gradient.
    """

    def __init__(self, own: dict[int, str]) -> None:
        """``own`` has the names of what belongs to the step, by identity."""
        super().__init__()
        self._own = own
        self.asked = set[str]()
        self.autocast: set[str] = set()
        self.seen: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.autocast.clear()
        self.autocast.update(x for x in ("cpu", "cuda") if torch.is_autocast_enabled(x))
        self.seen |= self.autocast
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__") and id(args[0]) in self._own:
            self._note_question(func.__self__, self._own[id(args[0])])
        changed = kwargs.get("out")
        if changed is None and args and _overwrites(name):
            changed = args[0]
        if kwargs.get("generator") is torch.default_generator:
            kwargs = {x: y for x, y in kwargs.items() if x != "generator"}
        if kwargs.get("generator") is not None:
            raise ValueError(
                f"{name} draws from a torch.Generator of its own, and a schedule repeats what PyTorch's draws "
                "(torch.manual_seed): leave out generator=, or draw before and give the numbers as an argument"
            )
        for tensor in pytree.tree_leaves(changed):
            if _foreign(tensor):
                _check_transform(tensor)
                raise ValueError(
                    f"{name} changes in place a tensor {tuple(tensor.shape)} that is neither a parameter nor a buffer "
                    "of the model: register it with register_buffer"
                )
            if name not in _RESHAPING and not _sets_a_part(name, args) and _overlaps(tensor):
                raise ValueError(
                    f"{name} changes in place a tensor {tuple(tensor.shape)} of which several elements share one "
                    "memory, as after expand or unfold, which a schedule cannot: change a copy (.clone())"
                )
        for tensor in pytree.tree_leaves((args, kwargs)):
            if _foreign(tensor) and tensor.requires_grad and torch.is_grad_enabled() and name != "__get__":
                _check_transform(tensor)
                raise ValueError(
                    f"{name} reads a tensor {tuple(tensor.shape)} that needs a gradient, but is not a parameter of the "
                    "model: register it as nn.Parameter, its module as a submodule (nn.ModuleList for a list), or "
                    "detach it"
                )
        return func(*args, **kwargs)

    def _note_question(self, attribute: Any, name: str) -> None:
        """A parameter's gradient, or whether it has one, may be another from step to step."""
        if attribute not in (torch.Tensor.requires_grad, torch.Tensor.grad) or not called_from_outside():
            return
        if attribute is torch.Tensor.requires_grad:
            self.asked.add(name)
            return
        line = line_of(foreign(traceback.extract_stack()))
        raise ValueError(
            f"the model's forward pass reads or sets {name.partition('.')[2]}.grad{line}, which is another, or none, "
            "in every step: keep what it needs of it in a buffer, or give it as an argument; set it outside of forward"
        )


def _check_transform(tensor: torch.Tensor) -> None:
    """Raises ValueError for what is no tensor of anybody's."""
    if is_of_a_transform(tensor):
        line = line_of(foreign(traceback.extract_stack()))
        raise ValueError(
            f"the step is within a transform of torch.func (grad, vmap, jvp, hessian …){line}, "
            "which is not captured: torch.autograd.grad(…, create_graph=True) is"
        )


def _overwrites(name: str) -> bool:
    return name in _OVERWRITING or (name.endswith("_") and not name.endswith("__") and name not in _HARMLESS)


def _sets_a_part(name: str, args: Any) -> bool:
    """Is it an assignment to plain indices? PyTorch itself refuses it where elements of that part share memory."""
    if name != "__setitem__":
        return False
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return all(x is None or x is ... or isinstance(x, int | slice) for x in index)


def _overlaps(tensor: Any) -> bool:
    """Does an element share its memory with another one? A trace adds up what is written to each of them."""
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or tensor.numel() < 2:
        return False
    reach = 1
    for stride, size in sorted((y, x) for x, y in zip(tensor.shape, tensor.stride(), strict=True) if x > 1):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


def _foreign(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor | FunctionalTensor)
