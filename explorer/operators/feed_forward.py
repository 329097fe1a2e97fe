"""Backward of the first half of a feed-forward layer, by parts of the rows: its wide middle is never whole.

In a transformer's feed-forward layer a linear layer widens each row, numbers are changed one by one (GELU; SwiGLU, from
two linear layers), and another one narrows them again. What lies between is the widest that a block has, several
times over in the backward pass, and each row counts by itself: from the gradient that arrives, a row's way back to the
layer's source may be gone at once, from what was saved, from the linear layers' results, or from their source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.loss_by_rows import add_product, precise
from explorer.operators.registry import Variant, rule, value_of

aten = torch.ops.aten
_IN_PARTS: dict[str, Any] = {"exact": False, "optimization": Optimization.CONVOLUTION}
_PARTS = (4, 16)
_LEAST_ROWS = 32
"""Of a part: with fewer, products take much longer."""


@dataclass(frozen=True, slots=True)
class Value:
    """Stands for a value: those that are given are counted first, then one for each step."""

    number: int


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """A call that works element by element.

    Attributes:
        target: of ATen, or a function of a module.
        args: of which ``Value`` stands for a tensor.
        kwargs: names and values.
        frees: numbers of values that are of no use afterwards.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...] = ()
    frees: tuple[int, ...] = ()

    def __repr__(self) -> str:
        """The same in every process: it keys measured costs."""
        name = getattr(self.target, "__qualname__", None) or str(self.target)
        return f"Step({name}, {self.args}, {self.kwargs}, {self.frees})"


@dataclass(frozen=True, slots=True)
class Middle:
    """What happens to each number.

    Attributes:
        steps: in order.
        results: numbers of the values that are asked for.
    """

    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def run(self, given: list[torch.Tensor]) -> Iterator[tuple[int, torch.Tensor]]:
        """Results as soon as they are made, each with its place in ``results``.

        ``given`` is emptied: nothing is kept longer than needed.
        """
        values, count = dict(enumerate(given)), len(given)
        given.clear()
        place = {number: at for at, number in enumerate(self.results)}
        yield from ((place[x], values[x]) for x in range(count) if x in place)
        for number, step in enumerate(self.steps, start=count):
            args = [values[x.number] if isinstance(x, Value) else x for x in step.args]
            kwargs = {key: values[x.number] if isinstance(x, Value) else x for key, x in step.kwargs}
            made = step.target(*args, **kwargs)
            del args, kwargs
            values[number] = made
            for x in step.frees:
                del values[x]
            if number in place:
                yield place[number], made
            del made


@dataclass(frozen=True, slots=True)
class FeedForward:
    """How the first half of a feed-forward layer is differentiated.

    Attributes:
        backward: from what was saved, and the gradient of the middle's result behind it, to the gradients of the linear
            layers' results.
        wanted: for each linear layer, are gradients of its source, weight and bias?
        by_class: for each, has the weight's gradient a row for each of the layer's results (as ``nn.Linear``'s)?
    """

    backward: Middle
    wanted: tuple[tuple[bool, bool, bool], ...]
    by_class: tuple[bool, ...]


@dataclass(frozen=True)
class Begin:
    """What it takes to have what a middle reads, for some rows.

    Attributes:
        given: tensors whose rows are those of the layer, in memory.
        sources: (rows, width) for each linear layer whose result is computed first; it is counted before ``given``.
        weights: (width, middle), likewise.
        biases: (middle,), likewise.
    """

    given: tuple[Any, ...]
    sources: tuple[Any, ...] = ()
    weights: tuple[Any, ...] = ()
    biases: tuple[Any, ...] = ()

    def arguments(self) -> tuple[Any, ...]:
        """As arguments of a call."""
        return self.given, self.sources, self.weights, self.biases


def parts_of(rows: int) -> tuple[int, ...]:
    """In how many parts these rows may go."""
    return tuple(x for x in _PARTS if rows >= x * _LEAST_ROWS)


def weight_gradient(first: torch.Tensor, second: torch.Tensor, *_: Any) -> torch.Tensor:
    """Gradient of the second half's weight in PyTorch's own call; what other ways read follows."""
    return first @ second


def feed_forward_backward(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    saved: tuple[torch.Tensor, ...],
    sources: tuple[torch.Tensor, ...],
    weights: tuple[torch.Tensor, ...],
    plan: FeedForward,
    *_: Any,
) -> tuple[torch.Tensor, ...]:
    """Backward in PyTorch's own calls.

    Args:
        gradient: (rows, width), of the second half's result.
        weight: (width, middle), by which that gradient is multiplied.
        saved: (…, middle) each, what the forward pass saved.
        sources: (rows, width) for each linear layer.
        weights: (width, middle), likewise.
        plan: what is asked for.
        _: what other ways read.

    Returns:
        For each linear layer, the gradients of source, weight and bias that are wanted.
    """
    found: list[tuple[torch.Tensor, ...]] = [()] * len(sources)
    for layer, of_result in plan.backward.run([*map(_flat, saved), gradient @ weight]):
        of_source, of_weight, of_bias = plan.wanted[layer]
        products = []
        if of_weight:
            source = sources[layer]
            products.append(of_result.t() @ source if plan.by_class[layer] else source.t() @ of_result)
        if of_source:
            products.insert(0, of_result @ weights[layer].t())
        if of_bias:
            products.append(of_result.sum([0], keepdim=True))
        found[layer] = tuple(products)
        del of_result
    return tuple(x for products in found for x in products)


