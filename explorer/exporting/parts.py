"""What an exported file is told of a batch and of a model's modules, as text."""

from __future__ import annotations

import textwrap
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from explorer.exporting.planned import foreign
from explorer.exporting.settings import settings_read
from explorer.exporting.sources import NoTextError, Sources

_PLAIN = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, frozenset, type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


def value_text(sources: Sources, name: str, value: Any) -> str:
    """A value of the batch that is no tensor, so that a file on torch alone can compare another with it.

    Raises:
        NoTextError: it cannot be written down.
    """
    if type(value) in _PLAIN:
        return sources.literal(value)
    if isinstance(value, Enum | np.generic):
        found = foreign(value)
        if type(found.value) in _PLAIN:
            return f"Foreign({found.kind!r}, {sources.literal(found.value)})"
    raise NoTextError(
        f"{name} is a {type(value).__qualname__} ({value!r}), which it cannot compare with that of another batch: give "
        "a plain number or string"
    )


def structure_text(sources: Sources, structure: pytree.TreeSpec) -> str:
    """Containers of a call's arguments, with 0 for each part."""
    args, kwargs = pytree.tree_unflatten([0] * structure.num_leaves, structure)
    return sources.literal((tuple(args), kwargs))


def leaves_text(structure: pytree.TreeSpec) -> str:
    """The function that says where the parts of a call's arguments are.

    Raises:
        NoTextError: some are in what is no container of Python's.
    """
    numbered = pytree.tree_unflatten(list(range(structure.num_leaves)), structure)
    listed = ",\n".join(_place(path) for path, _ in pytree.tree_flatten_with_path(numbered)[0])
    body = textwrap.indent(f"return [\n{textwrap.indent(listed, '    ')},\n]", "    ")
    head = "def leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:"
    return f'{head}\n    """The parts of a batch."""\n{body}'


def _place(path: tuple[Any, ...]) -> str:
    section, *rest = path
    text = "args" if section.idx == 0 else "kwargs"
    for key in rest:
        if isinstance(key, pytree.SequenceKey):
            text += f"[{key.idx}]"
        elif isinstance(key, pytree.MappingKey):
            text += f"[{key.key!r}]"
        else:
            raise NoTextError(f"a batch with parts at {path}; let it be made of tensors, tuples, lists and dicts")
    return text


def modules_told(sources: Sources, model: nn.Module) -> list[str]:
    """Classes and settings of modules as ``Plan.modules`` has them, with the paths of those that are alike."""
    read = settings_read(model)
    alike: dict[str, list[str]] = {}
    for path, module in model.named_modules():
        alike.setdefault(f"{type(module).__name__!r}, {sources.literal(read[path])}", []).append(path)
    return [f"({words}, {tuple(paths)!r})" for words, paths in alike.items()]
