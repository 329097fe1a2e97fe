"""The program as published finds the best order of small tasks, and places tensors within it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import explorer
from explorer import keep_all, load_profile, simulate, solve
from explorer.solution import Status
from explorer.solvers.ordering.order import best_order
from explorer.solvers.ordering.paper import PaperProgram, solve_as_published
from explorer.solvers.ordering.schedules import least_memory
from explorer.solvers.ordering.task import Task
from tests.solvers.graphs import chain
from tests.solvers.ordering.tasks import random_task


@pytest.mark.parametrize("seed", range(6))
def test_the_best_order_is_the_same(seed: int) -> None:
    random = np.random.default_rng(seed)
    for _ in range(3):
        task = random_task(random, most=7)
        found = solve_as_published(task, time_limit=60)
        assert found.operators is not None
        assert task.peak_bytes(found.operators) == best_order(task).peak_bytes == found.bound_bytes


@pytest.mark.parametrize("seed", range(3))
def test_addresses_hold_what_is_alive_apart(seed: int) -> None:
    task = random_task(np.random.default_rng(seed), most=6)
    found = solve_as_published(task, time_limit=60, addresses=True)
    assert found.operators is not None
    assert found.addresses is not None
    edges = PaperProgram(task, addresses=True).edges
    step = {x: at for at, x in enumerate(found.operators)}

    def stay(x: int) -> range:
        last = max((step[y] for y in edges[x].sinks), default=step[edges[x].source])
        return range(step[edges[x].source], len(task) if edges[x].held else last + 1)

    ends = [address + edge.size_bytes for address, edge in zip(found.addresses, edges, strict=True)]
    assert task.fixed_bytes + max(ends, default=0) >= best_order(task).peak_bytes
    for j in range(len(edges)):
        for i in range(j):
            if set(stay(i)) & set(stay(j)) and edges[i].size_bytes and edges[j].size_bytes:
                assert ends[i] <= found.addresses[j] or ends[j] <= found.addresses[i]


def test_a_step_as_published_takes_no_more_than_ours() -> None:
    profile = chain(4)
    budget = simulate(profile, keep_all(profile.graph)).peak_bytes
    ours, theirs = (solve(profile, budget=budget, method="model", formulation=x) for x in ("grouped", "paper"))
    assert ours.schedule is not None
    assert theirs.schedule is not None
    assert "binary variables" in theirs.message
    assert theirs.peak_bytes == min(simulate(profile, x).peak_bytes for x in least_memory(profile).schedules)


def test_a_result_in_the_memory_of_its_source_counts_once() -> None:
    """Of a residual sum and what is computed in place, the program proves what the search does."""
    torch.manual_seed(0)
    profile = explorer.profile(_Residual(), torch.randn(64, 8))
    ours, theirs = (solve(profile, budget="100 %", method="model", formulation=x) for x in ("grouped", "paper"))
    assert ours.minimum is not None
    assert theirs.minimum is not None
    assert theirs.minimum.proven
    assert theirs.minimum.lower_bound_bytes == theirs.minimum.budget_bytes == ours.minimum.budget_bytes


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        between = torch.tanh(self.first(x))
        return self.last(torch.sigmoid(self.second(between)) + between).square().mean()


def test_a_large_step_is_not_stated_as_published() -> None:
    answer = solve(load_profile("resnet50-a100-80gb"), budget="90 %", method="model", formulation="paper")
    assert answer.status is Status.UNSUITED
    assert "up to 60 runs" in answer.message


def test_of_a_chain_all_is_known_beforehand() -> None:
    task = Task(
        reads=((), (0,), (1,), (2,)),
        writes=((0,), (1,), (2,), ()),
        tensor_bytes=(4, 2, 3),
        workspace_bytes=(0, 0, 0, 1),
    )
    found = solve_as_published(task, time_limit=10)
    assert found.binaries == 0  # equations 10 to 12
    assert found.operators == (0, 1, 2, 3)
    assert found.bound_bytes == 6
