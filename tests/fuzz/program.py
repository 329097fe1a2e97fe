"""A small program: a module, its batches and what a training loop does with its results, as data and as Python text."""

from __future__ import annotations

import ast
import contextlib
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

HEADER = "import copy\n\nimport torch\nfrom torch import nn\nfrom torch.nn import functional as F\n"


@dataclass(frozen=True)
class Input:
    """A leaf of the batch.

    Attributes:
        name: of the variable in ``forward``.
        code: makes its value; random numbers are seeded for each batch.
        like: the input that it is the same object as in the sample batch, where another comes later on.
    """

    name: str
    code: str
    like: str | None = None


@dataclass(frozen=True)
class Instruction:
    """One or more lines of ``forward``, and the lines of ``__init__`` that they need."""

    code: str
    setup: tuple[str, ...] = ()

    @cached_property
    def makes(self) -> tuple[str, ...]:
        """The variables that are bound here."""
        return self._names(ast.Store)

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The variables that are read here."""
        return self._names(ast.Load)

    def _names(self, context: type[ast.expr_context]) -> tuple[str, ...]:
        found = (x for x in ast.walk(ast.parse(self.code)) if isinstance(x, ast.Name) and isinstance(x.ctx, context))
        return tuple(dict.fromkeys(x.id for x in found if is_variable(x.id)))


def is_variable(name: str) -> bool:
    """``x0`` and ``v12`` are values of the program."""
    return name[:1] in "xv" and name[1:2].isdigit()


@dataclass(frozen=True)
class Program:
    """A module and what is done with it.

    Attributes:
        seed: what it was drawn from, of interest to a person.
        dtype: of all its floating-point numbers, unless they are cast.
        inputs: leaves of the batch.
        signature: parameters of ``forward``.
        unpack: first lines of ``forward``.
        instructions: the other lines.
        result: what ``forward`` returns.
        batch: of names of inputs.
        loss: of ``result`` and ``target``, or None if the model is called without a loss.
        finish: last lines of ``__init__``: what is tied, frozen, or in evaluation mode.
        trained: which results carry the loss of the training loop: ``"all"``, ``"first"``, ``"last"`` or
            ``"everything"``.
    """

    seed: int
    dtype: str
    inputs: tuple[Input, ...]
    signature: str
    unpack: tuple[str, ...]
    instructions: tuple[Instruction, ...]
    result: str
    batch: str
    loss: str | None = None
    finish: tuple[str, ...] = ()
    trained: str = "all"

    @cached_property
    def source(self) -> str:
        """The program as a person would write it."""
        setup = dict.fromkeys(line for x in self.instructions for line in x.setup)
        body = [*self.unpack, *(line for x in self.instructions for line in x.code.split("\n"))]
        lines = [
            f'dtype = "{self.dtype}"',
            "",
            "",
            "class Fuzzed(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *(f"        {x}" for x in (*setup, *self.finish)),
            "",
            f"    def forward(self{self.signature and ', '}{self.signature}):",
            *(f"        {x}" for x in body),
            f"        return {self.result}",
            "",
            "",
            "def batch(number):",
            "    torch.manual_seed(1000 + number)",
            *(f"    {line}" for x in self.inputs for line in _made(x)),
            f"    return {self.batch}",
            "",
            "",
            f"loss = {self._loss}",
            f'trained = "{self.trained}"',
            f"seed = {self.seed}",
        ]
        return HEADER + "\n".join(lines) + "\n"

    @property
    def _loss(self) -> str:
        return "None" if self.loss is None else self.loss

    def load(self) -> Loaded:
        """The program, compiled."""
        return load(self.source)

    def without(self, number: int, names: dict[str, str]) -> Program:
        """The program without one instruction, its results replaced by other variables."""
        kept = [*self.instructions[:number], *self.instructions[number + 1 :]]
        later = [replace(x, code=renamed(x.code, names)) if i >= number else x for i, x in enumerate(kept)]
        return replace(self, instructions=tuple(later), result=renamed(self.result, names))


def _made(leaf: Input) -> list[str]:
    lines = [f"{leaf.name} = {leaf.code}"]
    if leaf.like is not None:
        lines += ["if number == 0:", f"    {leaf.name} = {leaf.like}"]
    return lines


def renamed(code: str, names: dict[str, str]) -> str:
    """The code with some variables replaced."""
    import re

    return re.sub(r"\b[xv]\d+\w*\b", lambda x: names.get(x[0], x[0]), code)


@dataclass(frozen=True)
class Loaded:
    """A compiled program; its attributes are those of ``Program``, as values."""

    module: type[nn.Module]
    batch: Callable[[int], Any]
    loss: Callable[[Any, Any], torch.Tensor] | None
    trained: str
    dtype: str
    seed: int

    def build(self) -> nn.Module:
        """The module with the same values each time."""
        torch.manual_seed(0)
        return self.module()


def load(source: str) -> Loaded:
    """Compile the text of a program."""
    name = f"<program {abs(hash(source))}>"
    # The errors that users get name lines of their code.
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"__name__": name}
    text = compile(source, name, "exec")
    with default_dtype("float64" if 'dtype = "float64"' in source else "float32"):
        exec(text, scope)  # noqa: S102  (our own text)
    return Loaded(*(scope[x] for x in ("Fuzzed", "batch", "loss", "trained", "dtype", "seed")))


@contextlib.contextmanager
def default_dtype(name: str) -> Iterator[None]:
    """While open, tensors are made in this precision."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class State:
    """The values of a program as it is drawn: each instruction is run as soon as it is there."""

    def __init__(self, inputs: tuple[Input, ...]) -> None:
        """With the inputs of the sample batch."""
        self.inputs = inputs
        self.instructions: list[Instruction] = []
        self.restart()

    def restart(self) -> None:
        """Run everything anew."""
        torch.manual_seed(0)
        self.module = nn.Module()
        self.scope: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "self": self.module}
        self.values: dict[str, Any] = {}
        for leaf in self.inputs:
            self.values[leaf.name] = (
                self.values[leaf.like] if leaf.like is not None else eval(leaf.code, self.scope, self.values)  # noqa: S307
            )
        for instruction in self.instructions:
            self._run(instruction)

    def add(self, instruction: Instruction) -> bool:
        """Run one more, unless it fails; then all is as before."""
        try:
            self._run(instruction)
            fine = self._sensible(instruction) and self.goes_back()
        except Exception:  # noqa: BLE001  (PyTorch raises all kinds)
            fine = False
        if fine:
            self.instructions.append(instruction)
        else:
            self.restart()
        return fine

    def _run(self, instruction: Instruction) -> None:
        for line in instruction.setup:
            exec(line, self.scope, self.values)  # noqa: S102  (our own text)
        exec(instruction.code, self.scope, self.values)  # noqa: S102

    def _sensible(self, instruction: Instruction) -> bool:
        made = [self.values[name] for name in instruction.makes]
        return all(isinstance(x, torch.Tensor) and 0 < x.numel() <= 2048 and x.ndim <= 5 for x in made)

    def goes_back(self) -> bool:
        """Can gradients be computed through all values, or is one changed that a backward pass needs?"""
        ends = [x for x in self.values.values() if isinstance(x, torch.Tensor) and x.grad_fn is not None]
        if not ends:
            return True
        leaves = [x for x in (*self.module.parameters(), *self.values.values()) if _is_leaf(x)]
        if not leaves:
            return True
        total = torch.stack([x.real.double().sum() if x.is_complex() else x.double().sum() for x in ends]).sum()
        torch.autograd.grad(total, leaves, allow_unused=True)
        return True

    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that have a name."""
        return {key: x for key, x in self.values.items() if is_variable(key) and isinstance(x, torch.Tensor)}


def _is_leaf(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad
