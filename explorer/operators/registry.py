"""From a captured call to the ways in which it can be run: rules that list the alternatives of a call.

docs/implementations.md shows how to add one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx

from explorer.graph import Optimization, When

DEFAULT = "aten"
AS_EAGER = "explorer.as_eager"
"""In the notes of a call that eager mode computes another way, as with other last bits: target, args and kwargs."""
OWN_RESULTS = "explorer.own_results"
"""In the notes of a call of which eager mode makes some of the results alone: their numbers."""

ROLE = "explorer.role"
"""In the notes of a result that is not what its pass makes otherwise: what its storage is for."""

LABEL = "explorer.label"
"""In the notes of a call: what it is called, where that is not how its target is."""

WAYS = "explorer.ways"
"""In the notes of a call: ways to run it that depend on more of the graph than the call, as ``Variant``s."""

_CAPTURED_FOR: ContextVar[str | None] = ContextVar("captured for", default=None)

# Results of calls that make compact tensors, by callable and layouts: fake calls take milliseconds each.
_MADE: WeakKeyDictionary[fx.Graph, dict[tuple[Any, str], torch.Tensor]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Guard:
    """A condition on parameters and buffers, checked before each step.

    A step in which it does not hold runs the operator as PyTorch does, whatever the schedule says, and takes the memory
    that this takes.

    Attributes:
        holds: gets the values of ``of`` and returns a tensor with one truth value.
        of: graph inputs; None stands for None.
        reason: what does not hold then, for the warning.
    """

    holds: Callable[..., torch.Tensor]
    of: tuple[fx.Node | None, ...]
    reason: str


@dataclass(frozen=True)
class Variant:
    """One way to run a captured call.

    Attributes:
        name: unique among the call's variants.
        target: what to call: a function of a module or an operator of ATen (their names key the measured costs).
        args: positional arguments; leaves may be nodes of the graph.
        outputs: for each result of ``target``, which output of the captured call it is; None: the same ones.
        when: a first run, a recomputation, or either.
        exact: bit-equal to the captured call.
        kwargs: keyword arguments, likewise.
        optimization: what it belongs to; None: always to be had.
        overwrites: the node of ``args`` whose memory becomes the result's. Where that memory is not this operator's to
            take (a parameter, a batch, a result for the caller), the variant is left out.
        part: empty: a way to run the call itself. Else the name of an optional operator that follows it directly and
            makes what other variants of the call leave out.
        guard: what must hold before a step.
    """

    name: str
    target: Callable[..., Any]
    args: tuple[Any, ...]
    outputs: tuple[int, ...] | None = None
    when: When = When.ALWAYS
    exact: bool = True
    kwargs: dict[str, Any] = field(default_factory=dict)
    optimization: Optimization | None = None
    overwrites: fx.Node | None = None
    part: str = ""
    guard: Guard | None = None


Rule = Callable[[fx.Node], Iterable[Variant]]
_RULES: dict[Any, list[Rule]] = {}
_AUXILIARIES = "explorer auxiliaries"
_SERVES = "explorer optimization"


def rule(*targets: Any) -> Callable[[Rule], Rule]:
    """Declare a function that lists alternatives of calls of ``targets``; several rules for one target add up."""

    def declare(function: Rule) -> Rule:
        for target in targets:
            _RULES.setdefault(target, []).append(function)
        return function

    return declare


def variants_of(node: fx.Node) -> tuple[Variant, ...]:
    """Every way to run a captured call; the first is PyTorch's own, and serves a first run."""
    assert callable(node.target)
    when = When.FIRST if draws_random_numbers(node) or changes_its_arguments(node) else When.ALWAYS
    target, args, kwargs = node.meta.get(AS_EAGER, (node.target, node.args, node.kwargs))
    own = Variant(DEFAULT, target, args, node.meta.get(OWN_RESULTS), when=when, kwargs=dict(kwargs))
    ruled = (variant for function in _RULES.get(node.target, ()) for variant in function(node))
    return (own, *ruled, *node.meta.get(WAYS, ()))


@contextmanager
def captured_for(kind: str) -> Iterator[None]:
    """While open, tensors stand for those of a device of this kind (``"cuda"``), wherever they are."""
    token = _CAPTURED_FOR.set(kind)
    try:
        yield
    finally:
        _CAPTURED_FOR.reset(token)


def device_kind(device: torch.device) -> str:
    """``"cpu"`` or ``"cuda"``: what rules may depend on, and what a tensor on ``device`` stands for."""
    return _CAPTURED_FOR.get() or device.type


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


def changes_its_arguments(node: fx.Node) -> bool:
    """Does the captured call itself write to an argument (running statistics)?"""
    return bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))


