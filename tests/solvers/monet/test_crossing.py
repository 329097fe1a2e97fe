"""Crossing plans: restricted programs, and children that are better than both parents."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from explorer.device_profile import Profile
from explorer.profiles.loading import load_profile
from explorer.simulation import simulate
from explorer.solvers.monet.crossing import Crossing
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.frontier import Point
from explorer.solvers.programs.milp import Milp
from explorer.solvers.programs.scip import minimise
from explorer.solvers.search.plan_search import PlanSearch
from tests.solvers.graphs import joint_profiles, profiles


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6))
def test_a_restricted_program_is_the_whole_one_with_columns_fixed(seed: int):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, (6, 8)) * (rng.random((6, 8)) < 0.5)
    x = rng.integers(0, 2, 8).astype(float)
    milp = Milp(
        objective=rng.normal(size=8),
        objective_offset=2.0,
        matrix=sparse.csr_matrix(matrix.astype(float)),
        row_lower=np.where(rng.random(6) < 0.5, -np.inf, matrix @ x - rng.integers(0, 3, 6)),
        row_upper=np.where(rng.random(6) < 0.5, np.inf, matrix @ x + rng.integers(0, 3, 6)),
        lower=np.zeros(8),
        upper=np.ones(8),
        integer=np.ones(8, bool),
    )
    free = rng.random(8) < 0.6
    part = milp.restricted(free, x)
    whole = x.copy()
    for number in range(2 ** int(free.sum())):
        trial = np.array([number >> n & 1 for n in range(int(free.sum()))], float)
        whole[free] = trial
        assert (part.violation(trial) <= 1e-9) == (milp.violation(whole) <= 1e-9)
        assert part.value(trial) == pytest.approx(milp.value(whole))


@settings(deadline=None, max_examples=8)
@given(st.one_of(profiles(most_forward=7), joint_profiles()))
def test_a_child_fits_and_is_better_than_both_parents(profile: Profile):
    search = PlanSearch(problem_of(profile))
    search.fill(4, effort=0.01)
    points = search.collect().points()
    budget = points[-1].peak_bytes
    crossing = Crossing(search.problem, budget)
    for pair in list(pairwise(points))[-3:]:
        if crossing.pair(pair) is None:
            continue
        schedule = crossing.cross(pair, time_limit=30)
        assert crossing.pair(pair) is None
        if schedule is not None:
            timeline = simulate(profile, schedule)
            assert timeline.peak_bytes <= budget
            assert timeline.time_ms < min(x.time_ms for x in pair)


def test_plans_that_owe_nothing_to_each_other_are_crossed_to_the_best_of_both():
    profile = load_profile("resnet50-small-cpu")
    search = PlanSearch(problem_of(profile))
    budget = int(0.8 * search.keep_all_peak_bytes)
    plans = [search.anneal_beside(budget, effort=3, seed=seed) for seed in range(3)]
    points = [x.point for x in plans if x.point is not None]
    assert len({x.time_ms for x in points}) > 1
    assert search.best(budget) is None or search.best(budget) not in points
    crossing = Crossing(search.problem, budget)
    pair = crossing.pair(points)
    assert pair is not None
    child = crossing.cross(pair, time_limit=60)
    assert child is not None
    timeline = simulate(profile, child)
    assert timeline.peak_bytes <= budget
    assert timeline.time_ms < min(x.time_ms for x in pair)
    point = Point(timeline.peak_bytes, timeline.time_ms, child)
    crossing.exclude(point, pair)
    again = crossing.pair([*pair, point])
    assert again is None


def test_an_infeasible_restriction_is_an_infeasible_program():
    milp = Milp(
        np.ones(2),
        0.0,
        sparse.csr_matrix(np.ones((1, 2))),
        np.array([2.0]),
        np.array([np.inf]),
        np.zeros(2),
        np.ones(2),
        np.ones(2, bool),
    )
    part = milp.restricted(np.array([True, False]), np.zeros(2))
    assert minimise(part, time_limit=10, gap=0.0).x is None
