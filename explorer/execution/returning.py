"""What a step hands to its caller: results of the schedule, tensors of the caller's own, and views of either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import getitem
from typing import Any

import torch
from torch import fx

from explorer.capture import Capture
from explorer.capture.normalise import is_view
from explorer.capture.traced import Source


class Returning:
    """Puts the outputs of a step together, so that gradients flow as in eager mode.

    A tensor that the caller gave comes back as it is. What carries no gradient comes back detached, as an object of its
    own. An output that is a view of another one, or of what was given, is made from that one by the captured views:
    autograd knows it as a view then. An output that lost its gradient, because only scalars carry one, says so when a
    gradient arrives at it.
    """

    def __init__(self, capture: Capture) -> None:
        """For the steps of one capture."""
        traced = capture.traced
        self._outputs = traced.outputs[: traced.returned]
        self._inputs = _given(capture)
        self._own = {traced.outputs[index]: number for number, index in enumerate(made_by_step(capture))}
        self._refused = traced.refused
        self._differentiable = traced.differentiable
        self._given = traced.given

    def outputs(self, values: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The tensors of one step's result.

        Args:
            values: of the graph inputs, as the caller gave them.
            tensors: what the step's autograd function returned.
        """
        known: dict[fx.Node, Any] = {node: values[index] for node, index in self._inputs.items()}
        known |= {node: tensors[number] for node, number in self._own.items()}
        anchor = next((x for x in tensors if x.requires_grad), None)
        return [self._output(index, known, anchor) for index in range(len(self._outputs))]

    def _output(self, index: int, known: dict[fx.Node, Any], anchor: torch.Tensor | None) -> Any:
        node = self._outputs[index]
        if not isinstance(node, fx.Node):
            return node
        for view in _views_to(node, known) or ():
            known[view] = _view(view, known)
        found = known[node]
        if self._given[index] and node in self._inputs:
            return found
        if self._refused[index] and anchor is not None:
            return _WithoutGradient.apply(found.detach(), anchor)
        # What the model detached has the memory of another tensor, and not its gradient; nor is it the same object.
        return found if self._differentiable[index] else found.detach()


def made_by_step(capture: Capture) -> list[int]:
    """Positions of the outputs that the step itself returns: the others are the caller's own, or views of either."""
    traced = capture.traced
    with_tangent = {x.output for x in traced.inputs if x.source is Source.TANGENT}
    made = {x: index for index, x in enumerate(traced.outputs) if index in with_tangent}
    given = _given(capture)
    for index, node in enumerate(traced.outputs):
        if isinstance(node, fx.Node) and _views_to(node, {**made, **given}) is None:
            made[node] = index
    return sorted(made.values())


def _given(capture: Capture) -> dict[fx.Node, int]:
    """Positions of the graph inputs that the caller knows, by what they are before and after the step."""
    position = {x: index for index, x in enumerate(capture.traced.inputs)}
    known = {x.node: index for x, index in position.items() if x.source not in (Source.TANGENT, Source.CONSTANT)}
    # A tensor of the batch that was changed in place and comes back is that tensor.
    return known | {node: position[x] for x, node in capture.traced.mutations if x.source is Source.INPUT}


def _views_to(node: fx.Node, known: Mapping[fx.Node, Any]) -> list[fx.Node] | None:
    """The views between a known tensor and ``node``, in order; None where there is no such chain."""
    chain: list[fx.Node] = []
    while node not in known:
        sources = node.all_input_nodes
        if not (is_view(node) or node.target is getitem) or len(sources) != 1:
            return None
        chain.append(node)
        node = sources[0]
    return chain[::-1]


def _view(node: fx.Node, known: Mapping[fx.Node, Any]) -> Any:
    assert callable(node.target)
    args: Any = fx.map_arg(node.args, known.__getitem__)
    kwargs: Any = fx.map_arg(node.kwargs, known.__getitem__)
    return node.target(*args, **kwargs)


class _WithoutGradient(torch.autograd.Function):
    """An output that requires a gradient, as in eager mode, but cannot have one in this schedule."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - ties them
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:  # noqa: ARG004 - autograd's own signature
        raise RuntimeError(
            "a gradient arrived at an output that has none in this schedule: where a model returns a loss (a scalar), "
            "only losses carry gradients. Put the term into the loss: profile, solve and apply with "
            "loss=lambda outputs, target: …"
        )
