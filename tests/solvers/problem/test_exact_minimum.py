"""The smallest peak of small problems, against a search over all schedules; how soon, in searches."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

import explorer
from explorer.device_profile import Profile
from explorer.graph import Role
from explorer.simulation import simulate
from explorer.solvers.problem import exact_minimum as searched
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.exact_minimum import exact_minimum
from explorer.solvers.problem.pins import Pins, Stay
from explorer.solvers.search.plan_search import PlanSearch
from tests.execution.models import tied_attention
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import chain, joint_profiles


@settings(max_examples=60)
@given(joint_profiles(several_first=True))
def test_nothing_smaller_exists(profile: Profile) -> None:
    problem = problem_of(profile)
    schedule = exact_minimum(problem)
    assert schedule is not None
    assert schedule.budget_bytes is not None
    assert schedule.budget_bytes == simulate(profile, schedule).peak_bytes
    assert fastest(problem, schedule.budget_bytes, sweeps=False) is not None
    assert fastest(problem, schedule.budget_bytes - 1, sweeps=False) is None


def test_of_a_small_network_it_is_proven_without_a_long_search(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, loss = tied_attention()
    profile = explorer.estimate(model, batch, loss=loss, device="A100-80GB")

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(PlanSearch, "budgets", refuse)
    monkeypatch.setattr(PlanSearch, "shrink", refuse)
    found = explorer.smallest_budget(profile, optimizations="none")
    assert found.minimum is not None
    assert found.minimum.proven
    assert found.peak_bytes == found.budget_bytes == found.minimum.budget_bytes


def test_what_is_too_large_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = chain(6)
    problem = problem_of(profile)
    assert exact_minimum(problem) is not None
    assert (
        exact_minimum(
            problem_of(
                profile,
                pins=Pins(
                    tensors=((next(x.name for x in profile.graph.storages if x.role is Role.ACTIVATION), Stay.KEEP),)
                ),
            )
        )
        is None
    )
    monkeypatch.setattr(searched, "_WORK", 10)
    assert exact_minimum(problem) is None
    monkeypatch.setattr(searched, "_MOST_TOGETHER", 2)
    assert exact_minimum(problem) is None
