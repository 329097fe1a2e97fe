from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers.monet import grouped, paper
from explorer.solvers.monet.merge import merge
from explorer.solvers.problem import CheckpointProblem
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import chain, profiles
from tests.solvers.minimising import budget_between, minimum
from tests.solvers.test_monet_grouped import SHARES


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profiles(most_forward=4), SHARES)
def test_its_solutions_are_schedules_that_fit(profile: Profile, share: float):
    problem = CheckpointProblem.of(profile)
    budget = budget_between(problem, share)
    model = paper.build(merge(problem, pinned_share=0, fold=False), budget)
    found, best = minimum(model.milp), fastest(problem, budget, sweeps=False)
    if found is None:
        return
    assert best is not None
    assert found[0] >= best.time_ms - 1e-9
    schedule = model.decode(found[1])
    line = simulate(profile, schedule)
    assert line.peak_bytes <= budget
    assert line.time_ms <= found[0] + 1e-9
    encoded = model.encode(schedule)
    assert encoded is None or model.milp.value(encoded) <= found[0] + 1e-9


def test_every_stage_has_every_activation_and_operator():
    problem = CheckpointProblem.of(chain(4))
    model = paper.build(problem, budget_between(problem, 1.0))
    stages, activations, operators = 4, 4, 4
    assert model.group_count == stages
    assert model.statistics.columns == (stages + 1) * activations + stages * operators


def test_on_a_chain_it_keeps_everything_where_that_fits_and_agrees_with_the_grouped_one_below():
    profile = chain(6)
    problem = CheckpointProblem.of(profile)
    keep = keep_all(profile.graph)
    peak = simulate(profile, keep).peak_bytes
    encoded = paper.build(problem, peak).encode(keep)
    assert encoded is not None
    assert paper.build(problem, peak).milp.value(encoded) == problem.base_time_ms
    budget = budget_between(problem, 0.85)
    as_published, fast = minimum(paper.build(problem, budget).milp), minimum(grouped.build(problem, budget).milp)
    assert as_published is not None
    assert fast is not None
    assert fast[0] <= as_published[0] + 1e-9


def test_it_never_beats_the_grouped_model_with_one_group_per_need():
    problem = CheckpointProblem.of(chain(5, size=100))
    excess_ms = []
    for share in (0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0):
        budget = budget_between(problem, share)
        as_published = minimum(paper.build(problem, budget).milp)
        best = minimum(grouped.build(problem, budget, threshold=0).milp)
        if as_published is not None:
            assert best is not None
            excess_ms.append(as_published[0] - best[0])
    assert min(excess_ms) >= -1e-9
    assert excess_ms[-1] == pytest.approx(0.0)