def backward_in_parts(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    sources: tuple[torch.Tensor, ...],
    weights: tuple[torch.Tensor, ...],
    plan: FeedForward,
    parts: int,
    *begin: Any,
) -> tuple[torch.Tensor, ...]:
    """``feed_forward_backward`` in parts of the rows, from what ``Begin.arguments`` give."""
    sums = _Sums(sources, weights, plan)
    for rows, values in _rows(len(gradient), parts, *begin):
        values.append(gradient[rows] @ weight)
        for layer, of_result in plan.backward.run(values):
            sums.add(rows, layer, of_result)
            del of_result
    return sums.results()


def weight_gradient_in_parts(
    gradient: torch.Tensor,
    by_class: bool,  # noqa: FBT001 - arguments of captured calls are by position
    middle: Middle,
    parts: int,
    *begin: Any,
) -> torch.Tensor:
    """Gradient of the second half's weight in parts of the rows.

    Args:
        gradient: (rows, width), of the second half's result.
        by_class: the weight has a row for each of its results (as ``nn.Linear``'s).
        middle: leads to what the second half reads.
        parts: how many.
        begin: what ``Begin.arguments`` give.
    """
    total: torch.Tensor | None = None
    for rows, values in _rows(len(gradient), parts, *begin):
        ((_, wide),) = middle.run(values)
        one, other = (gradient[rows], wide) if by_class else (wide, gradient[rows])
        if total is None:
            total = one.new_empty((one.shape[1], other.shape[1]), dtype=precise(one.dtype))
        add_product(total, one.t(), other, first=rows.start == 0)
    assert total is not None
    return total.to(gradient.dtype)


def _rows(
    count: int,
    parts: int,
    given: tuple[torch.Tensor, ...],
    sources: tuple[torch.Tensor, ...],
    weights: tuple[torch.Tensor, ...],
    biases: tuple[torch.Tensor | None, ...],
) -> Iterator[tuple[slice, list[torch.Tensor]]]:
    """Which rows, and what a middle reads of those, one part after the other."""
    whole = [_flat(x) for x in given]
    size = -(-count // parts)

    def results(rows: slice) -> Iterator[torch.Tensor]:
        for source, weight, bias in zip(sources, weights, biases, strict=True):
            yield source[rows] @ weight if bias is None else torch.addmm(bias, source[rows], weight)

    for start in range(0, count, size):
        rows = slice(start, start + size)
        yield rows, [*results(rows), *(x[rows] for x in whole)]


def _flat(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(0, -2)


class _Sums:
    """Gradients of the linear layers, from those of some rows of their results after the other."""

    def __init__(self, sources: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], plan: FeedForward) -> None:
        self.sources, self.weights, self.plan = sources, weights, plan
        self.found: list[list[torch.Tensor | None]] = []
        for layer, (source, weight) in enumerate(zip(sources, weights, strict=True)):
            of_source, of_weight, of_bias = plan.wanted[layer]
            shape = weight.shape[::-1] if plan.by_class[layer] else weight.shape
            accurate = precise(weight.dtype)
            self.found.append(
                [
                    torch.empty(source.shape, dtype=source.dtype, device=source.device) if of_source else None,
                    weight.new_empty(shape, dtype=accurate) if of_weight else None,
                    weight.new_zeros((1, weight.shape[1]), dtype=accurate) if of_bias else None,
                ]
            )

    def add(self, rows: slice, layer: int, of_result: torch.Tensor) -> None:
        of_source, of_weight, of_bias = self.found[layer]
        if of_source is not None:
            torch.mm(of_result, self.weights[layer].t(), out=of_source[rows])
        if of_bias is not None:
            of_bias += of_result.sum(0, keepdim=True, dtype=of_bias.dtype)
        if of_weight is not None:
            source = self.sources[layer][rows]
            one, other = (of_result, source) if self.plan.by_class[layer] else (source, of_result)
            add_product(of_weight, one.t(), other, first=rows.start == 0)

    def results(self) -> tuple[torch.Tensor, ...]:
        dtypes = [x.dtype for x in self.weights]
        return tuple(
            x.to(dtype) for found, dtype in zip(self.found, dtypes, strict=True) for x in found if x is not None
        )


@rule(feed_forward_backward)
def ways_backward(node: fx.Node) -> Iterator[Variant]:
    """From less, or in parts; the call has what these read behind what is its own."""
    args: Any = node.args
    gradient, weight, _, sources, weights, _, (given, plan), (source, plan_again), is_less = args
    begin = (gradient, weight)
    if is_less:
        args = (*begin, given[0], sources, weights, plan)
        yield Variant("activation again", feed_forward_backward, args, optimization=Optimization.CONVOLUTION)
    for parts in parts_of(len(value_of(gradient))):
        args = (*begin, sources, weights, plan, parts, *given)
        yield Variant(f"in {parts} parts", backward_in_parts, args, **_IN_PARTS)
        args = (*begin, sources, weights, plan_again, parts, *source)
        yield Variant(f"from the source, in {parts} parts", backward_in_parts, args, **_IN_PARTS)


@rule(weight_gradient)
def ways_of_weight(node: fx.Node) -> Iterator[Variant]:
    """In parts, with what it reads made again from the linear layers' sources."""
    args: Any = node.args
    _, _, gradient, by_class, middle, source = args
    for parts in parts_of(len(value_of(gradient))):
        args = (gradient, by_class, middle, parts, *source)
        yield Variant(f"from the source, in {parts} parts", weight_gradient_in_parts, args, **_IN_PARTS)
