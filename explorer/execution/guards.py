"""What a captured step depends on, checked at every call: modes, attributes, hooks and modules of the model.

A snapshot belongs to one module object. While no dict of attributes or submodules was written to, a check compares one
number for each of them; after any write it compares what they hold, two tuples for each submodule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from explorer.capture.mentions import is_of_a_library, mentioned_by
from explorer.capture.refusing import is_traced
from explorer.torch_arguments import SHARDED, gathers
from explorer.torch_private import dict_versions

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = frozenset(vars(nn.Module())) - {"training"}
_AGAIN = "profile, solve and apply again, with the model as it is now"
_CONTAINERS = (list, dict, set, deque)
_DEPTH = 4
_READ_OR_RUN = (bool, int, float, complex, str, FunctionType, MethodType)
# Hugging Face's, and set by its Trainer: whether keys and values are returned too. A step returns what was captured.
_RETURNED_ONLY = frozenset({"use_cache"})
# Hugging Face's, and set where a checkpoint is saved: what class and parameters are called in its file.
_SAVED_ONLY = frozenset({"architectures", "dtype"})


class ModelChangedError(ValueError):
    """The model is not what its schedule was made for; names what changed and the remedy."""


class Versions:
    """Were any of these dicts written to since they were noted?"""

    def __init__(self, dicts: Iterable[Mapping[Any, Any]]) -> None:
        """Not noted yet, so not the same."""
        self._dicts = list({id(x): x for x in dicts}.values())
        self._noted: list[int] | None = None

    def same(self) -> bool:
        """No: something may be another."""
        return self._noted is not None and dict_versions(self._dicts) == self._noted

    def note(self) -> None:
        """From now on; to be called before what they hold is looked at."""
        self._noted = dict_versions(self._dicts)


@dataclass(frozen=True)
class Watched:
    """Attributes of one object, and what they were.

    Attributes:
        path: of the module, empty for the model itself.
        values: where the attributes are.
        read: gets all of them at once.
        names: theirs, in that order.
        expected: what ``read`` got; containers as copies.
    """

    path: str
    values: Mapping[Any, Any]
    read: Callable[[Mapping[Any, Any]], Any]
    names: tuple[Any, ...]
    expected: tuple[Any, ...]

    @classmethod
    def of(cls, path: str, values: Mapping[Any, Any], names: list[Any]) -> Watched:
        """Take note of what these attributes are."""
        # The first name twice, so that one name makes a tuple too: in tuples, one object is equal to itself.
        read = itemgetter(names[0], *names)
        kept = tuple(map(_snapshot, read(values)))
        return cls(path, values, read, tuple(names), kept)

    @property
    def has_containers(self) -> bool:
        """Can what is watched change without a write to the attributes?"""
        return any(isinstance(x, _CONTAINERS) for x in self.expected)

    def holds(self) -> bool:
        """Are they still?"""
        try:
            return bool(self.read(self.values) == self.expected)
        except (KeyError, RuntimeError, ValueError, TypeError):
            return False  # gone, or a tensor or array in the place of another

    def change(self) -> str:
        """In words, the first attribute that is another."""
        for name, before in zip(self.names, self.expected[1:], strict=True):
            now = self.values.get(name)
            if not _equal(before, now):
                return _told(self.path, name, before, now)
        return f"{self.path or 'the model'} changed"


def _snapshot(value: Any, *, depth: int = _DEPTH) -> Any:
    """The value; of containers a copy, with copies of containers in them."""
    if depth and type(value) is dict:
        return {key: _snapshot(x, depth=depth - 1) for key, x in value.items()}
    if depth and type(value) is list:
        return [_snapshot(x, depth=depth - 1) for x in value]
    return value.copy() if isinstance(value, _CONTAINERS) else value


def _equal(before: Any, now: Any) -> bool:
    if before is now:
        return True
    try:
        return bool(before == now)
    except (RuntimeError, ValueError, TypeError):
        return False


def _told(path: str, name: str, before: Any, now: Any) -> str:
    if name == "training":
        modes = ("training", "evaluation") if before else ("evaluation", "training")
        call = f"{path}.train({before})" if path else f"train({before})"
        was = f"{path or 'the model'} was captured in {modes[0]} mode and is in {modes[1]} mode now"
        return f"{was}: call {call}, or {_AGAIN}"
    full = f"{path} {name!r}" if path.startswith("in ") else f"{path}.{name}" if path else name
    if isinstance(now, torch.Tensor | nn.Module) or isinstance(before, torch.Tensor | nn.Module):
        return f"{full} is another {type(now).__name__} than the one that was captured: put it back, or {_AGAIN}"
    return f"{full} is {now!r}, and was {before!r} when the step was captured: put it back, or {_AGAIN}"


class ModelGuards:
    """A snapshot of what the captured step reads of one model besides the values of its tensors."""

    def __init__(self, model: nn.Module, *, with_own_hooks: bool) -> None:
        """Take the snapshot.

        Args:
            model: as it was captured.
            with_own_hooks: hooks of the model itself count too: around a step that has the loss in it they would see
                other arguments and results than they were made for.
        """
        modules = dict(model.named_modules())
        self._watched = [x for path, module in modules.items() for x in _watched(path, module)]
        self._watched += _of_settings(modules)
        self._children = [(path, module._modules, list(module._modules.values())) for path, module in modules.items()]  # noqa: SLF001
        self._absent = [(path, vars(x), _absent_names(path, x)) for path, x in modules.items()]
        self._own_pre_hooks = model._forward_pre_hooks  # noqa: SLF001 - the module itself must not be kept alive
        self._no_hooks: list[dict[Any, Any]] = []
        self._hooks: list[tuple[str, dict[Any, Any], dict[Any, Any]]] = []
        for path, module in modules.items():
            # Otherwise the model's own run around the step, as they always do.
            for name in _HOOKS if path or with_own_hooks else ():
                found = getattr(module, name)
                if found:
                    self._hooks.append((path, found, dict(found)))
                else:
                    self._no_hooks.append(found)
        self._of_hooks = {id(getattr(module, name)): path for path, module in modules.items() for name in _HOOKS}
        self._containers = [x for x in self._watched if x.has_containers]
        self._versions = Versions(
            [*(x.values for x in self._watched), *(x for _, x, _ in self._children), *(x for _, x, _ in self._hooks)]
            + [x for _, x, _ in self._absent]
        )
        self._hook_number = -1

    def check(self) -> None:
        """Compare with what is now.

        Raises:
            ModelChangedError: something differs; names it.
        """
        # Every hook that is registered anywhere gets a number of its own.
        if self._versions.same() and self._hook_number == RemovableHandle.next_id:
            self._compare(self._containers)
            return
        hook_number = RemovableHandle.next_id
        self._versions.note()
        self._hook_number = -1  # until all has been compared
        self._compare(self._watched)
        self._compare_modules()
        if gathers(self._own_pre_hooks):
            raise ModelChangedError(SHARDED)
        self._hook_number = hook_number

    def _compare(self, some: list[Watched]) -> None:
        for watched in some:
            if not watched.holds():
                raise ModelChangedError(watched.change())

    def _compare_modules(self) -> None:
        """Submodules and hooks, and attributes that were not there."""
        for path, attributes, absent in self._absent:
            new = [x for x in absent & attributes.keys() if x == "forward" or isinstance(attributes[x], _READ_OR_RUN)]
            if new:
                full = f"{path}.{new[0]}" if path else new[0]
                raise ModelChangedError(
                    f"{full} was set on the object since the step was captured, and would not be looked at: take it "
                    f"away, or {_AGAIN}"
                )
        for path, modules, expected in self._children:
            if list(modules.values()) != expected:
                raise ModelChangedError(f"submodules of {path or 'the model'} were exchanged: {_AGAIN}")
        if (any(self._no_hooks) and self._new_hooks()) or any(now != before for _, now, before in self._hooks):
            raise ModelChangedError(self._changed_hook())

    def _new_hooks(self) -> list[dict[Any, Any]]:
        """Where there were no hooks and are some now, of those that a capture would not contain."""
        return [x for x in self._no_hooks if not all(is_traced(hook) for hook in x.values())]

    def _changed_hook(self) -> str:
        found = next(iter(self._new_hooks()), None)
        path = self._of_hooks[id(found)] if found is not None else next(p for p, now, was in self._hooks if now != was)
        return (
            f"hooks of {path or 'the model'} changed since the step was captured. A schedule runs operators, not "
            "submodules, so hooks of submodules do not run, and those of the model itself only where the loss is not "
            "part of the step: remove them, or register them on parameters"
        )


def _watched(path: str, module: nn.Module) -> Iterator[Watched]:
    # Tensors are looked up anew in every step.
    names = [name for name, x in vars(module).items() if name not in _PLAIN and not isinstance(x, torch.Tensor)]
    if names:
        yield Watched.of(path, vars(module), names)
    for registered in (module._parameters, module._buffers):  # noqa: SLF001
        if missing := [name for name, x in registered.items() if x is None]:
            yield Watched.of(path, registered, missing)


def _absent_names(path: str, module: nn.Module) -> frozenset[str]:
    """Attributes that the module has not, and its methods would look at, or run."""
    kind = getattr(type(module), "model_class", type(module))
    # What wraps the forward method of the whole model, as accelerate does, runs the schedule inside.
    own = {"forward"} if path else set[str]()
    return (mentioned_by(kind) - {"forward"} | own) - vars(module).keys()


def _of_settings(modules: Mapping[str, nn.Module]) -> Iterator[Watched]:
    """What objects such as a ``config`` hold, each object once."""
    seen: set[int] = set()
    for path, module in modules.items():
        for name, value in vars(module).items():
            if id(value) in seen or name in _PLAIN or not is_settings(value):
                continue
            seen.add(id(value))
            yield from _of_object(f"{path}.{name}" if path else name, value, depth=_DEPTH)


def _of_object(path: str, value: Any, *, depth: int) -> Iterator[Watched]:
    """Numbers, texts and containers of them, and what is in objects below."""
    left_out = _set_by_hugging_face(value)
    settings = {x: y for x, y in vars(value).items() if x not in left_out}
    own = not hasattr(value, "save_pretrained")
    kinds = (bool, int, float, str, type(None), *((list, dict, set) if own else ()))
    names = [x for x, y in settings.items() if isinstance(y, kinds)]
    if names:
        yield Watched.of(path, vars(value), names)
    if depth and own:
        for x, y in settings.items():
            if is_settings(y) and not is_of_a_library(type(y)):
                yield from _of_object(f"{path}.{x}", y, depth=depth - 1)


def _set_by_hugging_face(settings: Any) -> frozenset[str]:
    """What may become another without a change to the step."""
    if not hasattr(settings, "save_pretrained"):
        return _RETURNED_ONLY
    # Not given, it is taken from the labels by the first pass that runs the model itself, such as an evaluation.
    derived = {"problem_type"} if getattr(settings, "problem_type", "") is None else set()
    return _RETURNED_ONLY | _SAVED_ONLY | derived


def is_settings(value: Any) -> bool:
    """Is it an object with attributes, no tensor, module, class or function?"""
    plain = isinstance(value, torch.Tensor | nn.Module | type) or callable(value)
    return not plain and isinstance(getattr(value, "__dict__", None), dict)
