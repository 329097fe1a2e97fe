"""Convolutions: other algorithms, and the backward pass in two halves.

The weight gradient needs the input, the input gradient needs no activation: computed one after the other, the input is
free in between (MONeT appendix D). PyTorch's own call computes both at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from explorer.graph import Optimization
from explorer.operators.convolution_algorithms import Geometry, algorithm_called, algorithms_for, stand_in
from explorer.operators.registry import (
    DEFAULT,
    Variant,
    all_arguments,
    device_kind,
    output_of,
    rule,
    value_of,
    wanted_outputs,
)

aten = torch.ops.aten


@rule(aten.convolution.default)
def forward(node: fx.Node) -> Iterator[Variant]:
    """Every algorithm, where the result is contiguous as PyTorch's own is."""
    source, weight, bias, *geometry = _spelled_out(all_arguments(node), of=1)
    if not value_of(node).is_contiguous() or not _is_batch(source, geometry):
        return
    for algorithm in algorithms_for(_geometry(source, weight, geometry)):
        if algorithm.forward is not None:
            yield Variant(
                algorithm.name,
                run_forward,
                (algorithm.name, source, weight, bias, *geometry),
                exact=False,
                optimization=Optimization.CONVOLUTION,
            )


@rule(aten.convolution_backward.default)
def backward(node: fx.Node) -> Iterator[Variant]:
    """Two halves where PyTorch's own call does both; algorithms for each."""
    gradient, source, weight, bias_size, *geometry, _ = _spelled_out(all_arguments(node), of=2)
    wanted = wanted_outputs(node)
    if not wanted or not _is_batch(source, geometry):
        return
    parameters = tuple(x for x in wanted if x > 0)
    if 0 in wanted:
        # With nothing but the input's gradient to compute, the call itself need not read the input.
        part = "input" if parameters else ""
        args = (gradient, weight, *_layout(source), *geometry)
        name = DEFAULT if part else "without input"
        yield Variant(name, input_half, args, (0,), part=part)
        yield from _input_algorithms(node, geometry, part)
    if not parameters:
        return
    stem = ""
    if 0 in wanted:
        stem = "weight gradient"
        # A parameter is in memory anyway; a weight that was computed need not be.
        there = weight if weight.op in ("placeholder", "get_attr") else None
        args = (gradient, source, there, *_layout(weight), bias_size, *geometry, [False, 1 in wanted, 2 in wanted])
        yield Variant(stem, parameter_half if len(parameters) == 2 else lone_half, args, parameters)
    yield from _weight_algorithms(node, geometry, parameters, stem)


def _input_algorithms(node: fx.Node, geometry: list[Any], part: str) -> Iterator[Variant]:
    gradient, source, weight = all_arguments(node)[:3]
    result = output_of(node, 0)
    if result is None or not value_of(result).is_contiguous():
        return
    for algorithm in algorithms_for(_geometry(source, weight, geometry)):
        if algorithm.input_gradient is not None:
            yield Variant(
                algorithm.name,
                run_input_gradient,
                (algorithm.name, gradient, weight, list(value_of(source).shape), *geometry),
                (0,),
                exact=False,
                optimization=Optimization.CONVOLUTION,
                part=part,
            )


def _weight_algorithms(node: fx.Node, geometry: list[Any], parameters: tuple[int, ...], stem: str) -> Iterator[Variant]:
    gradient, source, weight = all_arguments(node)[:3]
    result = output_of(node, 1)
    if result is None or not value_of(result).is_contiguous():
        return
    for algorithm in algorithms_for(_geometry(source, weight, geometry)):
        if algorithm.weight_gradient is not None:
            yield Variant(
                f"{stem}, {algorithm.name}" if stem else algorithm.name,
                run_parameter_gradients if 2 in parameters else run_weight_gradient,
                (algorithm.name, gradient, source, list(value_of(weight).shape), *geometry),
                parameters,
                exact=False,
                optimization=Optimization.CONVOLUTION,
            )


