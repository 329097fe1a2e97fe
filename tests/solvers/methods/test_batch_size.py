"""The largest batch within a budget, and at most one more forward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer import Status, simulate
from explorer.graph import Role
from explorer.rearranging import UPDATE
from explorer.schedule import keep_all
from explorer.solvers.methods.batch_size import largest_batch, with_batch_size
from explorer.solvers.methods.checkmate.nodes import Nodes
from tests.solvers.graphs import chain

PROFILE = chain(6)  # measured for 10 samples
BUDGET = 1500  # a few dozen samples: a solve for each bisection


def test_growth() -> None:
    larger = with_batch_size(PROFILE, 30, measured=10)
    plain, grown = (simulate(x, keep_all(x.graph)) for x in (PROFILE, larger))
    assert grown.time_ms == pytest.approx(3 * plain.time_ms)
    assert plain.peak_bytes < grown.peak_bytes < 3 * plain.peak_bytes


def test_without_recomputation_it_is_a_division() -> None:
    budget = BUDGET
    found = largest_batch(PROFILE, budget=budget, method="checkpoint-all")

    def peak(batch_size: int) -> int:
        scaled = with_batch_size(PROFILE, batch_size, measured=10)
        return simulate(scaled, keep_all(scaled.graph)).peak_bytes

    assert peak(found.batch_size) <= budget < peak(found.batch_size + 1)
    assert found.excluded == found.batch_size + 1


@pytest.mark.thorough("checkmate-d")
@pytest.mark.parametrize("method", ["checkmate-d", "monet-checkpointing"])
def test_recomputation_allows_more(method: str) -> None:
    plain = largest_batch(PROFILE, budget=BUDGET, method="checkpoint-all")
    found = largest_batch(PROFILE, budget=BUDGET, method=method, time_limit=2.0)
    assert found.batch_size > 1.2 * plain.batch_size
    assert found.profile is not None
    assert found.solution is not None
    assert found.solution.schedule is not None
    timeline = simulate(found.profile, found.solution.schedule)
    assert timeline.peak_bytes <= BUDGET
    nodes = Nodes.of(found.profile)
    assert timeline.time_ms <= nodes.step_ms + nodes.forward_ms + 1e-9


def test_nothing_fits() -> None:
    found = largest_batch(PROFILE, budget=100, method="checkpoint-all")
    assert (found.batch_size, found.solution) == (0, None)


def test_what_is_made_of_parameters_alone_does_not_grow() -> None:
    """Casts of weights, and an optimizer's scratch memory."""
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    batch = torch.randn(256, 64), torch.randn(256, 64)
    profile = explorer.profile(model, batch, loss=F.mse_loss, autocast=torch.bfloat16, optimizer="adamw-foreach")
    half = with_batch_size(profile, 128, measured=256)
    casts = [
        x.id
        for x in profile.graph.storages
        if x.role is Role.ACTIVATION and list(x.shape) == [64, 64] and x.dtype == "bfloat16"
    ]
    assert len(casts) >= 3
    assert all(half.graph.storages[x].bytes == profile.graph.storages[x].bytes for x in casts)
    assert half.costs[UPDATE] == profile.costs[UPDATE]
    found = largest_batch(profile, budget="60 %", method="eager")
    assert found.solution is not None
    assert found.solution.status is Status.FEASIBLE
    assert found.solution.message.endswith("as far as sizes and times grow in proportion from those of 256 samples")
