"""What tracing gives: a joint ATen graph, and where its inputs come from and its outputs go."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import fx

from explorer.capture.results import ResultStructure


class Source(StrEnum):
    """Where the value of a graph input comes from when the step runs."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    INPUT = "input"
    CONSTANT = "constant"
    TANGENT = "tangent"


@dataclass(frozen=True)
class GraphInput:
    """A placeholder (or constant) of the joint graph.

    Attributes:
        node: in the graph.
        source: which kind of value.
        name: of the parameter or buffer in the step's module; for an input the index of its leaf, as text.
        constant: the value itself, for a constant.
        output: for a tangent, the index in ``Traced.outputs`` of the output whose gradient it is.
    """

    node: fx.Node
    source: Source
    name: str
    constant: torch.Tensor | None = None
    output: int | None = None


@dataclass(frozen=True)
class Traced:
    """A joint graph with its interface resolved.

    Attributes:
        graph: ATen calls of forward and backward.
        inputs: every placeholder and constant.
        outputs: the tensors of the step's result; after those, tensors that several of them are views of, which carry
            their gradients.
        mutations: (graph input, node with its new value) for each buffer that takes its new value at the end of the
            forward pass.
        gradients: (graph input, node with its gradient) for each input that gets one.
        result: rebuilds the step's result from its ``outputs``.
        returned: how many of the outputs the result has.
        refused: for each of those, whether it has no gradient here but has one in eager mode.
        differentiable: likewise, whether it carries a gradient.
        given: likewise, whether it is the caller's own tensor, and no view of one.
        changed: graph inputs that the forward pass changes, at its end or on the way.
        as_compiled: it is what the model does while it is compiled, because otherwise it looks at values: the same
            mathematics, but library code may take other kernels then, with other last bits.
        enters_autocast: the forward pass enters autocast where that is not active around it.
        asked: graph inputs that the forward pass asks whether they need a gradient.
    """

    graph: fx.Graph
    inputs: tuple[GraphInput, ...]
    outputs: tuple[Any, ...]
    mutations: tuple[tuple[GraphInput, fx.Node], ...]
    gradients: tuple[tuple[GraphInput, fx.Node], ...]
    result: ResultStructure
    returned: int
    refused: tuple[bool, ...]
    differentiable: tuple[bool, ...]
    given: tuple[bool, ...]
    changed: tuple[GraphInput, ...]
    enters_autocast: bool
    asked: frozenset[str]
    as_compiled: bool = False
