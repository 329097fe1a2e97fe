"""What a backward group reads, made again in it: the steps of forward groups before its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from explorer.capture.chains import base, below
from explorer.capture.normalise import is_view
from explorer.operators.feed_forward import Value
from explorer.operators.groups import Group, GroupStep, Layout, group_of_calls
from explorer.operators.registry import origin, output_of, value_of

Remade = tuple[Group, tuple[fx.Node, ...]]
"""A group, and what it reads."""


def from_source(given: Sequence[fx.Node], group: Group) -> Remade | None:
    """A backward group that makes again what forward groups made for the backward pass alone.

    Args:
        given: what it reads.
        group: what it computes.

    Returns:
        The group, and what it reads then; None where nothing was made for the backward pass alone.
    """
    derived = {x: y for x in given if (y := _made_for_backward(x)) is not None}
    if not derived:
        return None
    wanted: dict[fx.Node, set[int]] = {}
    for joined, number in derived.values():
        wanted.setdefault(joined, set()).add(number)
    plans = [_Plan.of(joined, numbers) for joined, numbers in wanted.items()]
    read = dict.fromkeys(x for x in given if x not in derived)
    read |= dict.fromkeys(node for plan in plans for node in plan.read.values())
    steps = Steps({node: at for at, node in enumerate(read)}, len(read))
    for plan in plans:
        own = {number: steps.number[node] for number, node in plan.read.items()}
        for number in plan.made:
            own[number] = steps.add(plan.group.steps[number - len(plan.group.given)].renumbered(own))
        steps.number |= {base(x): own[y] for x, (joined, y) in derived.items() if joined is plan.joined}
    for view in (y for x in derived for y in reversed([*below(x)]) if is_view(y)):
        if view not in steps.number:
            steps.number[view] = steps.add(step(view, steps.number))
    number = {place: steps.number[node] for place, node in enumerate(given)}
    for place, own_step in enumerate(group.steps, start=len(group.given)):
        number[place] = steps.add(own_step.renumbered(number))
    results = tuple(number[x] for x in group.results)
    return Group(tuple(map(layout, read)), tuple(steps.made), results, group.layouts).freeing(), tuple(read)


@dataclass(frozen=True)
class _Plan:
    """What of a forward group is made again.

    Attributes:
        joined: its call.
        group: what that computes.
        read: values that are there, by their numbers.
        made: numbers of the others, in order.
    """

    joined: fx.Node
    group: Group
    read: dict[int, fx.Node]
    made: list[int]

    @classmethod
    def of(cls, joined: fx.Node, numbers: set[int]) -> _Plan:
        """Up to what the group reads, and what others than the backward pass read of it."""
        args: Any = joined.args
        group, given, alone, *_ = args
        known: dict[int, fx.Node] = dict(enumerate(given))
        for place in alone:
            element = output_of(joined, place)
            assert element is not None, "what is read on has a node"
            known[group.results[place]] = element
        needed = sorted(group.leading_to(numbers, known))
        read = {x: known[x] for x in needed if x in known}
        return cls(joined, group, read, [x for x in needed if x not in known])


@dataclass
class Steps:
    """Steps as they are put together.

    Attributes:
        number: of each value that a node stands for.
        given: how many values are read; they are counted first.
        made: the steps.
    """

    number: dict[fx.Node, int]
    given: int
    made: list[GroupStep] = field(default_factory=list)

    def add(self, step: GroupStep) -> int:
        """Returns the number of the step's value."""
        self.made.append(step)
        return self.given + len(self.made) - 1


def _made_for_backward(node: fx.Node) -> tuple[fx.Node, int] | None:
    """The forward group that makes it for the backward pass alone, and the value's number there."""
    below_it = base(node)
    joined: Any = origin(below_it)
    if joined.target is not group_of_calls:
        return None
    place: Any = below_it.args[1] if joined is not below_it else 0
    group, _, alone, *_ = joined.args
    return (joined, group.results[place]) if alone and place not in alone else None


def step(node: fx.Node, number: dict[fx.Node, int], *, over_first: bool = False) -> GroupStep:
    """A call as a step.

    Args:
        node: the call.
        number: of the values that it reads.
        over_first: eager mode makes it over its first argument.
    """

    def value(x: Any) -> Any:
        """Lists and tuples in place of fx's own."""
        if isinstance(x, fx.Node):
            return Value(number[x])
        if isinstance(x, list):
            return [value(y) for y in x]
        return tuple(map(value, x)) if type(x) is tuple else x

    args = tuple(map(value, node.args))
    return GroupStep(node.target, args, tuple((key, value(x)) for key, x in node.kwargs.items()), in_place=over_first)


def layout(node: fx.Node) -> Layout:
    """Of its tensor."""
    tensor = value_of(node)
    return tuple(tensor.shape), tensor.stride(), tensor.dtype
