"""The program of nearby recomputation: the optimum of what it leaves, and never worse than what was known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.simulation import simulate
from explorer.solvers.formulation import grouped
from explorer.solvers.formulation.nearby import nearby
from explorer.solvers.methods.checkmate.near_programs import solve_nearby
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.options import Options
from explorer.solvers.problem.building import problem_of
from tests.schedules import random_schedule
from tests.solvers.graphs import chain, profiles
from tests.solvers.minimising import SHARES, budget_between, minimum, objective_of

FAR = 100
few = settings(max_examples=30, deadline=None)


@few
@given(profiles(), SHARES, st.sampled_from((1, 2, FAR)))
def test_its_optimum_is_the_whole_programs_without_what_is_far(profile: Profile, share: float, depth: int):
    problem = problem_of(profile)
    model = grouped.build(problem, budget_between(problem, share), threshold=0.0)
    near = nearby(model, (), depth=depth)
    upper = np.where(near.column < 0, 0.0, model.milp.upper)
    whole, found = minimum(replace(model.milp, upper=upper)), minimum(near.milp)
    assert (whole is None) == (found is None)
    if whole is None or found is None:
        return
    assert found[0] == pytest.approx(whole[0])
    schedule = near.decode(found[1])
    assert near.encode(schedule) is not None
    assert simulate(profile, schedule).time_ms <= found[0] + 1e-9


@few
@given(profiles(), st.integers(0, 100), st.sampled_from((0, 1, 2)))
def test_known_schedules_stay_possible(profile: Profile, seed: int, depth: int):
    known = random_schedule(profile.graph, seed, keep=0.6)
    budget_bytes = simulate(profile, known).peak_bytes
    model = grouped.build(problem_of(profile), budget_bytes, threshold=0.0)
    whole = model.encode(known)
    if whole is None:
        return
    near = nearby(model, (known,), depth=depth)
    encoded, found = near.encode(known), minimum(near.milp)
    assert encoded is not None
    assert objective_of(near.milp, encoded) == pytest.approx(objective_of(model.milp, whole))
    assert found is not None
    assert found[0] <= objective_of(model.milp, whole) + 1e-6
    line = simulate(profile, near.decode(found[1]))
    assert line.peak_bytes <= budget_bytes
    assert line.time_ms <= found[0] + 1e-9


def test_a_planner_learns_what_they_find():
    problem = problem_of(chain(12))
    knowledge = Knowledge(problem)
    knowledge.search.ready(timeout=60)
    budget_bytes = budget_between(problem, 0.6)
    solve_nearby(knowledge, budget_bytes, Options(gap=0.0), time_limit=30)
    best = minimum(grouped.build(problem, budget_bytes, threshold=0.0).milp)
    found = knowledge.frontier.best(budget_bytes)
    assert best is not None
    assert found is not None
    assert found.time_ms <= best[0] + 1e-6
