"""The text of functions, with all that they use, so that it runs where this package is not."""

from __future__ import annotations

import ast
import builtins
import cmath
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, ModuleType, UnionType
from typing import Any, get_args, get_origin

import torch

from explorer.operators.fusing import fused
from explorer.torch_private import is_dense

_HERE = "explorer."
_PUBLIC = {
    is_dense: '''
def is_dense(tensor: torch.Tensor) -> bool:
    """Has every element memory of its own, without gaps?"""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
''',
}
"""In the place of what asks PyTorch in a way that it does not promise to keep."""
_UNCHECKED = re.compile(r"  # (noqa|type:|pyright:).*")
"""Words to linters, which mean nothing there."""
_WRITTEN = (type(None), type(...), bool, int, float, complex, str, bytes, range)
_TYPING = ("typing", "collections.abc", "contextlib", "enum", "functools", "math", "itertools", "operator")
_TYPING += ("dataclasses",)


class NoTextError(ValueError):
    """Something that a schedule runs cannot be written down."""


class Sources:
    """Collects functions, constants and imports, each under a name of its own.

    Attributes:
        imports: lines.
        constants: lines.
        classes: texts, in the order in which they were asked for.
        functions: likewise.
        made: lines that need those functions.
    """

    def __init__(self, reserved: set[str]) -> None:
        """None yet.

        Args:
            reserved: names that are taken.
        """
        self.imports: dict[str, None] = {}
        self.constants: list[str] = []
        self.classes: list[str] = []
        self.functions: list[str] = []
        self.made: list[str] = []
        self._taken = set(reserved)
        self._names: dict[Any, str] = {}

    def name_of(self, target: Callable[..., Any]) -> str:
        """What calls ``target`` in the text."""
        if target is fused:
            raise NoTextError(
                "it runs kernels that PyTorch's compiler makes of chains of calls; solve with other optimizations than "
                "'fused', such as optimizations=['output', 'intermediate', 'convolution', 'inplace']"
            )
        if isinstance(target, torch._ops.OpOverload):  # noqa: SLF001 - the type of what torch.ops has
            namespace, name = target.name().split("::")
            base = "aten" if namespace == "aten" else f"torch.ops.{namespace}"
            return f"{base}.{name.split('.')[0]}.{target._overloadname}"  # noqa: SLF001 - likewise
        if isinstance(target, torch._ops.OpOverloadPacket):  # noqa: SLF001 - likewise
            return f"aten.{target.__name__}"
        if isinstance(target, partial):
            return self._partial(target)
        if isinstance(target, FunctionType | type) and target.__module__.startswith(_HERE):
            return self._definition(target)
        if isinstance(target, BuiltinFunctionType | FunctionType) and getattr(torch, target.__name__, None) is target:
            return f"torch.{target.__name__}"
        raise NoTextError(f"{target!r} cannot be written down")

    def class_name(self, kind: type) -> str:
        """What a class of a result is called: imported, or a named tuple like one that cannot be.

        Raises:
            NoTextError: it is neither.
        """
        if kind in self._names:
            return self._names[kind]
        name = self.unique(kind.__name__)
        fields = getattr(kind, "_fields", None)
        found = getattr(sys.modules.get(kind.__module__), kind.__name__, None) is kind
        # What a script or a notebook defines is not there where another one loads the file.
        if found and (kind.__module__ != "__main__" or fields is None):
            alias = "" if name == kind.__name__ else f" as {name}"
            self.imports[f"from {kind.__module__} import {kind.__name__}{alias}"] = None
        elif fields is not None:
            self.imports["from collections import namedtuple"] = None
            renamed = ", rename=True" if any(x.startswith("_") for x in fields) else ""
            self.constants.append(f"{name} = namedtuple({kind.__name__!r}, {fields!r}{renamed})")
        else:
            raise NoTextError(f"the step returns a {kind.__qualname__}, which is not defined at the top of a module")
        self._names[kind] = name
        return name

    def literal(self, value: Any) -> str:  # noqa: C901, PLR0911 - one for each kind of value
        """A value as Python."""
        if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
            return str(value)
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, float | complex) and not cmath.isfinite(value):
            return f"{type(value).__name__}({str(value).strip('()')!r})"
        if isinstance(value, torch.Tensor) and value.numel() <= 64 and value.device.type == "cpu":
            return f"torch.tensor({self.literal(value.tolist())}, dtype={value.dtype})"
        if isinstance(value, tuple | list):
            inner = ", ".join(map(self.literal, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' if len(value) == 1 else ''})"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.literal(x)}: {self.literal(y)}" for x, y in value.items()) + "}"
        if is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith(_HERE):
            given = ", ".join(f"{x.name}={self.literal(getattr(value, x.name))}" for x in fields(value) if x.init)
            return f"{self.name_of(type(value))}({given})"
        if isinstance(value, Enum):
            return repr(value.value)
        if isinstance(value, slice):
            return f"slice{self.literal((value.start, value.stop, value.step))}"
        if isinstance(value, frozenset):
            return f"frozenset([{', '.join(sorted(map(self.literal, value)))}])"
        # A subclass, such as a number of NumPy's, says something else than Python that runs here.
        if type(value) in _WRITTEN:
            return "..." if value is ... else repr(value)
        if callable(value):
            return self.name_of(value)
        raise NoTextError(f"{type(value).__name__} {value!r} cannot be written down")

    def unique(self, wanted: str) -> str:
        """A name that nothing else has."""
        name, number = wanted, 2
        while name in self._taken or hasattr(builtins, name):
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name

    def _partial(self, target: partial[Any]) -> str:
        key = (target.func, target.args, tuple(sorted(target.keywords.items())))
        if key not in self._names:
            function = self.name_of(target.func)
            given = [self.literal(x) for x in target.args]
            given += [f"{name}={self.literal(x)}" for name, x in target.keywords.items()]
            self._names[key] = self.unique("_".join([function, *map(str, target.keywords.values())]).replace(" ", "_"))
            self.imports["from functools import partial"] = None
            self.made.append(f"{self._names[key]} = partial({', '.join([function, *given])})")
        return self._names[key]

    def _definition(self, defined: FunctionType | type) -> str:
        """Of a function, or a class."""
        if defined in self._names:
            return self._names[defined]
        if getattr(defined, "__closure__", None):
            raise NoTextError(f"{defined.__qualname__} depends on variables around it")
        self._names[defined] = name = self.unique(defined.__name__)
        if defined in _PUBLIC:
            self.functions.append(_PUBLIC[defined].strip())
            return name
        text = _UNCHECKED.sub("", textwrap.dedent(inspect.getsource(defined)))
        tree = ast.parse(text).body[0]
        assert isinstance(tree, ast.FunctionDef | ast.ClassDef)
        changes = [*self._changes(tree, vars(sys.modules[defined.__module__]))]
        if name != defined.__name__:
            keyword = "def " if isinstance(tree, ast.FunctionDef) else "class "
            changes.append((tree.lineno, tree.col_offset + len(keyword), len(defined.__name__), name))
        lines = text.splitlines()
        for line, column, length, instead in sorted(changes, reverse=True):
            before = lines[line - 1]
            lines[line - 1] = before[:column] + instead + before[column + length :]
        (self.functions if isinstance(defined, FunctionType) else self.classes).append("\n".join(lines))
        return name

    def _changes(self, tree: ast.AST, around: Mapping[str, Any]) -> Iterator[tuple[int, int, int, str]]:
        """Where the text names something by another name than it has here: line, column, length, the name."""
        own = {x.id for x in ast.walk(tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        own |= {x.arg for x in ast.walk(tree) if isinstance(x, ast.arg)}
        notes = {x for note in _annotations(tree) for x in ast.walk(note)}
        within: set[ast.AST] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in own:
                module = around.get(node.value.id)
                if isinstance(module, ModuleType) and module.__name__.startswith(_HERE):
                    within.add(node.value)
                    length = (node.end_col_offset or 0) - node.col_offset
                    yield node.lineno, node.col_offset, length, self._global(node.attr, getattr(module, node.attr))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name) or node in within or node.id in own or node.id not in around:
                continue
            found = self._global(node.id, around[node.id], note=node in notes)
            if found != node.id:
                yield node.lineno, node.col_offset, len(node.id), found

    def _global(self, name: str, value: Any, *, note: bool = False) -> str:  # noqa: PLR0911 - likewise
        """What stands for a global of a function; of one in an annotation, its type."""
        if value is torch:
            return "torch"
        if value is torch.ops.aten:
            return "aten"
        if isinstance(value, ModuleType):
            _, _, last = value.__name__.rpartition(".")
            alias = "" if last == name else f" as {name}"
            package = value.__name__.rpartition(".")[0]
            line = f"from {package} import {last}{alias}" if package else f"import {last}{alias}"
            self.imports[line] = None
            return name
        if get_args(value):  # another name of a type, whose module is that of the type that it was made of
            return self._constant(name, self._type(value))
        home = getattr(value, "__module__", None)
        if home in _TYPING or (value is Any):
            self.imports[f"from {home or 'typing'} import {getattr(value, '__name__', name)}"] = None
            return name
        if note:
            return self._type(value)
        if callable(value):
            return self.name_of(value)
        return self._constant(name, self.literal(value))

    def _type(self, value: Any) -> str:  # noqa: PLR0911 - one for each kind of type
        """A type in an annotation."""
        if value is None or value is ...:
            return "..." if value is ... else "None"
        if isinstance(value, list):
            return f"[{', '.join(map(self._type, value))}]"
        parts = [*map(self._type, get_args(value))]
        if isinstance(value, UnionType):
            return " | ".join(parts)
        if parts:
            return f"{self._type(get_origin(value))}[{', '.join(parts)}]"
        if value.__module__.startswith(_HERE):
            return self._definition(value)
        if getattr(torch, value.__name__, None) is value:
            return f"torch.{value.__name__}"
        if value.__module__ != "builtins":
            self.imports[f"from {value.__module__} import {value.__name__}"] = None
        return "None" if value is type(None) else value.__name__

    def _constant(self, name: str, text: str) -> str:
        key = ("constant", name, text)
        if key not in self._names:
            self._names[key] = self.unique(name)
            self.constants.append(f"{self._names[key]} = {text}")
        return self._names[key]


def _annotations(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if note is not None:
                yield note
