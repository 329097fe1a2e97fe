"""What a step returns is as in eager mode: what requires a gradient and gets one, whose memory, which objects."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture
from explorer.capture.results import tensors_of_result

Result = tuple[torch.Tensor, ...]
Forward = Callable[["Model", torch.Tensor], Result]


class Model(nn.Module):
    """Returns what it is told to."""

    def __init__(self, returned: Forward) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.returned = returned

    def forward(self, x: torch.Tensor) -> Result:
        return self.returned(self, x)


class Reversed(torch.autograd.Function):
    """A gradient with another sign, for the same memory."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ARG004 - autograd's own signature
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:  # noqa: ARG004 - likewise
        return -gradients[0]


def _halves_of_changed(model: Model, x: torch.Tensor) -> Result:
    hidden = model.linear(x).contiguous()
    hidden.mul_(2.0)
    first, second = hidden.chunk(2)
    return first, second, second.detach()


def _with_metrics(model: Model, x: torch.Tensor) -> Result:
    hidden = model.linear(x)
    with torch.no_grad():
        return hidden, hidden.view(-1)


RETURNED: dict[str, Forward] = {
    "halves of what changed": _halves_of_changed,
    "the batch beside its detach": lambda model, x: (model.linear(x), x.detach(), x, x.detach()),
    "a buffer beside its views": lambda model, x: (model.linear(x), model.scale.detach(), model.scale, model.scale[:2]),
    "a parameter beside a loss": lambda model, x: (
        model.linear(x).sum(),
        model.linear.weight.detach(),
        model.linear.weight,
    ),
}


def _told(x: torch.Tensor, result: Result, model: nn.Module) -> list[Any]:
    known = [x, *model.parameters(), *model.buffers(), *result]
    memory = [y.untyped_storage().data_ptr() for y in known]
    return [
        (
            y.requires_grad,
            y.grad_fn is None,
            memory.index(y.untyped_storage().data_ptr()),
            next(i for i, z in enumerate(known) if z is y),
        )
        for y in result
    ]


def _gradients(model: nn.Module, trained: Result) -> list[torch.Tensor | None]:
    torch.stack([(y * torch.arange(y.numel()).view(y.shape)).sum() for y in trained]).sum().backward()
    return [y.grad for y in model.parameters()]


@pytest.mark.parametrize("returned", RETURNED.values(), ids=RETURNED.keys())
def test_results_are_as_in_eager_mode(returned: Forward) -> None:
    eager, x = Model(returned), torch.randn(4, 4)
    mine = copy.deepcopy(eager)
    graph = capture(mine, x).graph
    module = explorer.apply(mine, explorer.keep_all(graph), x)
    expected, found = eager(x), module(x)
    assert _told(x, found, module) == _told(x, expected, eager)
    losses = [tuple(y for y in z if y.requires_grad) for z in (expected, found)]
    for a, b in zip(_gradients(eager, losses[0]), _gradients(module, losses[1]), strict=True):
        assert (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))


def test_a_view_without_gradients_gets_none() -> None:
    """PyTorch says that it requires a gradient, as its base does, and lets none through."""
    eager, x = Model(_with_metrics), torch.randn(4, 4)
    mine = copy.deepcopy(eager)
    module = explorer.apply(mine, explorer.keep_all(capture(mine, x).graph), x)
    for a, b in zip(_gradients(eager, eager(x)), _gradients(module, module(x)), strict=True):
        assert a is not None
        assert b is not None
        assert torch.equal(a, b)


def _leaf(model: Model, x: torch.Tensor) -> Result:
    hidden = model.linear(x)
    return hidden, hidden.detach().requires_grad_()


def _reversed(model: Model, x: torch.Tensor) -> Result:
    hidden = model.linear(x)
    return hidden, Reversed.apply(hidden).view(-1)


@pytest.mark.parametrize(("returned", "remedy"), [(_leaf, "nn.Parameter"), (_reversed, "clone")])
def test_gradients_that_go_elsewhere_are_refused(returned: Forward, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        capture(Model(returned), torch.randn(4, 4))


class Einsum(nn.Module):
    """What it returns has another stride in a dimension of one element than ``ones_like`` of it has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(1, 4, 4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...ij,...kj->...ik", x + self.weight, x)


def test_a_gradient_that_differs_where_one_element_lies_alone_is_not_copied() -> None:
    model, x = Einsum(), torch.randn(1, 4, 4, 4)
    profile = explorer.profile(model, x)
    schedule = explorer.keep_all(profile.graph)
    measured = explorer.measure(explorer.apply(model, schedule, x), x, steps=1)
    assert measured.peak_bytes == explorer.simulate(profile, schedule).peak_bytes


def test_a_result_that_was_looked_into_goes_with_its_last_name():
    """Not when Python looks for cycles: a step's logits would lie beside the next one's."""
    tensor = torch.ones(3)
    gone = weakref.ref(tensor)
    result = {"loss": torch.ones(()), "parts": [(tensor,)]}
    gc.disable()
    try:
        assert len(tensors_of_result(result)) == 2
        del result, tensor
        assert gone() is None
    finally:
        gc.enable()
