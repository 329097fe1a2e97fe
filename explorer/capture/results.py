"""What a step returns, taken apart into tensors and put together again around others."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, is_dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import torch
from torch import nn
from torch.utils import _pytree as pytree

_WHOLE = (nn.Module, type, FunctionType, MethodType, BuiltinFunctionType, ModuleType, str, bytes, torch.Generator)


@dataclass(frozen=True)
class _Tensor:
    """The place of a tensor: its number among the tensors of the result."""

    index: int


@dataclass(frozen=True)
class _Plain:
    """Something without a tensor in it: every result shares it."""

    value: Any


@dataclass(frozen=True)
class _Tree:
    """A container that PyTorch knows: dict, tuple, named tuple, output of Hugging Face."""

    structure: pytree.TreeSpec
    children: tuple[Any, ...]


@dataclass(frozen=True)
class _Object:
    """Any other object with tensors among its attributes or elements: a dataclass, a cache, a distribution.

    Attributes:
        template: a copy without those.
        attributes: name and content.
        elements: key or index and content, of a kind of dict or list that PyTorch does not know.
    """

    template: Any
    attributes: tuple[tuple[str, Any], ...]
    elements: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True)
class ResultStructure:
    """How a result is made of its tensors; holds none itself."""

    root: Any

    def build(self, tensors: Sequence[Any]) -> Any:
        """The result around other tensors; containers and objects that hold one are new."""
        return _built(self.root, tensors)


def take_apart(result: Any) -> tuple[list[torch.Tensor], ResultStructure]:
    """The tensors of a result, each once, and how it is made of them.

    Raises:
        ValueError: an object that holds tensors contains itself, or a set holds tensors.
    """
    taking = _Taking()
    root = taking.part(result)
    return taking.tensors, ResultStructure(root)


def tree_of(structure: ResultStructure, tensors: Sequence[str], name_of: Callable[[type], str]) -> str | None:
    """A result as Python, around what stands for its tensors.

    Args:
        structure: of the result.
        tensors: what stands for each.
        name_of: what a class is called there: of a named tuple, or of an output of Hugging Face.

    Returns:
        None where it is more than plain values, containers, named tuples and outputs of Hugging Face.
    """
    return _shown(structure.root, tensors, name_of)


def unsayable(structure: ResultStructure) -> str:
    """Why ``tree_of`` is None, and what to do about it."""
    place, kind = next(_others(structure.root, "its result"))
    what = f"{'dataclass ' if is_dataclass(kind) else ''}{kind.__name__}"
    remedy = "let it return tensors and plain values, in tuples, named tuples, lists or dicts"
    if "past_key_values" in place:
        remedy = "model.config.use_cache = False leaves it out"
    return f"a {what} as {place}: {remedy}"


def _others(part: Any, place: str) -> Iterator[tuple[str, type]]:
    """Where there are objects that Python's own text does not make, and of which classes."""
    if isinstance(part, _Tree):
        kind = _class_of(part)
        keys = part.structure.context if issubclass(kind, dict) else ()
        for number, child in enumerate(part.children):
            key = keys[number] if len(keys) == len(part.children) else number
            fields = getattr(kind, "_fields", ())
            yield from _others(child, f"{place}.{fields[number]}" if fields else f"{place}[{key!r}]")
    if not isinstance(part, _Tensor) and _shown(part, defaultdict(str), lambda x: x.__name__) is None:
        yield place, _class_of(part)


def _class_of(part: Any) -> type:
    if isinstance(part, _Tree):  # of a named tuple its own class stands beside
        return part.structure.type if isinstance(part.structure.type, type) else part.structure.context
    return type(part.template if isinstance(part, _Object) else part.value)


def _shown(part: Any, tensors: Sequence[str] | Mapping[int, str], name_of: Callable[[type], str]) -> str | None:
    if isinstance(part, _Tensor):
        return tensors[part.index]
    if isinstance(part, _Plain):
        return _plain(part.value, name_of)
    texts = [_shown(x, tensors, name_of) for x in part.children] if isinstance(part, _Tree) else [None]
    found = [x for x in texts if x is not None]
    return _container(part, found, name_of) if len(found) == len(texts) else None


def _plain(value: Any, name_of: Callable[[type], str]) -> str | None:
    if isinstance(value, tuple):
        found = [x for x in (_plain(y, name_of) for y in value) if x is not None]
        return _in_tuple(type(value), found, name_of) if len(found) == len(value) else None
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    # A subclass, such as a number of NumPy's or of an enumeration, prints as what a file does not know.
    return repr(value) if value is None or type(value) in (bool, int, float, str) else None


