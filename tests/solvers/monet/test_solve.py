"""solve, smallest_budget and trade_off: honest statuses, budgets kept, bounds that hold."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer import keep_all, simulate, smallest_budget, solve, trade_off
from explorer.device_profile import Profile
from explorer.graph import Optimization
from explorer.schedule import Run
from explorer.solution import BoundScope, Status
from explorer.solvers.problem.building import problem_of
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import INPUT, GraphBuilder, chain, joint_profiles, profiles

_PROVEN_S = 200.0
"""For solves that end when something is proven, which no clock must decide."""


@settings(deadline=None, max_examples=12)
@given(st.one_of(profiles(most_forward=4), joint_profiles()), st.floats(0, 1))
def test_small_graphs_against_an_exhaustive_search(profile: Profile, share: float):
    keep = simulate(profile, keep_all(profile.graph))
    budget = round(profile.fixed_bytes + share * (keep.peak_bytes - profile.fixed_bytes)) + 1
    best = fastest(problem_of(profile), budget, sweeps=False)
    solution = solve(profile, budget=budget, time_limit=1.0, gap=0.0)
    bound_ms = solution.bound_ms()
    assert bound_ms is not None
    if best is None:
        assert solution.status in (Status.INFEASIBLE, Status.UNKNOWN)
        assert solution.minimum.budget_bytes > budget
    else:
        assert solution.status in (Status.OPTIMAL, Status.FEASIBLE)
        assert simulate(profile, solution.schedule).peak_bytes == solution.peak_bytes <= budget
        assert bound_ms <= best.time_ms * (1 + 1e-6)
        assert solution.time_ms >= best.time_ms * (1 - 1e-6)
        if solution.status is Status.OPTIMAL:
            assert solution.time_ms == pytest.approx(best.time_ms)


@settings(deadline=None, max_examples=12)
@given(
    profile=joint_profiles(),
    share=st.floats(0, 1),
    chosen=st.sets(st.sampled_from([str(x) for x in Optimization])),
    exact=st.booleans(),
)
def test_a_schedule_runs_only_what_was_allowed(*, profile: Profile, share: float, chosen: set[str], exact: bool):
    keep = simulate(profile, keep_all(profile.graph))
    budget = round(profile.fixed_bytes + share * (keep.peak_bytes - profile.fixed_bytes)) + 1
    solution = solve(profile, budget=budget, time_limit=0.3, optimizations=chosen, exact=exact)
    for step in () if solution.schedule is None else solution.schedule.steps:
        if isinstance(step, Run):
            run = profile.graph.operators[step.operator].implementation(step.implementation)
            assert run.optimization in (None, *chosen)
            assert run.exact or not exact or run.optimization is None


# The bound need not be tight for every graph there may be: these are always the same.
@settings(deadline=None, max_examples=12, derandomize=True)
@given(profiles(most_forward=8), st.floats(0.3, 1))
def test_small_graphs_are_solved_to_a_proof(profile: Profile, share: float):
    keep = simulate(profile, keep_all(profile.graph))
    budget = round(profile.fixed_bytes + share * (keep.peak_bytes - profile.fixed_bytes)) + 1
    solution = solve(profile, budget=budget, time_limit=_PROVEN_S, gap=0.0)
    assert solution.status in (Status.OPTIMAL, Status.INFEASIBLE)


def test_a_single_operator_is_a_step_too():
    builder = GraphBuilder()
    (loss,) = builder.forward((INPUT,), (10,), held=True, again="never")
    builder.backward((builder.start_backward(10), loss), 10)
    profile = builder.profile()
    peak_bytes = simulate(profile, keep_all(profile.graph)).peak_bytes
    assert solve(profile, budget=peak_bytes, time_limit=_PROVEN_S).status is Status.OPTIMAL
    assert solve(profile, budget=peak_bytes - 1, time_limit=_PROVEN_S).status is Status.INFEASIBLE


def test_tensors_without_bytes_leave_nothing_to_decide():
    profile = chain(6, size=0)
    keep = simulate(profile, keep_all(profile.graph))
    solution = solve(profile, budget=keep.peak_bytes, time_limit=_PROVEN_S)
    assert solution.status is Status.OPTIMAL
    assert solution.time_ms == keep.time_ms
    assert trade_off(profile)


@pytest.mark.thorough
def test_ten_thousand_operators_are_solved_for():
    profile = chain(5000)
    assert len(profile.graph.operators) > 10_000
    keep = simulate(profile, keep_all(profile.graph))
    budget = (profile.fixed_bytes + keep.peak_bytes) // 2
    solution = solve(profile, budget=budget, time_limit=0.1, remember=False)
    assert simulate(profile, solution.schedule).peak_bytes <= budget
    assert solution.time_ms < 1.25 * keep.time_ms


def test_a_chain_at_half_its_activations_is_solved_and_bounded():
    profile = chain(24)
    keep = simulate(profile, keep_all(profile.graph))
    budget = (profile.fixed_bytes + keep.peak_bytes) // 2
    solution = solve(profile, budget=budget, time_limit=_PROVEN_S, gap=0.2)
    assert solution.status is Status.OPTIMAL
    assert keep.time_ms < solution.time_ms < keep.time_ms + 24
    assert solution.peak_bytes <= budget
    assert keep.time_ms <= solution.bound_ms() <= solution.time_ms
    assert solution.gap() <= 0.2
    assert "%" in solution.message


def test_the_no_recompute_peak_needs_no_recomputation_and_is_proven():
    profile = chain(8)
    keep = simulate(profile, keep_all(profile.graph))
    solution = solve(profile, budget=f"{keep.peak_bytes} B", time_limit=_PROVEN_S)
    assert solution.status is Status.OPTIMAL
    assert solution.time_ms == pytest.approx(keep.time_ms)
    assert solution.gap() == pytest.approx(0.0)


def test_a_budget_too_small_names_the_smallest_and_the_operator_that_sets_it():
    profile = chain(8)
    solution = solve(profile, budget=profile.fixed_bytes + 1, time_limit=_PROVEN_S)
    assert solution.status is Status.INFEASIBLE
    assert solution.schedule is None
    assert solution.minimum.operator in {x.name for x in profile.graph.operators}
    assert repr(solution.minimum.operator) in solution.message
    assert str(solution.minimum.budget_bytes) in solution.message
    enough = solve(profile, budget=solution.minimum.budget_bytes, time_limit=1.0)
    assert enough.peak_bytes <= solution.minimum.budget_bytes == enough.schedule.budget_bytes


def test_the_smallest_budget_is_the_smallest_of_an_exhaustive_search():
    profile = chain(5)
    solution = smallest_budget(profile, time_limit=5.0)
    problem = problem_of(profile)
    assert solution.peak_bytes == solution.minimum.budget_bytes
    assert solution.schedule.budget_bytes == solution.budget_bytes, "whatever the search aimed at"
    assert fastest(problem, solution.peak_bytes, sweeps=False) is not None
    if solution.minimum.proven:
        assert fastest(problem, solution.peak_bytes - 1, sweeps=False) is None
    assert fastest(problem, solution.minimum.lower_bound_bytes - 1, sweeps=False) is None


def test_the_trade_off_runs_from_little_memory_to_no_recomputation():
    profile = chain(32)
    keep = simulate(profile, keep_all(profile.graph))
    curve = trade_off(profile, points=10)
    assert 3 <= len(curve) <= 10
    assert all(a.peak_bytes < b.peak_bytes and a.time_ms > b.time_ms for a, b in pairwise(curve))
    assert all(simulate(profile, x.schedule).peak_bytes == x.peak_bytes == x.budget_bytes for x in curve)
    assert curve[-1].peak_bytes == keep.peak_bytes
    assert curve[-1].time_ms == pytest.approx(keep.time_ms)
    assert curve[-1].status is Status.OPTIMAL
    assert curve[0].peak_bytes < 0.6 * keep.peak_bytes


def test_the_paper_formulation_reports_its_own_bound():
    profile = chain(6)
    keep = simulate(profile, keep_all(profile.graph))
    solution = solve(profile, budget=(profile.fixed_bytes + 2 * keep.peak_bytes) // 3, formulation="paper", gap=0.0)
    assert solution.statistics.rows > 0
    assert solution.bound_ms(BoundScope.PROBLEM) <= solution.time_ms


@pytest.mark.parametrize(
    ("wrong", "allowed"),
    [
        ({"formulation": "dense"}, "'grouped', 'paper'"),
        ({"method": "magic"}, "'monet'"),
        ({"time_limit": 0.0}, "positive"),
        ({"gap": -0.1}, "0 or more"),
        ({"seed": -1}, "seed is -1"),
        ({"steps": 0}, "steps is 0"),
        ({"optimizations": "some"}, "'all', 'none', 'output'"),
        ({"optimizations": ["output", "input"]}, "'input'; allowed"),
        ({"budget": "8 Gibi"}, "allowed"),
        ({"budget": -1}, "positive"),
    ],
)
def test_bad_options_say_what_is_allowed(wrong, allowed):
    with pytest.raises(ValueError, match=allowed):
        solve(chain(3), **({"budget": 1000} | wrong))


def test_equal_seeds_and_steps_give_equal_answers():
    profile = chain(60)
    budget = (profile.fixed_bytes + simulate(profile, keep_all(profile.graph)).peak_bytes) // 2
    first, again, other = (solve(profile, budget=budget, steps=3, seed=seed) for seed in (7, 7, 8))
    assert first.schedule is not None
    assert (again.schedule, again.bounds) == (first.schedule, first.bounds)
    assert other.status in (Status.OPTIMAL, Status.FEASIBLE)


def test_a_curve_of_one_point_is_refused():
    with pytest.raises(ValueError, match="points is 1"):
        trade_off(chain(3), points=1)


@pytest.mark.parametrize(("whole_bytes", "half_bytes"), [(0, 1), (1, 0), (0, 0)])
@pytest.mark.parametrize(("whole_ms", "half_ms"), [(10.0, 2.0), (2.0, 10.0)])
def test_nothing_is_proven_optimal_that_halves_or_the_whole_would_beat(
    *, whole_bytes: int, half_bytes: int, whole_ms: float, half_ms: float
):
    builder = GraphBuilder()
    (out,) = builder.forward((INPUT,), (10,), time_ms=1.0)
    gradient = builder.start_backward()
    builder.halved(
        (gradient, out), (4, 4), whole=(whole_ms, whole_bytes), halves=((half_ms, half_bytes), (half_ms, half_bytes))
    )
    solution = solve(builder.profile(), budget=1000, time_limit=0.5, gap=0.0, remember=False)
    best_ms = 1.0 + min(whole_ms, 2 * half_ms)
    bound_ms = solution.bound_ms()
    assert bound_ms is not None
    assert bound_ms <= best_ms <= solution.time_ms
    assert (solution.status is Status.OPTIMAL) == (solution.time_ms == best_ms)


def test_a_whole_in_place_fits_where_its_halves_do_not():
    builder = GraphBuilder()
    (out,) = builder.forward((INPUT,), (10,), time_ms=1.0)
    gradient = builder.start_backward(100)
    builder.halved((gradient, out), (100, 4), whole=(10.0, 0), halves=((2.0, 0), (2.0, 0)), overwrites=gradient)
    profile = builder.profile()
    budget = profile.fixed_bytes + 10 + 100 + 4
    solution = solve(profile, budget=budget, time_limit=0.5, gap=0.0, remember=False)
    assert solution.schedule is not None
    assert simulate(profile, solution.schedule).peak_bytes == budget
