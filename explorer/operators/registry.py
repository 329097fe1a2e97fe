"""From a captured call to the ways in which it can be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from explorer.graph import When

DEFAULT = "aten"


@dataclass(frozen=True)
class Variant:
    """One way to run a captured call.

    Attributes:
        name: unique among the call's variants.
        target: what to call.
        args: positional arguments; leaves may be nodes of the graph.
        outputs: for each result of ``target``, which output of the captured call it is; None: the same ones.
        when: a first run, a recomputation, or either.
        exact: bit-equal to the captured call.
        kwargs: keyword arguments, likewise.
    """

    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    outputs: tuple[int, ...] | None = None
    when: When = When.ALWAYS
    exact: bool = True
    kwargs: dict[str, Any] = field(default_factory=dict)


Rule = Callable[[fx.Node], tuple[Variant, ...]]
_RULES: dict[Any, Rule] = {}


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    """Declare the function that lists the variants of calls of ``targets``."""

    def declare(function: Rule) -> Rule:
        for target in targets:
            _RULES[target] = function
        return function

    return declare


def variants_of(node: fx.Node) -> tuple[Variant, ...]:
    """Every way to run a captured call; the first is PyTorch's own, and serves a first run."""
    if node.target in _RULES:
        return _RULES[node.target](node)
    assert callable(node.target)
    when = When.FIRST if draws_random_numbers(node) else When.ALWAYS
    return (Variant(DEFAULT, node.target, node.args, when=when, kwargs=dict(node.kwargs)),)


def draws_random_numbers(node: fx.Node) -> bool:
    """Would another run give another result? True of tagged operators, unless their dropout is off."""
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded not in tags:
        return False
    schema = getattr(node.target, "_schema", None)
    for position, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.name == "dropout_p":
            value = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
            return bool(value)
    return True
