"""What a captured step depends on, checked at every call: modes, attributes, hooks and modules of the model.

A snapshot belongs to one module object. While no dict of attributes or submodules was written to, a check compares one
number for each of them; after any write it compares what they hold, two tuples for each submodule.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, MethodType, NoneType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from explorer.capture.mentions import is_of_a_library, mentioned_by
from explorer.capture.refusing import HOOKS, OF_ALL_MODULES, is_traced
from explorer.execution.watched import AGAIN, Watched, attributes
from explorer.torch_arguments import SHARDED, gathers
from explorer.torch_private import dict_versions

_PLAIN = frozenset(vars(nn.Module())) - {"training"}
_ALL_MODULES = "all modules"
_DEPTH = 4
_MOST_HELD = 256
"""Of a container in which objects are looked for."""
_NUMBERS_AND_TEXTS = bool | int | float | complex | str | NoneType
_HOLDING = list | tuple | dict | set | deque | np.ndarray
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
        self._no_hooks: list[dict[Any, Any]] = [x for x in OF_ALL_MODULES if not x]
        self._hooks: list[tuple[str, dict[Any, Any], dict[Any, Any]]] = [
            (_ALL_MODULES, x, dict(x)) for x in OF_ALL_MODULES if x
        ]
        for path, module in modules.items():
            # Otherwise the model's own run around the step, as they always do.
            for name in HOOKS if path or with_own_hooks else ():
                found = getattr(module, name)
                if found:
                    self._hooks.append((path, found, dict(found)))
                else:
                    self._no_hooks.append(found)
        self._of_hooks = {id(getattr(module, name)): path for path, module in modules.items() for name in HOOKS}
        self._of_hooks |= dict.fromkeys(map(id, OF_ALL_MODULES), _ALL_MODULES)
        self._containers = [x for x in self._watched if x.has_containers]
        self._versions = Versions(
            [x.values for x in self._watched if isinstance(x.values, dict)]
            + [x for _, x, _ in (*self._children, *self._hooks, *self._absent)]
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
        for path, held, absent in self._absent:
            new = [x for x in absent & held.keys() if x == "forward" or isinstance(held[x], _READ_OR_RUN)]
            if new:
                full = f"{path}.{new[0]}" if path else new[0]
                raise ModelChangedError(
                    f"{full} was set on the object since the step was captured, and would not be looked at: take it "
                    f"away, or {AGAIN}"
                )
        for path, modules, expected in self._children:
            if list(modules.values()) != expected:
                raise ModelChangedError(f"submodules of {path or 'the model'} were exchanged: {AGAIN}")
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
            full = f"{path}.{name}" if path else name
            if name in _PLAIN:
                continue
            if is_settings(value) and id(value) not in seen:
                seen.add(id(value))
                yield from _of_object(full, value, seen, depth=_DEPTH)
            yield from _of_container(full, value, seen, depth=_DEPTH)


def _of_object(path: str, value: Any, seen: set[int], *, depth: int) -> Iterator[Watched]:
    """Numbers, texts and containers of them, and what is in objects below."""
    left_out = set_by_hugging_face(value)
    held = attributes(value) or {}
    settings = {x: y for x, y in held.items() if x not in left_out}
    own = not _is_hugging_faces(value)
    kinds = _NUMBERS_AND_TEXTS | _HOLDING if own else _NUMBERS_AND_TEXTS
    names = [x for x, y in settings.items() if isinstance(y, kinds)]
    if names:
        yield Watched.of(path, held, names)
    for x, y in settings.items() if depth and own else ():
        yield from _within(f"{path}.{x}", y, seen, depth=depth - 1)


def _of_container(path: str, value: Any, seen: set[int], *, depth: int) -> Iterator[Watched]:
    """What objects in it hold; itself it is watched with what holds it."""
    if not depth or not isinstance(value, list | tuple | dict | deque) or len(value) > _MOST_HELD:
        return
    for key, x in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _within(f"{path}[{key!r}]", x, seen, depth=depth - 1)


def _within(path: str, value: Any, seen: set[int], *, depth: int) -> Iterator[Watched]:
    """What is in a value that an object or a container has, unless it is a library's."""
    if is_settings(value) and not is_of_a_library(type(value)) and id(value) not in seen:
        seen.add(id(value))
        yield from _of_object(path, value, seen, depth=depth)
    yield from _of_container(path, value, seen, depth=depth)


def set_by_hugging_face(settings: Any) -> frozenset[str]:
    """What may become another without a change to the step."""
    if not _is_hugging_faces(settings):
        return _RETURNED_ONLY
    # Not given, it is taken from the labels by the first pass that runs the model itself, such as an evaluation.
    derived = {"problem_type"} if getattr(settings, "problem_type", "") is None else set()
    return _RETURNED_ONLY | _SAVED_ONLY | derived


def _is_hugging_faces(settings: Any) -> bool:
    # Of the class: a dict that has its keys as attributes too answers for any name, or raises what it likes.
    return hasattr(type(settings), "save_pretrained")


def is_settings(value: Any) -> bool:
    """Is it an object with attributes, no tensor, module, class or function?"""
    plain = isinstance(value, torch.Tensor | nn.Module | type | np.ndarray) or callable(value)
    return not plain and attributes(value) is not None
