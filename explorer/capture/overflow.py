"""Guards against overflow, which ask whether all values are finite: what they do is done whether or not they are."""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
import textwrap
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_GUARD = re.compile(
    r"if (?:\w+\.dtype == torch\.float16 and )?\(?not torch\.isfinite\((?P<name>\w+)\)\.all\(\)\)?:\n"
    r" +(?P<limit>\w+) = torch\.finfo\((?P=name)\.dtype\)\.max - 1000\n"
    r" +(?P=name) = torch\.clamp\((?P=name), min=-(?P=limit), max=(?P=limit)\)"
)
"""The whole statement as ``ast`` writes it, which stands so in layers of Hugging Face's detectors.

It counts where nothing else in its function could tell whether it ran. That about infinite numbers alone is none: where
there are NaN, and no such number, a clamp would cut gradients off.
"""
_ASKING = (torch.Tensor.__bool__, torch.Tensor.item)
"""By which Python learns of a branch; the tensors of a trace have the second do it."""


def guards_without_questions() -> AbstractContextManager[Any]:
    """While open, ``if not torch.isfinite(x).all()`` before a clamp of ``x`` is no question.

    The clamp is always run, between limits that leave finite values as they are unless there are others: the results
    and gradients of the statement, bit for bit, whatever the values are.
    """
    return _Guards()


class _Guards(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self._open: tuple[torch.Tensor, torch.Tensor] | None = None
        """What is clamped next, and whether all of it is finite."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _ASKING and (source := _guarded(inspect.currentframe())) is not None:
            self._open = source, args[0]
            return False
        if func is torch.clamp and self._open is not None and args[0] is self._open[0]:
            source, are_finite = self._open
            self._open = None
            largest = torch.finfo(source.dtype).max
            if torch.tensor(kwargs["max"], dtype=source.dtype).item() != largest:  # in half precision
                limit = torch.where(are_finite, largest, kwargs["max"])
                kwargs = {"min": -limit, "max": limit}
        return func(*args, **kwargs)


def _guarded(frame: FrameType | None) -> torch.Tensor | None:
    """What the guard that asks is about; None: no guard asks."""
    ours = (Path(torch.__file__).parent, Path(__file__).parents[1])
    while frame is not None and any(Path(frame.f_code.co_filename).is_relative_to(x) for x in ours):
        frame = frame.f_back
    if frame is None or frame.f_globals.get("torch") is not torch:
        return None
    with contextlib.suppress(OSError, SyntaxError):
        tree = ast.parse(textwrap.dedent(inspect.getsource(frame.f_code)))
        line = frame.f_lineno - frame.f_code.co_firstlineno + 1
        for statement in ast.walk(tree):
            if isinstance(statement, ast.If) and statement.lineno == line:
                found = _GUARD.fullmatch(ast.unparse(statement))
                if found is not None and not _tells(tree, statement, found["limit"]):
                    return frame.f_locals[found["name"]]
    return None


def _tells(function: ast.AST, guard: ast.If, limit: str) -> bool:
    """Might a function tell elsewhere whether its guard ran: by the limit, or as the value is another tensor then?"""
    inside = set(ast.walk(guard))
    for x in ast.walk(function):
        if x in inside:
            continue
        writes = isinstance(x, ast.AugAssign) or (isinstance(x, ast.Subscript) and isinstance(x.ctx, ast.Store))
        in_place = isinstance(x, ast.Attribute) and x.attr.endswith("_") and not x.attr.endswith("__")
        compares = isinstance(x, ast.Compare) and any(
            isinstance(y, ast.Is | ast.IsNot) and not _is_none(z) for y, z in zip(x.ops, x.comparators, strict=True)
        )
        if writes or in_place or compares or (isinstance(x, ast.Name) and x.id == limit):
            return True
    return False


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
