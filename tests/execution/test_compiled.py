"""The choice of torch.compile's partitioner, as a schedule and for real."""

from __future__ import annotations

import copy

import pytest
import torch

import explorer
from explorer.capture import capture
from explorer.simulation import validate
from tests.execution.models import branches, tied_attention
from tests.solvers.methods.rotor.test_rotor import residual

MAKERS = {"residual": residual, "branches": branches, "tied attention": tied_attention}


@pytest.mark.thorough("residual", "branches")
@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("sample", MAKERS)
def test_gradients_are_those_of_eager_mode(sample: str, budget: float) -> None:
    model, batch, loss = MAKERS[sample]()
    plain = copy.deepcopy(model)
    schedule = explorer.compiled_schedule(model, batch, loss=loss, activation_memory_budget=budget)
    module = explorer.apply(model, schedule, batch, loss=loss)
    for trained in (module, plain):
        torch.manual_seed(3)
        if loss is None:
            trained(**batch)["loss"].backward()
        elif trained is module:
            trained(*batch).backward()
        else:
            loss(trained(batch[0]), batch[1]).backward()
    pairs = zip(module.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs if a.grad is not None and b.grad is not None)


def test_a_smaller_budget_saves_less() -> None:
    model, batch, loss = residual()
    graph = capture(model, batch, loss=loss).graph
    counts = []
    for budget in (1.0, 0.5, 0.0):
        schedule = explorer.compiled_schedule(model, batch, loss=loss, activation_memory_budget=budget)
        validate(graph, schedule)
        assert schedule.method == f"torch-compile {budget:g}"
        counts.append(sum(schedule.recomputed(graph).values()))
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_budget_is_a_share() -> None:
    model, batch, loss = residual()
    for call in (explorer.compiled_schedule, explorer.measure_compiled):
        with pytest.raises(ValueError, match=r"activation_memory_budget is 2\.0; it must be from 0 to 1"):
            call(model, batch, loss=loss, activation_memory_budget=2.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of PyTorch's compiler itself
def test_a_compiled_step_is_measured() -> None:
    model, batch, loss = residual()
    measured = explorer.measure_compiled(model, batch, loss=loss, steps=1, backend="aot_eager_decomp_partition")
    fixed_bytes = sum(x.untyped_storage().nbytes() for x in (*model.parameters(), *model.buffers(), *batch))
    assert measured.peak_bytes > fixed_bytes
    assert all(x.grad is None for x in model.parameters())