def _container(part: _Tree, texts: list[str], name_of: Callable[[type], str]) -> str | None:
    kind = _class_of(part)
    if kind is list:
        return f"[{', '.join(texts)}]"
    if issubclass(kind, tuple):
        return _in_tuple(kind, texts, name_of)
    if not issubclass(kind, dict) or issubclass(kind, defaultdict):
        return None
    inner = "{" + ", ".join(f"{key!r}: {x}" for key, x in zip(part.structure.context, texts, strict=True)) + "}"
    return inner if kind is dict else f"{name_of(kind)}(**{inner})"  # an output of Hugging Face


def _in_tuple(kind: type, texts: list[str], name_of: Callable[[type], str]) -> str | None:
    inner = f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if kind is tuple:
        return inner
    if kind.__module__ == "torch.return_types":
        return f"torch.return_types.{kind.__name__}({inner})"
    return f"{name_of(kind)}({', '.join(texts)})" if hasattr(kind, "_fields") else None


def tensors_of_result(result: Any) -> list[torch.Tensor]:
    """All tensors of a result, whatever they are in."""
    return take_apart(result)[0]


class _Taking:
    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.numbers: dict[int, int] = {}
        self.open: dict[int, bool] = {}

    def part(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            number = self.numbers.setdefault(id(value), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append(value)
            return _Tensor(number)
        if isinstance(value, set | frozenset) and any(isinstance(x, torch.Tensor) for x in value):
            raise ValueError("the model returns tensors in a set, which has no order: return a list")
        if isinstance(value, _WHOLE) or not (_is_tree(value) or _has_contents(value)):
            return _Plain(value)
        if id(value) in self.open:
            self.open[id(value)] = True
            return _Plain(value)
        self.open[id(value)] = False
        made = self._tree(value) if _is_tree(value) else self._object(value)
        if self.open.pop(id(value)) and not isinstance(made, _Plain):
            raise ValueError(
                f"the model returns a {type(value).__name__} that holds tensors and contains itself: return the "
                "tensors without it"
            )
        return made

    def _tree(self, value: Any) -> Any:
        # What PyTorch calls stays in a cycle of references, in which the result would outlive its step.
        root = id(value)
        children, structure = pytree.tree_flatten(value, is_leaf=lambda x: id(x) != root)
        parts = tuple(self.part(x) for x in children)
        return _Plain(value) if _only_plain(parts) and not _is_mutable(value) else _Tree(structure, parts)

    def _object(self, value: Any) -> Any:
        attributes = tuple((name, self.part(x)) for name, x in _attributes(value))
        elements = tuple((key, self.part(x)) for key, x in _elements(value))
        if _only_plain(x for _, x in (*attributes, *elements)):
            return _Plain(value)
        template = copy.copy(value)
        attributes = tuple((name, x) for name, x in attributes if not isinstance(x, _Plain))
        elements = tuple((key, x) for key, x in elements if not isinstance(x, _Plain))
        for name, _ in attributes:
            object.__setattr__(template, name, None)
        for key, _ in elements:
            template[key] = None
        return _Object(template, attributes, elements)


def _built(part: Any, tensors: Sequence[Any]) -> Any:
    if isinstance(part, _Tensor):
        return tensors[part.index]
    if isinstance(part, _Plain):
        return part.value
    if isinstance(part, _Tree):
        return pytree.tree_unflatten([_built(x, tensors) for x in part.children], part.structure)
    made = copy.copy(part.template)
    for name, x in part.attributes:
        object.__setattr__(made, name, _built(x, tensors))
    for key, x in part.elements:
        made[key] = _built(x, tensors)
    return made


def _is_tree(value: Any) -> bool:
    return not pytree.tree_is_leaf(value)


def _is_mutable(value: Any) -> bool:
    """Would a caller who changes it change every later result too?"""
    return isinstance(value, MutableMapping | list)


def _has_contents(value: Any) -> bool:
    return hasattr(value, "__dict__") or hasattr(type(value), "__slots__")


def _attributes(value: Any) -> list[tuple[str, Any]]:
    slots = [x for kind in type(value).__mro__ for x in _names(vars(kind).get("__slots__", ()))]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name) and not name.startswith("__")}
    return list((found | vars(value) if hasattr(value, "__dict__") else found).items())


def _names(slots: str | Iterable[str]) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _elements(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(cast("Mapping[Any, Any]", value).items())
    return list(enumerate(value)) if isinstance(value, list) else []


def _only_plain(parts: Iterable[Any]) -> bool:
    return all(isinstance(x, _Plain) for x in parts)
