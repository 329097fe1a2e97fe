"""The backward pass as autograd sees it: a gradient comes when it is complete, and what is done with it is in time."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional

import explorer
from explorer.capture import capture
from explorer.capture.results import tensors_of_result
from explorer.execution import completion
from explorer.execution.memory import watch_cpu_memory
from explorer.execution.scheduled import ScheduledModule
from explorer.graph import Role
from explorer.iteration import Iteration
from explorer.rearranging import in_iteration
from tests.execution.models import Sample, branches, families, graph_of, shared, tied_attention
from tests.schedules import random_schedule

MODELS = [branches, families, shared, tied_attention]


def both(
    make: Callable[[], Sample], seed: int
) -> tuple[ScheduledModule, nn.Module, Callable[[nn.Module], torch.Tensor]]:
    """A scheduled module, an equal model for eager mode, and what a step's loss is for either."""
    model, batch, loss = make()
    schedule = random_schedule(graph_of(make), seed, keep=0.4)
    module = explorer.apply(copy.deepcopy(model), schedule, batch, loss=loss, check=False)

    def loss_of(step: nn.Module) -> torch.Tensor:
        torch.manual_seed(7)
        if isinstance(batch, dict):
            return step(**batch)["loss"]
        if loss is None:
            return sum((x.mean() for x in tensors_of_result(step(batch))), torch.zeros(()))
        return step(*batch) if step is module else loss(step(batch[0]), batch[1])

    return module, model, loss_of


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make", MODELS)
def test_an_update_within_the_backward_pass_is_eager_modes(make: Callable[[], Sample], seed: int) -> None:
    """Whatever is recomputed after it: a parameter changes only when nothing reads it any more."""
    module, model, loss_of = both(make, seed)
    for step in (module, model):
        for parameter in step.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_update)
        for _ in range(3):
            loss_of(step).backward()
            assert all(x.grad is None for x in step.parameters())
    for (name, mine), theirs in zip(module.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, theirs), name


def _update(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    with torch.no_grad():
        parameter.sub_(parameter.grad, alpha=0.1)
    parameter.grad = None


@pytest.mark.parametrize("most", [8, 1000], ids=["usual", "each"])
def test_hooks_run_between_nodes(most: int) -> None:
    """In the order in which gradients are complete, each before the next operators run."""
    with mock.patch.object(completion, "_MOST_GROUPS", most):
        module, _, loss_of = both(branches, 0)
    seen: list[str] = []
    for name, parameter in module.named_parameters():
        parameter.register_hook(lambda _, name=name: seen.append(f"{name} arrives"))
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: seen.append(f"{name} is there"))
    loss_of(module).backward()
    groups = type(module).plans[0].program.groups
    gradients = type(module).plans[0].capture.traced.gradients
    names = [[gradients[x][0].name.removeprefix("model.") for x in group] for group in groups]
    assert len(groups) > (4 if most > 8 else 2)
    for group in names:
        told = [seen.pop(0) for _ in range(2 * len(group))]
        assert sorted(told) == sorted(f"{x} {what}" for x in group for what in ("arrives", "is there"))
    assert not seen


def test_a_gradient_that_is_dropped_takes_no_memory() -> None:
    """Of a chain of equal layers, one gradient is there at a time instead of all."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8)))
    batch, loss = (torch.randn(2, 64), torch.zeros(2, 64)), functional.mse_loss
    graph = capture(model, batch, loss=loss).graph
    module = explorer.apply(model, explorer.keep_all(graph), batch, loss=loss)

    def step() -> None:
        module(*batch).backward()
        for parameter in module.parameters():
            parameter.grad = None

    step()
    kept_bytes = watch_cpu_memory(step).peak_bytes()
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(lambda x: setattr(x, "grad", None))
    dropped_bytes = watch_cpu_memory(step).peak_bytes()
    (gradient_bytes,) = {x.bytes for x in graph.storages if x.role is Role.PARAMETER_GRADIENT}
    assert kept_bytes - dropped_bytes > 6 * gradient_bytes


def test_small_gradients_wait_for_the_next_large_one() -> None:
    """A node costs as much for a bias as for a table of words; where gradients' fates are planned, none waits."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)) for _ in range(4)))
    batch, loss = (torch.randn(2, 64), torch.zeros(2, 64)), functional.mse_loss
    graph = capture(model, batch, loss=loss).graph
    groups, apart = (
        type(explorer.apply(model, explorer.keep_all(x), batch, loss=loss, check=False)).plans[0].program.groups
        for x in (graph, in_iteration(graph, Iteration(accumulate=True)))
    )
    assert len(groups) <= 5 < len(apart)
    positions = sorted(position for group in groups for position in group)
    assert positions == list(range(16))


@pytest.mark.parametrize("make", MODELS)
def test_gradients_of_some_parameters(make: Callable[[], Sample]) -> None:
    module, model, loss_of = both(make, 1)
    for chosen in ([0], [-1], [0, -1]):
        mine, theirs = ([x for x in step.parameters() if x.requires_grad] for step in (module, model))
        wanted, expected = [mine[x] for x in chosen], [theirs[x] for x in chosen]
        found = torch.autograd.grad(loss_of(module), wanted)
        assert all(map(torch.equal, found, torch.autograd.grad(loss_of(model), expected)))
        loss_of(module).backward(inputs=wanted)
        loss_of(model).backward(inputs=expected)
        for a, b in zip(mine, theirs, strict=True):
            assert (a.grad is None) == (b.grad is None)
            assert a.grad is None or torch.equal(a.grad, b.grad)
            a.grad = b.grad = None


def test_a_backward_pass_that_ends_early_is_freed_without_the_garbage_collector() -> None:
    module, _, loss_of = both(branches, 0)
    last = list(module.parameters())[-1]
    gc.collect()
    gc.disable()
    try:
        loss = loss_of(module)
        step = weakref.ref(loss.grad_fn.step)  # type: ignore[union-attr]
        loss.backward(inputs=[last])
        del loss
        assert step() is None
    finally:
        gc.enable()


def test_a_hook_that_raises_ends_the_step() -> None:
    module, _, loss_of = both(branches, 0)

    def fail(_: torch.Tensor) -> None:
        raise ArithmeticError("no")

    handle = module.stem.weight.register_post_accumulate_grad_hook(fail)
    with pytest.raises(ArithmeticError):
        loss_of(module).backward()
    handle.remove()
    module.zero_grad()
    loss_of(module).backward()
