"""What the functions of a step read besides their arguments: variables around a loss or a forward method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from explorer.execution.guards import Watched

_PLAIN = (bool, int, float, complex, str, type(None), torch.Tensor, torch.dtype, torch.device)
_LIBRARIES = ("torch", "transformers", "explorer")


def watched_surroundings(model: nn.Module, loss: Any) -> list[Watched]:
    """Numbers, texts and tensors that a trace took as they were, and that a later call may find changed."""
    found = list(_of_callable("the loss", loss)) if loss is not None and not isinstance(loss, nn.Module) else []
    modules = [*model.modules(), *(loss.modules() if isinstance(loss, nn.Module) else ())]
    for kind in dict.fromkeys(map(type, modules)):
        if kind.__module__.partition(".")[0] not in _LIBRARIES:
            found += _of_callable(f"{kind.__name__}.forward", kind.forward)
    return found


def _of_callable(name: str, function: Any) -> Iterator[Watched]:
    if isinstance(function, partial):
        yield from _of_values(name, dict(enumerate(function.args)) | function.keywords)
        yield from _of_callable(name, function.func)
    elif isinstance(function, MethodType):
        yield from _of_values(name, getattr(function.__self__, "__dict__", {}))
        yield from _of_callable(name, function.__func__)
    elif isinstance(function, FunctionType):
        used = {x: function.__globals__[x] for x in function.__code__.co_names if x in function.__globals__}
        yield from _of_values(name, function.__globals__, used)
        yield from _of_values(name, _Cells(function))
    elif callable(function) and not isinstance(function, type):
        yield from _of_values(name, getattr(function, "__dict__", {}))


def _of_values(name: str, values: Mapping[Any, Any], used: Mapping[Any, Any] | None = None) -> Iterator[Watched]:
    names = [x for x, value in (values if used is None else used).items() if isinstance(value, _PLAIN)]
    if names:
        yield Watched.of(f"in {name}, the variable", values, names)


class _Cells(Mapping[str, Any]):
    """The variables of an enclosing function that a function reads, as they are."""

    def __init__(self, function: FunctionType) -> None:
        cells: tuple[CellType, ...] = function.__closure__ or ()
        self._cells = dict(zip(function.__code__.co_freevars, cells, strict=True))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError as error:  # not assigned yet
            raise KeyError(name) from error

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._cells if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        try:
            self._cells[name].cell_contents  # type: ignore[index]  # noqa: B018 - raises where there is none
        except (KeyError, ValueError):
            return False
        return True
