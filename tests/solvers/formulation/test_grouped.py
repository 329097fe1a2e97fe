from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers.formulation import grouped
from explorer.solvers.formulation.groups import group_stages
from explorer.solvers.formulation.merge import merge
from explorer.solvers.problem.building import problem_of
from tests.schedules import random_schedule
from tests.solvers.checks import check_optimum, check_solution
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import INPUT, GraphBuilder, chain, profiles
from tests.solvers.minimising import SHARES, budget_between, minimum, objective_of
from tests.solvers.unmerged import unmerged

slow = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(profiles(), SHARES)
def test_ungrouped_and_unmerged_it_finds_what_an_exhaustive_search_finds(profile: Profile, share: float):
    problem = problem_of(profile)
    check_optimum(problem, budget_between(problem, share))


@slow
@given(profiles(), SHARES, st.sampled_from((0.0, 0.2, 0.5)), st.sampled_from((0.0, 0.3)))
def test_the_simulator_finds_solutions_no_slower_and_no_larger(
    profile: Profile, share: float, threshold: float, pinned: float
):
    problem = problem_of(profile)
    check_solution(problem, budget_between(problem, share), threshold=threshold, pinned_share=pinned)


@slow
@given(profiles(), st.integers(0, 100), st.sampled_from((0.0, 0.3)))
def test_a_warm_start_is_a_solution(profile: Profile, seed: int, threshold: float):
    schedule = random_schedule(profile.graph, seed, keep=0.6)
    budget = simulate(profile, schedule).peak_bytes
    model = grouped.build(problem_of(profile), budget, threshold=threshold)
    encoded = model.encode(schedule)
    if encoded is not None:
        assert np.isin(encoded[model.milp.integer], (0.0, 1.0)).all()
        line = simulate(profile, model.decode(encoded))
        assert line.peak_bytes <= budget
        assert line.time_ms <= objective_of(model.milp, encoded) + 1e-9


@pytest.mark.parametrize("threshold", [0.0, 0.2])
def test_keeping_everything_is_a_solution_at_its_own_peak(threshold: float):
    profile = chain(12)
    keep = keep_all(profile.graph)
    problem = problem_of(profile)
    model = grouped.build(problem, simulate(profile, keep).peak_bytes, threshold=threshold)
    encoded = model.encode(keep)
    assert encoded is not None
    assert objective_of(model.milp, encoded) == problem.base_time_ms
    less = grouped.build(problem, simulate(profile, keep).peak_bytes - 1, threshold=threshold)
    assert less.encode(keep) is None


@pytest.mark.parametrize(("gradient_bytes", "fits"), [(240, True), (241, False)])
def test_an_activation_held_over_for_a_later_reader_of_the_sweep_is_charged(gradient_bytes: int, fits: bool):  # noqa: FBT001
    # The backward pass reads d alone. The end of the forward pass takes all of the budget, so that everything before it
    # is made again. The worst moment then is at c: a 10, c 40, its workspace 60, and b 50, which waits for d.
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (10,))
    (b,) = builder.forward((a,), (50,))
    (c,) = builder.forward((a,), (40,), workspace_bytes=60)
    (d,) = builder.forward((b, c), (60,))
    (e,) = builder.forward((d,), (200,))
    builder.forward((e,), (200,))
    builder.backward((builder.start_backward(gradient_bytes), d), 1)
    problem = problem_of(builder.profile())
    budget = problem.fixed_bytes + 400
    model = grouped.build(unmerged(problem), budget, threshold=0)
    found = minimum(model.milp)
    assert (found is not None) == fits == (fastest(problem, budget, sweeps=True) is not None)
    if found is not None:
        assert simulate(problem.profile, model.decode(found[1])).peak_bytes == budget


def test_a_larger_budget_changes_no_decision_only_room():
    problem = problem_of(chain(20))
    smaller, larger = (grouped.build(problem, budget_between(problem, x), threshold=0) for x in (0.5, 0.8))
    assert smaller.statistics == larger.statistics
    assert (smaller.milp.integer == larger.milp.integer).all()


def test_grouping_shrinks_the_program():
    problem = problem_of(chain(30))
    budget = budget_between(problem, 0.6)
    fine, coarse = (grouped.build(problem, budget, threshold=x) for x in (0.0, 0.3))
    assert fine.group_count == 30
    assert coarse.group_count < 10
    assert coarse.statistics.rows < fine.statistics.rows / 3


def test_groups_begin_with_a_need_and_cover_the_rest_of_the_backward_pass():
    merged = merge(problem_of(chain(10)))
    groups = group_stages(merged, budget_between(merged.problem, 0.7), threshold=0.25)
    assert groups[0].start == 1
    assert groups[-1].stop == len(merged.problem.backward)
    for before, after in pairwise(groups):
        assert before.stop == after.start
        assert merged.needs[after.start]


def test_a_step_that_needs_no_activation_has_no_groups():
    builder = GraphBuilder()
    builder.forward((INPUT,), (5,))
    builder.backward((builder.start_backward(),), 3)
    problem = problem_of(builder.profile())
    peak = simulate(problem.profile, keep_all(problem.graph)).peak_bytes
    for budget, fits in ((peak, True), (peak - 1, False)):
        model = grouped.build(problem, budget)
        assert model.group_count == 0
        assert (minimum(model.milp) is not None) == fits
