"""The grouped program and the bound on graphs with a choice of implementations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.graph import Optimization
from explorer.schedule import Run
from explorer.simulation import simulate
from explorer.solvers.formulation import grouped
from explorer.solvers.formulation.merge import merge
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.problem import Problem
from tests.solvers.checks import check_bound, check_optimum, check_relaxation, check_solution, lower_bound
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import INPUT, GraphBuilder, joint_profiles
from tests.solvers.minimising import SHARES, budget_between, minimum, objective_of
from tests.solvers.unmerged import unmerged

slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(joint_profiles(), SHARES)
def test_ungrouped_and_unmerged_it_finds_what_an_exhaustive_search_finds(profile: Profile, share: float):
    problem = problem_of(profile)
    check_optimum(problem, budget_between(problem, share))


@slow
@given(joint_profiles(several_first=True), SHARES, st.sampled_from((0.0, 0.2, 0.5)), st.sampled_from((0.0, 0.3)))
def test_the_simulator_finds_solutions_no_slower_and_no_larger(
    profile: Profile, share: float, threshold: float, pinned: float
):
    problem = problem_of(profile)
    check_solution(problem, budget_between(problem, share), threshold=threshold, pinned_share=pinned)


@slow
@given(joint_profiles(several_first=True), SHARES, st.sampled_from((0.0, 0.4, 1.0)), st.sampled_from((0.0, 0.3)))
def test_no_schedule_of_any_kind_beats_a_relaxation(profile: Profile, share: float, threshold: float, pinned: float):
    problem = problem_of(profile)
    check_relaxation(problem, budget_between(problem, share), threshold=threshold, pinned_share=pinned)


@pytest.mark.thorough
@slow
@given(joint_profiles(several_first=True), SHARES)
def test_folding_gains_nothing(profile: Profile, share: float):
    problem = problem_of(profile)
    budget = budget_between(problem, share)
    best = minimum(grouped.build(unmerged(problem), budget, threshold=0).milp)
    found = minimum(grouped.build(merge(problem, pinned_share=0), budget, threshold=0).milp)
    if found is not None:
        assert best is not None
        assert best[0] <= found[0] + 1e-9


@slow
@given(joint_profiles(), SHARES, st.sets(st.sampled_from(Optimization)))
def test_a_choice_never_makes_it_slower(profile: Profile, share: float, optimizations: set[Optimization]):
    some, all_of_them = problem_of(profile, optimizations=optimizations), problem_of(profile)
    budget = budget_between(some, share)
    fewer = minimum(grouped.build(unmerged(some), budget, threshold=0).milp)
    more = minimum(grouped.build(unmerged(all_of_them), budget, threshold=0).milp)
    if fewer is not None:
        assert more is not None
        assert more[0] <= fewer[0] + 1e-9


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(joint_profiles(several_first=True), SHARES)
def test_no_schedule_of_any_kind_beats_the_bound(profile: Profile, share: float):
    problem = problem_of(profile)
    check_bound(problem, budget_between(problem, share))


def masked(*, mask_ms: float) -> Problem:
    """An activation function whose backward operator takes its result or a mask; the next operator is large."""
    builder = GraphBuilder()
    (out,) = builder.forward((INPUT,), (100,), time_ms=50.0)
    mask = builder.auxiliary(out, 4, time_ms=mask_ms)
    (after,) = builder.forward((out,), (100,), time_ms=50.0)
    builder.forward((after,), (100,), time_ms=1.0)
    gradient = builder.start_backward(1)
    gradient = builder.backward((gradient, after), 1)
    builder.backward((gradient, out), 1, alternatives=(((gradient, mask), 2.0, 0),))
    return problem_of(builder.profile())


@pytest.mark.parametrize(("mask_ms", "extra_ms"), [(3.0, 3.0), (70.0, 50.0)])
def test_a_mask_is_made_in_the_forward_pass_if_that_is_cheaper_than_running_again(mask_ms: float, extra_ms: float):
    problem = masked(mask_ms=mask_ms)
    roomy = grouped.build(problem, problem.fixed_bytes + 310, threshold=0)
    found = minimum(roomy.milp)
    assert found is not None
    assert found[0] == problem.base_time_ms
    tight = grouped.build(problem, problem.fixed_bytes + 210, threshold=0)
    found = minimum(tight.milp)
    assert found is not None
    schedule = tight.decode(found[1])
    assert simulate(problem.profile, schedule).time_ms == found[0] == problem.base_time_ms + extra_ms
    assert (Run(1, "compact") in schedule.steps) == (mask_ms == 3.0)


def test_a_slower_algorithm_is_taken_only_where_the_quick_one_does_not_fit():
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (100,), time_ms=5.0, workspace_bytes=80, algorithms=((9.0, 0),))
    (b,) = builder.forward((a,), (100,), time_ms=5.0, workspace_bytes=80, algorithms=((9.0, 0),))
    gradient = builder.start_backward(0)
    for reads in ((b,), (a,)):
        gradient = builder.backward((gradient, *reads), 0, time_ms=2.0, workspace_bytes=80, algorithms=((6.0, 0),))
    problem = problem_of(builder.profile())
    for room, extra_ms in ((280, 0.0), (279, 8.0), (200, 8.0)):
        model = grouped.build(problem, problem.fixed_bytes + room, threshold=0)
        found = minimum(model.milp)
        assert found is not None
        line = simulate(problem.profile, model.decode(found[1]))
        assert found[0] == line.time_ms == problem.base_time_ms + extra_ms
        assert lower_bound(problem, problem.fixed_bytes + room, time_limit=5.0) == pytest.approx(found[0], rel=1e-5)


def test_what_cannot_be_overwritten_twice_over_is_not():
    # In the forward pass b takes a's memory; the backward pass needs a, so at the tighter budget a is made again.
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (100,), time_ms=5.0)
    (b,) = builder.forward((a,), (100,), time_ms=2.0, in_place=(a, 1.0))
    gradient = builder.start_backward(0)
    for reads in ((b,), (a,)):
        gradient = builder.backward((gradient, *reads), 0)
    problem = problem_of(builder.profile())
    for room, time_ms in ((200, problem.base_time_ms + 1.0), (199, problem.base_time_ms + 5.0)):
        model = grouped.build(merge(problem, pinned_share=0), problem.fixed_bytes + room, threshold=0)
        found = minimum(model.milp)
        assert found is not None
        schedule = model.decode(found[1])
        assert simulate(problem.profile, schedule).time_ms == found[0] == time_ms
        assert (Run(1, "in place") in schedule.steps) == (room < 200)
        assert lower_bound(problem, problem.fixed_bytes + room, time_limit=5.0) == pytest.approx(time_ms, rel=1e-5)


@slow
@given(joint_profiles(several_first=True), SHARES, st.sampled_from((0.0, 0.3)))
def test_a_warm_start_from_a_finer_grouping_is_a_solution(profile: Profile, share: float, pinned: float):
    problem = problem_of(profile)
    budget = budget_between(problem, share)
    fine = grouped.build(unmerged(problem), budget, threshold=0)
    coarse = grouped.build(merge(problem, pinned_share=pinned), budget, threshold=0.5)
    found = minimum(fine.milp)
    encoded = None if found is None else coarse.encode(fine.decode(found[1]))
    if encoded is not None:
        assert np.isin(encoded[coarse.milp.integer], (0.0, 1.0)).all()
        line = simulate(profile, coarse.decode(encoded))
        assert line.peak_bytes <= budget
        assert line.time_ms <= objective_of(coarse.milp, encoded) + 1e-9


@pytest.mark.parametrize(("room", "fits"), [(74, False), (75, True)])
def test_what_a_later_operator_of_the_sweep_reads_is_not_overwritten(room: int, fits: bool):  # noqa: FBT001
    # The end of the forward pass takes it all, so that a, b and c are made again beside a gradient of 10. Beside a, b
    # and its workspace that is 75; in place of a it would be 55, but c reads a.
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (20,))
    (b,) = builder.forward((a,), (20,), workspace_bytes=25, in_place=(a, 1.0))
    (c,) = builder.forward((a,), (20,))
    (d,) = builder.forward((c,), (40,))
    builder.forward((d,), (30,))
    builder.backward((builder.start_backward(10), b, c), 0)
    problem = problem_of(builder.profile())
    budget = problem.fixed_bytes + room
    found = minimum(grouped.build(unmerged(problem), budget, threshold=0).milp)
    assert (found is not None) == fits == (fastest(problem, budget, sweeps=True) is not None)


@pytest.mark.parametrize(("room", "extra_ms"), [(34, 8.0), (35, 0.0)])
def test_what_a_later_backward_operator_reads_is_made_again_if_overwritten(room: int, extra_ms: float):
    # The first backward operator takes a, its gradient of 10 and a workspace of 15; in place of a it takes 10 less.
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (10,), time_ms=8.0)
    gradient = builder.backward((builder.start_backward(0), a), 10, workspace_bytes=15, overwrites=a)
    builder.backward((gradient, a), 0)
    problem = problem_of(builder.profile())
    model = grouped.build(merge(problem, pinned_share=0), problem.fixed_bytes + room, threshold=0)
    found = minimum(model.milp)
    assert found is not None
    assert found[0] == simulate(problem.profile, model.decode(found[1])).time_ms == problem.base_time_ms + extra_ms


def overwriting() -> Problem:
    """What may be overwritten is read again: in the forward pass, in a sweep, and by later backward operators."""
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (10,), time_ms=8.0)
    (b,) = builder.forward((a,), (10,), time_ms=3.0, in_place=(a, 1.0))
    (c,) = builder.forward((a, b), (10,), time_ms=4.0, in_place=(b, 2.0))
    (d,) = builder.forward((c,), (30,), time_ms=50.0)
    gradient = builder.start_backward(0)
    gradient = builder.backward((gradient, d), 0)
    gradient = builder.backward((gradient, c), 10, overwrites=c)
    gradient = builder.backward((gradient, c), 10, alternatives=(((gradient, b), 2.0, 0),), overwrites=c)
    builder.backward((gradient, b), 10, alternatives=(((gradient, a), 3.0, 0),), overwrites=b)
    return problem_of(builder.profile())


@pytest.mark.parametrize("room", range(38, 82, 2))
def test_what_is_read_again_is_not_overwritten(room: int):
    problem = overwriting()
    budget = problem.fixed_bytes + room
    model = grouped.build(unmerged(problem), budget, threshold=0)
    found, best = minimum(model.milp), fastest(problem, budget, sweeps=True)
    assert (found is None) == (best is None)
    if found is not None and best is not None:
        line = simulate(problem.profile, model.decode(found[1]))
        assert found[0] == pytest.approx(best.time_ms) == line.time_ms
        assert line.peak_bytes <= budget
