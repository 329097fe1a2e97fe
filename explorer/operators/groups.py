"""Chains of calls that work number by number, or along rows, as one operator: run one by one, or by one kernel.

Run one by one, such calls write what is between them to memory and read it again. PyTorch's compiler makes one loop of
them, in which nothing between is ever a tensor. What the backward pass reads of what is between can be made there
again, by the same loop.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from explorer.operators.feed_forward import Value
from explorer.operators.inplace import in_place_call

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Shape, strides, dtype."""


@dataclass(frozen=True)
class GroupStep:
    """A call of a group.

    Attributes:
        target: of ATen.
        args: ``Value`` stands for a tensor, in lists too.
        kwargs: names and values.
        frees: numbers of values that are of no use afterwards.
        in_place: eager mode makes it over its first argument.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    frees: tuple[int, ...] = ()
    in_place: bool = False

    def __repr__(self) -> str:
        """The same in every process: it keys measured costs."""
        return f"GroupStep({self.target}, {self.args}, {self.kwargs}, {self.in_place})"

    def reads(self) -> list[int]:
        """Numbers of the values that it reads."""
        found: list[int] = []
        mapped((self.args, self.kwargs), lambda x: found.append(x.number))
        return found

    def renumbered(self, number: Mapping[int, int]) -> GroupStep:
        """The same where values have other numbers."""
        args, kwargs = mapped((self.args, self.kwargs), lambda x: Value(number[x.number]))
        return replace(self, args=args, kwargs=kwargs, frees=())


@dataclass(frozen=True)
class Group:
    """Calls that lead from given tensors to results.

    Attributes:
        given: layouts of what is given; those values are counted first, then one for each step.
        steps: in order.
        results: numbers of the values that are asked for.
        layouts: of the results.
        over: numbers of values that are written over what is given, each with the place of that.
    """

    given: tuple[Layout, ...]
    steps: tuple[GroupStep, ...]
    results: tuple[int, ...]
    layouts: tuple[Layout, ...] = field(repr=False)
    over: tuple[tuple[int, int], ...] = ()

    def freeing(self) -> Group:
        """The same, each step with what is of no use after it."""
        last: dict[int, int] = {}
        for at, step in enumerate(self.steps):
            last |= dict.fromkeys((*step.reads(), at + len(self.given)), at)
        dying: list[list[int]] = [[] for _ in self.steps]
        staying = {*self.results, *dict(self.over)}
        for number, at in last.items():
            if number >= len(self.given) and number not in staying:
                dying[at].append(number)
        steps = tuple(replace(x, frees=tuple(y)) for x, y in zip(self.steps, dying, strict=True))
        return replace(self, steps=steps)

    def only(self, results: Sequence[int]) -> Group:
        """With some of its results, given by their places, and no more steps than lead to these; over nothing."""
        numbers = [self.results[x] for x in results]
        needed = self.leading_to(numbers, ())
        kept = [x for x in range(len(self.steps)) if x + len(self.given) in needed]
        renumbered = {x: x for x in range(len(self.given))}
        renumbered |= {x + len(self.given): at for at, x in enumerate(kept, start=len(self.given))}
        steps = tuple(self.steps[x].renumbered(renumbered) for x in kept)
        layouts = tuple(self.layouts[x] for x in results)
        return Group(self.given, steps, tuple(renumbered[x] for x in numbers), layouts).freeing()

    def leading_to(self, numbers: Collection[int], known: Collection[int]) -> set[int]:
        """These values and all that they are computed from, up to what is known."""
        pending, found = list(numbers), set()
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                if number >= len(self.given) and number not in known:
                    pending.extend(self.steps[number - len(self.given)].reads())
        return found

    def writing(self, number: int, *, over: int) -> Group:
        """The same with a value written over what is given at that place."""
        return replace(self, over=(*self.over, (number, over))).freeing()

    def returned(self) -> dict[int, Layout]:
        """Results that take memory of their own, by number, with their layouts."""
        over = dict(self.over)
        return {x: layout for x, layout in zip(self.results, self.layouts, strict=True) if x not in over}

    @cached_property
    def key(self) -> str:
        """Equal for groups that compute the same on the same layouts."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def mapped(value: Any, of: Callable[[Value], Any]) -> Any:
    """The same with what ``of`` says in the place of each ``Value``."""
    if isinstance(value, Value):
        return of(value)
    if isinstance(value, tuple | list):
        return type(value)(mapped(x, of) for x in value)
    return value


def group_of_calls(group: Group, given: Sequence[torch.Tensor], *_: Any) -> Any:
    """Run the calls one by one.

    Args:
        group: what to compute.
        given: what it reads.
        _: what other ways read.

    Returns:
        The result, or a tuple of them.
    """
    values = dict(enumerate(given))
    for number, step in enumerate(group.steps, start=len(group.given)):
        target, args = step.target, mapped(step.args, lambda x: values[x.number])
        if step.in_place:
            call = in_place_call(target)
            assert call is not None, f"{target} has no way in place"
            target = call[0]
        kwargs = {name: mapped(x, lambda x: values[x.number]) for name, x in step.kwargs}
        values[number] = target(*args, **kwargs)
        del args, kwargs
        for x in step.frees:
            del values[x]
    for number, place in group.over:
        given[place].copy_(values[number])
        values[number] = given[place]
    found = tuple(values[x] for x in group.results)
    return found[0] if len(found) == 1 else found
