"""Schedules of a compiled step that other methods made, and calls that do not take what no loop has computed."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

import explorer


class Waves(nn.Module):
    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.sin(layer(x)) + x
        return x.square().sum()


def test_the_peak_is_that_of_what_the_compiler_makes_of_it() -> None:
    torch.manual_seed(0)
    model, batch = Waves(), torch.randn(1024, 64)
    profile = explorer.profile_compiled(model, batch)
    plan = explorer.solve(profile, budget="55 %", method="checkmate-rounding", time_limit=4)
    assert plan.schedule is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = explorer.compiled(model, plan.schedule, batch, profile=profile, measure=True)
    assert made.measured_peak_bytes is not None
    assert made.predicted_peak_bytes == pytest.approx(made.measured_peak_bytes, rel=0.1)
    if made.measured_peak_bytes > plan.budget_bytes:
        assert any("above the schedule's budget" in str(x.message) for x in caught)
    if made.unsaid and "above its budget" in made.unsaid[0]:
        assert any("above its budget" in str(x.message) for x in caught)
    own = explorer.solve(profile, budget="70 %", method="monet-compiled", time_limit=2)
    assert own.schedule is not None
    kept = explorer.compiled(model, replace(own.schedule, budget_bytes=None), batch, profile=profile)
    assert (kept.unsaid, kept.schedule.steps) == ((), own.schedule.steps)
    assert kept.predicted_peak_bytes == pytest.approx(own.peak_bytes, rel=0.1)


def test_a_step_above_the_budget_of_its_schedule_is_told() -> None:
    torch.manual_seed(0)
    model, batch = Waves(2), torch.randn(64, 64)
    profile = explorer.profile_compiled(model, batch)
    plan = explorer.solve(profile, budget="100 %", method="monet-compiled", time_limit=2)
    assert plan.schedule is not None
    made = explorer.compiled(model, plan.schedule, batch, profile=profile)
    assert made.budget_bytes == plan.budget_bytes, "and nothing is said of what was not measured"
    small = replace(plan.schedule, budget_bytes=1000)
    with pytest.warns(UserWarning, match=r"above the schedule's budget of 1000 B; explorer.compiled_within\(…"):
        explorer.compiled(model, small, batch, profile=profile, measure=True)


class Factored(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        factor = torch.linalg.cholesky(hidden.T @ hidden + torch.eye(16))
        return factor.square().sum() + torch.sin(self.second(hidden)).sum()


class Drawn(Factored):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.softmax(self.first(x), -1)
        chosen = torch.multinomial(hidden.detach() + 1e-6, 1)
        return torch.sin(self.second(hidden)).gather(1, chosen).sum()


@pytest.mark.parametrize("kind", [Factored, Drawn])
def test_calls_that_want_more_than_random_numbers(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    model, batch = kind(), torch.randn(64, 16)
    state = torch.get_rng_state()
    assert explorer.profile_compiled(model, batch).costs
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(before, state)
    assert explorer.compiled_within(model, batch, budget="120 %", time_limit=1).measured_peak_bytes
