"""The smallest program that ends as a given one does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from tests.fuzz.program import Program, default_dtype


def reduce(program: Program, fails: Callable[[Program], bool], *, seconds: float = 60) -> Program:
    """Take lines away for as long as what is left still fails.

    Args:
        program: fails.
        fails: tells whether a program ends the same way.
        seconds: about as long as that may take.
    """
    end = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(program):
            if time.monotonic() > end:
                return program
            if fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _candidates(program: Program) -> Iterator[Program]:
    """Programs with one thing less, the most promising first."""
    layouts = _layouts(program)
    for number in range(len(program.instructions) - 1, -1, -1):
        made = program.instructions[number].makes
        if not made:
            yield program.without(number, {})
            continue
        earlier = [x.name for x in program.inputs]
        earlier += [name for x in program.instructions[:number] for name in x.makes]
        # What the line itself reads comes first: the rest of the program then stays as connected as it was.
        order = [*program.instructions[number].reads, *reversed(earlier)]
        stand_ins = [x for x in dict.fromkeys(order) if x in earlier and x not in made]
        alike = [x for x in stand_ins if layouts.get(x) == layouts.get(made[0])]
        for name in (*alike, *(x for x in stand_ins if x not in alike))[:4]:
            yield program.without(number, dict.fromkeys(made, name))
    yield from _simpler_ends(program)


def _simpler_ends(program: Program) -> Iterator[Program]:
    if program.finish:
        yield replace(program, finish=program.finish[1:])
    if program.trained != "all":
        yield replace(program, trained="all")
    if program.dtype != "float32":
        yield replace(program, dtype="float32")
    if program.result[0] in "([{":
        names = [name for x in program.instructions for name in x.makes if name in program.result]
        yield from (replace(program, result=name) for name in reversed(names))
        yield from (replace(program, result=f"({a}, {b})") for a in names for b in names if len(program.result) > 12)
    for leaf in program.inputs:
        if leaf.like is not None:
            yield replace(program, inputs=tuple(replace(x, like=None) if x is leaf else x for x in program.inputs))
        if "requires_grad" in leaf.code:
            plain = replace(leaf, code=leaf.code.replace(", requires_grad=True", ""))
            yield replace(program, inputs=tuple(plain if x is leaf else x for x in program.inputs))
    yield from _fewer_inputs(program)


def _fewer_inputs(program: Program) -> Iterator[Program]:
    """Without inputs that nothing reads, as plain arguments."""
    names = [x.name for x in program.inputs if x.name != "x90"]
    used = [x for x in names if any(x in y.reads for y in program.instructions) or x in program.result]
    used += [x.like for x in program.inputs if x.name in used and x.like is not None and x.like not in used]
    kept = [x for x in names if x in used] or names[:1]
    batch = f"({', '.join(kept)},)"
    if program.loss is not None:
        batch = f"({batch}, x90)"
    if batch != program.batch or program.unpack:
        inputs = tuple(x for x in program.inputs if x.name in (*kept, "x90"))
        yield replace(program, inputs=inputs, signature=", ".join(kept), unpack=(), batch=batch)


def _layouts(program: Program) -> dict[str, tuple[int, ...]]:
    """Shapes of the variables, as far as the program runs."""
    from tests.fuzz.program import State

    with default_dtype(program.dtype):
        state = State(tuple(x for x in program.inputs))
        for instruction in program.instructions:
            state.add(instruction)
        return {name: tuple(x.shape) for name, x in state.tensors().items() if isinstance(x, torch.Tensor)}