def _geometry(source: Any, weight: Any, geometry: list[Any]) -> Geometry:
    stride, padding, dilation, transposed, output_padding, groups = geometry
    return Geometry(
        source=tuple(value_of(source).shape),
        weight=tuple(value_of(weight).shape),
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        transposed=transposed,
        output_padding=tuple(output_padding),
        groups=groups,
        dtype=value_of(source).dtype,
        device=device_kind(value_of(source).device),
    )


def _spelled_out(arguments: Sequence[Any], *, of: int) -> list[Any]:
    """With strides, paddings and dilations for every dimension: ATen takes one for all (``padding="valid"`` gives it).

    Args:
        arguments: of a convolution or its backward.
        of: where its weight stands among them.
    """
    dimensions = value_of(arguments[of]).dim() - 2
    spelled = list(arguments)
    for place, argument in enumerate(arguments[of + 2 :], of + 2):
        if isinstance(argument, list | tuple) and len(argument) == 1:
            spelled[place] = list(argument) * dimensions
    return spelled


def _is_batch(source: Any, geometry: list[Any]) -> bool:
    return value_of(source).dim() == len(geometry[0]) + 2


def _layout(node: Any) -> tuple[list[int], list[int]]:
    return list(value_of(node).shape), list(value_of(node).stride())


def run_forward(
    name: str, source: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: Any
) -> torch.Tensor:
    """The output, by the algorithm called ``name``."""
    run = algorithm_called(name).forward
    assert run is not None
    return run(source, weight, bias, *geometry)


def run_weight_gradient(
    name: str, gradient: torch.Tensor, source: torch.Tensor, shape: Sequence[int], *geometry: Any
) -> torch.Tensor:
    """The weight's gradient, by the algorithm called ``name``."""
    run = algorithm_called(name).weight_gradient
    assert run is not None
    return run(gradient, source, shape, *geometry)


def run_parameter_gradients(
    name: str, gradient: torch.Tensor, source: torch.Tensor, shape: Sequence[int], *geometry: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight's gradient, by the algorithm called ``name``, and the bias's."""
    of_weight = run_weight_gradient(name, gradient, source, shape, *geometry)
    return of_weight, gradient.sum([0, *range(2, gradient.dim())])


def run_input_gradient(
    name: str, gradient: torch.Tensor, weight: torch.Tensor, shape: Sequence[int], *geometry: Any
) -> torch.Tensor:
    """The input's gradient, by the algorithm called ``name``."""
    run = algorithm_called(name).input_gradient
    assert run is not None
    return run(gradient, weight, shape, *geometry)


def input_half(
    gradient: torch.Tensor, weight: torch.Tensor, shape: Sequence[int], strides: Sequence[int], *geometry: Any
) -> torch.Tensor:
    """PyTorch's own kernel for the input's gradient alone; of the input it needs the layout."""
    source = stand_in(shape, strides, gradient, weight)
    return aten.convolution_backward.default(gradient, source, weight, None, *geometry, [True, False, False])[0]


def parameter_half(
    gradient: torch.Tensor,
    source: torch.Tensor,
    weight: torch.Tensor | None,
    shape: Sequence[int],
    strides: Sequence[int],
    bias_size: Sequence[int] | None,
    *geometry: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's own kernel for the gradients of weight and bias; of the weight it needs the layout.

    ``geometry`` ends with which of the three gradients are wanted.
    """
    if weight is None:
        weight = stand_in(shape, strides, source, gradient)
    _, of_weight, of_bias = aten.convolution_backward.default(gradient, source, weight, bias_size, *geometry)
    return of_weight, of_bias


def lone_half(gradient: torch.Tensor, *args: Any) -> torch.Tensor:
    """``parameter_half`` where only one of the two is wanted."""
    of_weight, of_bias = parameter_half(gradient, *args)
    # PyTorch gives the weight's in one dimension though it is not wanted.
    *_, (_, weight_wanted, _) = args
    return of_weight if weight_wanted else of_bias
