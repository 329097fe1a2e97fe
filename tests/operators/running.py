"""A captured step, operator by operator, with any implementation of any of them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from explorer.capture import Capture
from explorer.capture.building import TANGENTS, Call
from explorer.capture.traced import Source


class Scaled(nn.Module):
    """A module whose input is an activation: the batch times a parameter, each element with its own.

    What it returns is halved, so that the gradient of the module's result is one that may be overwritten.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(shape))
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x * self.scale) * 0.5


class Running:
    """Values of every tensor of a step."""

    def __init__(self, captured: Capture, model: nn.Module, inputs: list[torch.Tensor]) -> None:
        self.captured = captured
        self.values: dict[fx.Node, Any] = {}
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        for x in captured.traced.inputs:
            if x.source in (Source.PARAMETER, Source.BUFFER):
                self.values[x.node] = named[x.name.removeprefix("model.")].detach().clone()
            elif x.source is Source.INPUT:
                self.values[x.node] = inputs[int(x.name)]
            elif x.source is Source.CONSTANT:
                self.values[x.node] = x.constant

    @torch.no_grad()
    def run(self, tangents: list[torch.Tensor], chosen: Mapping[int, str] | None = None) -> None:
        """Run all operators, with the chosen implementations of some (by operator id)."""
        torch.manual_seed(5)
        graph, chosen = self.captured.graph, chosen or {}
        made: set[int] = set()
        for op in graph.operators:
            implementation = op.implementation(chosen[op.id]) if op.id in chosen else op.default()
            call = self.captured.built.calls[op.id, implementation.name]
            if op.target == TANGENTS:
                self.values |= dict(zip(call.results, tangents, strict=True))
                continue
            if op.id not in chosen and op in graph.backward and op.optional and set(implementation.writes) <= made:
                continue
            made |= set(implementation.writes)
            results = self.outcome(call)
            self.values |= {node: x for node, x in zip(call.results, results, strict=True) if node is not None}

    @torch.no_grad()
    def outcome(self, call: Call, *, dtype: torch.dtype | None = None) -> tuple[Any, ...]:
        """What a call returns, on copies of its arguments, in another precision if that is wanted."""
        copies: dict[fx.Node, Any] = {}

        def value(node: fx.Node) -> Any:
            if node not in copies:
                found = self.value(node)
                copies[node] = found if isinstance(found, tuple | list) else _copied(found, dtype)
            return copies[node]

        args: Any = fx.map_arg(call.args, value)
        kwargs: Any = fx.map_arg(call.kwargs, value)
        results = call.target(*args, **kwargs)
        if call.is_tuple:
            # What nobody reads may be missing.
            return tuple(results) + (None,) * (len(call.results) - len(results))
        return (results,) if call.results else ()

    def value(self, node: fx.Node) -> Any:
        if node not in self.values:
            assert callable(node.target)
            args: Any = fx.map_arg(node.args, self.value)
            kwargs: Any = fx.map_arg(node.kwargs, self.value)
            return operator.getitem(*args) if node.target is operator.getitem else node.target(*args, **kwargs)
        return self.values[node]

    def gradients(self) -> list[torch.Tensor]:
        return [self.value(node) for _, node in self.captured.traced.gradients]

    def outputs(self) -> list[torch.Tensor]:
        return [self.value(x) for x in self.captured.traced.outputs]


def _copied(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """With the same strides, even where elements share memory."""
    if dtype is not None and tensor.is_floating_point():
        return tensor.to(dtype)
    if 0 in tensor.stride():
        return tensor.detach()
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def gradient_function(captured: Capture, model: nn.Module, chosen: Mapping[int, str]) -> Any:
    """The step as a function of its differentiable inputs, for ``torch.autograd.gradcheck``."""
    differentiable = [x for x, _ in captured.traced.gradients]
    inputs = [x for x in captured.traced.inputs if x.source is Source.INPUT]

    def prepared(values: tuple[torch.Tensor, ...], batch: list[torch.Tensor]) -> Running:
        torch.manual_seed(0)
        running = Running(captured, model, batch)
        running.values |= {x.node: value.detach() for x, value in zip(differentiable, values, strict=True)}
        return running

    class Step(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, batch: list[torch.Tensor], *values: torch.Tensor) -> torch.Tensor:
            ctx.batch, ctx.values = batch, values
            running = prepared(values, batch)
            running.run([torch.zeros_like(x) for x in fake_tangents(captured)], chosen)
            return running.outputs()[0].clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            running = prepared(ctx.values, ctx.batch)
            (tangent,) = (torch.empty_like(x).copy_(gradient) for x in fake_tangents(captured))
            running.run([tangent], chosen)
            return (None, *(x.clone() for x in running.gradients()))

    assert len(inputs) == 1
    return Step


def fake_tangents(captured: Capture) -> list[torch.Tensor]:
    nodes = [x.node for x in captured.traced.inputs if x.source is Source.TANGENT]
    fakes = [x.meta["val"] for x in nodes]
    return [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype) for x in fakes]
