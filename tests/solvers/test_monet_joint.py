"""The grouped program and the bound on graphs with a choice of implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.simulation import simulate
from explorer.solvers.monet import bound, grouped
from explorer.solvers.monet.bound import lower_bound
from explorer.solvers.monet.merge import merge, relax
from explorer.solvers.problem import Problem
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import joint_profiles
from tests.solvers.minimising import budget_between, minimum
from tests.solvers.test_monet_grouped import SHARES

slow = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(joint_profiles(), SHARES)
def test_ungrouped_and_unmerged_it_finds_what_an_exhaustive_search_finds(profile: Profile, share: float):
    problem = Problem.of(profile)
    budget = budget_between(problem, share)
    model = grouped.build(merge(problem, pinned_share=0, fold=False), budget, threshold=0)
    found, best = minimum(model.milp), fastest(problem, budget, sweeps=True)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        assert found[0] == pytest.approx(best.time_ms)
        line = simulate(profile, best.schedule)
        assert line.peak_bytes <= budget
        assert line.time_ms == pytest.approx(best.time_ms)
        encoded = model.encode(best.schedule)
        assert encoded is not None
        assert model.milp.value(encoded) == pytest.approx(best.time_ms)


@slow
@given(joint_profiles(several_first=True), SHARES, st.sampled_from((0.0, 0.2, 0.5)), st.sampled_from((0.0, 0.3)))
def test_the_simulator_finds_solutions_no_slower_and_no_larger(
    profile: Profile, share: float, threshold: float, pinned: float
):
    problem = Problem.of(profile)
    budget = budget_between(problem, share)
    model = grouped.build(merge(problem, pinned_share=pinned), budget, threshold=threshold)
    found = minimum(model.milp)
    if found is None:
        return
    schedule = model.decode(found[1])
    line = simulate(profile, schedule)
    assert line.peak_bytes <= budget
    assert line.time_ms <= found[0] + 1e-9
    encoded = model.encode(schedule)
    assert encoded is not None
    assert np.isin(encoded[model.milp.integer], (0.0, 1.0)).all()
    assert model.milp.value(encoded) <= found[0] + 1e-9


@slow
@given(joint_profiles(several_first=True), SHARES, st.sampled_from((0.0, 0.4, 1.0)), st.sampled_from((0.0, 0.3)))
def test_no_schedule_of_any_kind_beats_a_relaxation(profile: Profile, share: float, threshold: float, pinned: float):
    problem = Problem.of(profile)
    budget = budget_between(problem, share)
    best = fastest(problem, budget, sweeps=False)
    if best is not None:
        found = minimum(bound._relaxation(relax(problem, pinned_share=pinned), budget, threshold))
        assert found is not None
        assert found[0] <= best.time_ms + 1e-6
