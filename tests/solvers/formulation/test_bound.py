from __future__ import annotations

import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer import estimate
from explorer.device_profile import Profile
from explorer.models.gpt import GPT, GPTConfig
from explorer.profiles.loading import bundled_path, load_profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers.formulation import relaxation
from explorer.solvers.formulation.bound import LINEAR_THRESHOLDS, critical_ends, integer_bound, linear_bound
from explorer.solvers.formulation.merge import relax
from explorer.solvers.monet.blueprints import blueprint
from explorer.solvers.problem.building import problem_of
from explorer.solvers.search.plan_search import PlanSearch
from tests.solvers.checks import check_bound, check_relaxation, lower_bound
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import blocks, chain, profiles, repeated_profiles
from tests.solvers.minimising import SHARES, budget_between

slow = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(profiles(), SHARES, st.sampled_from((0.0, 0.4, 1.0)), st.sampled_from((0.0, 0.3)))
def test_no_schedule_of_any_kind_beats_a_relaxation(profile: Profile, share: float, threshold: float, pinned: float):
    problem = problem_of(profile)
    check_relaxation(problem, budget_between(problem, share), threshold=threshold, pinned_share=pinned)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profiles(), SHARES)
def test_no_schedule_of_any_kind_beats_the_bound(profile: Profile, share: float):
    problem = problem_of(profile)
    check_bound(problem, budget_between(problem, share))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(repeated_profiles(most_blocks=3, least_operators=2, most_operators=2), SHARES)
def test_no_schedule_of_equal_blocks_beats_the_bound(profile: Profile, share: float):
    problem = problem_of(profile)
    check_bound(problem, budget_between(problem, share))


def test_the_solution_of_a_linear_relaxation_is_a_plan_that_can_run():
    problem = problem_of(blocks(8))
    search, plans = PlanSearch(problem), []
    assert search.ready()
    budget = budget_between(problem, 0.5)
    found = linear_bound(
        problem,
        budget,
        thresholds=LINEAR_THRESHOLDS[:1],
        on_values=lambda relaxation, x: plans.append(blueprint(relaxation, x, search.arrays)),
    )
    assert found is not None
    assert len(plans) == 1
    plan = search.anneal_beside(budget, parent=plans[0], effort=0.01, seed=1)
    assert plan.fits
    assert plan.time_ms >= found


def test_it_is_tight_on_a_chain():
    problem = problem_of(chain(6))
    budget = budget_between(problem, 0.8)
    best = fastest(problem, budget, sweeps=False)
    assert best is not None
    assert best.time_ms > problem.base_time_ms
    found = lower_bound(problem, budget, time_limit=5.0)
    assert found is not None
    assert problem.base_time_ms < found == pytest.approx(best.time_ms, rel=0.1)


def test_where_everything_fits_it_is_the_time_without_recomputation():
    problem = problem_of(chain(6))
    peak = simulate(problem.profile, keep_all(problem.graph)).peak_bytes
    assert lower_bound(problem, peak, time_limit=5.0) == problem.base_time_ms


def test_a_budget_below_the_forward_pass_is_excluded():
    problem = problem_of(chain(6))
    assert lower_bound(problem, problem.fixed_bytes + 150, time_limit=5.0) is None
    assert lower_bound(problem, 1, time_limit=5.0) is None


def test_stopping_leaves_the_first_linear_bound():
    problem = problem_of(chain(30))
    budget = budget_between(problem, 0.5)
    found = linear_bound(problem, budget, should_stop=lambda: True)
    best = linear_bound(problem, budget)
    assert found is not None
    assert best is not None
    assert problem.base_time_ms < found <= best


@pytest.mark.thorough
def test_ends_in_the_right_places_raise_the_bound():
    profile = load_profile(bundled_path("unet-p100-16gb"))
    problem = problem_of(profile)
    budget = simulate(profile, keep_all(profile.graph)).peak_bytes * 45 // 100
    ends = critical_ends(problem, budget, threshold=math.inf, time_limit=20.0)
    assert ends
    without, found = (integer_bound(problem, budget, threshold=math.inf, ends=x, time_limit=20.0) for x in ((), ends))
    assert without is not None
    assert found is not None
    assert found > 1.002 * without


@pytest.mark.thorough
def test_its_program_grows_with_the_depth_and_no_faster():
    sizes = {}
    for layers in (4, 8):
        model = GPT(GPTConfig(vocabulary=40, context=32, layers=layers, heads=2, width=32))
        tokens = torch.zeros((2, 32), dtype=torch.long)
        profile = estimate(model, (tokens, tokens), device="A100-80GB")
        budget = (profile.fixed_bytes + simulate(profile, keep_all(profile.graph)).peak_bytes) // 2
        found = relaxation.build(relax(problem_of(profile)), budget, threshold=math.inf)
        sizes[layers] = len(profile.graph.operators), found.milp.matrix.nnz
    assert sizes[8][1] / sizes[4][1] < 1.1 * sizes[8][0] / sizes[4][0]