def auxiliary(
    node: fx.Node,
    name: str,
    make: Callable[..., torch.Tensor],
    *args: Any,
    optimization: Optimization = Optimization.INTERMEDIATE,
) -> fx.Node:
    """A compact tensor that an optional operator makes directly after ``node``'s, for a backward operator to read.

    Args:
        node: a forward tensor; the optional operator follows the one that makes it.
        name: what it is (``"mask"``); asked for twice, the tensor is the same.
        make: ``make(*args)`` computes it.
        args: leaves may be nodes of the graph, none later than ``node``.
        optimization: what it serves.

    A function whose result's size depends on values, or takes long to find out by calling it, has an attribute
    ``nominal``: a function of the same arguments that makes one of the size to count with.
    """
    source = origin(node)
    known: dict[str, fx.Node] = source.meta.setdefault(_AUXILIARIES, {})
    if name not in known:
        with source.graph.inserting_after(node):
            made = source.graph.call_function(make, args)
        made.meta = {**source.meta, "val": _made(node, getattr(make, "nominal", make), args), _SERVES: optimization}
        made.meta.pop(_AUXILIARIES)
        known[name] = made
    return known[name]


def _made(node: fx.Node, make: Callable[..., torch.Tensor], args: tuple[Any, ...]) -> torch.Tensor:
    """A fake tensor like the one ``make(*args)`` returns, which is called once for all arguments of the same layout.

    It is called with tensors that have no memory: fake tensors take ten times as long, which adds up in loops.
    """
    known = _MADE.setdefault(node.graph, {})
    key = (make, repr(fx.map_arg(args, lambda x: (*layout_of(x), value_of(x).device))))
    if key not in known:
        known[key] = make(*fx.map_arg(args, lambda x: without_memory(value_of(x))))
    made = known[key]
    with value_of(node).fake_mode:
        return torch.empty_strided(made.shape, made.stride(), dtype=made.dtype, device=value_of(node).device)


def without_memory(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout on the device ``meta``."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def auxiliaries_of(node: fx.Node) -> dict[str, fx.Node]:
    """The compact tensors that rules have asked for, by name."""
    return node.meta.get(_AUXILIARIES, {})


def served_by(node: fx.Node) -> Optimization:
    """What a compact tensor is made for."""
    return node.meta[_SERVES]


def value_of(node: fx.Node) -> Any:
    """The fake tensor (or tuple of them) that the node stands for."""
    return node.meta["val"]


def origin(node: fx.Node) -> fx.Node:
    """The call that a node is the result of, or one of the results."""
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return source
    return node


def output_of(node: fx.Node, number: int) -> fx.Node | None:
    """The node of one of several results of a call; None where nothing reads it."""
    return next((user for user in node.users if user.target is operator.getitem and user.args[1] == number), None)


def wanted_outputs(node: fx.Node) -> tuple[int, ...]:
    """Which of its several results are read."""
    return tuple(sorted(int(str(x.args[1])) for x in node.users if x.target is operator.getitem))


def forward_call(source: Any, target: Any, args: Sequence[Any] = ()) -> fx.Node | None:
    """The call ``target(source, *args)`` in the graph, whose gradient autograd wants; None if there is none."""
    if not isinstance(source, fx.Node):
        return None
    wanted = [source, *args]
    return next((x for x in source.users if x.target is target and all_arguments(x)[: len(wanted)] == wanted), None)


def all_arguments(node: fx.Node) -> list[Any]:
    """The arguments of a call of ATen by position, defaults filled in."""
    assert callable(node.target)
    schema = node.target._schema  # type: ignore[attr-defined]  # every operator of ATen has one
    rest = schema.arguments[len(node.args) :]
    return [*node.args, *(node.kwargs.get(x.name, x.default_value) for x in rest)]


def is_precise(*nodes: Any) -> bool:
    """Are they all float32 or float64? Below that, what is computed back from a rounded output is too far off."""
    return all(value_of(x).dtype in (torch.float32, torch.float64) for x in nodes if x is not None)


def layout_of(node: fx.Node) -> tuple[Any, ...]:
    """Equal for tensors that store the same elements in the same way."""
    tensor = value_of(node)
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def is_dense(node: fx.Node) -> bool:
    """Does the tensor fill its storage, each element once?"""
    tensor = value_of(node)
    if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
        return False
    step = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def fits_over(source: Any, result: fx.Node) -> bool:
    """May ``result`` take the memory of ``source``, a tensor that fills its storage in the same layout?"""
    if not isinstance(source, fx.Node) or layout_of(source) != layout_of(result) or not is_dense(source):
        return False
    value = value_of(source)
    # Its memory has other numbers than it says, and what is written there is read as these again.
    return not (value.is_conj() or value.is_neg())
