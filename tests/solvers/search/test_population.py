"""Breeding plans: founders, favourites and children; blueprints from a bound's program."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.profiles.loading import load_profile
from explorer.simulation import simulate
from explorer.solvers.formulation import relaxation
from explorer.solvers.formulation.merge import relax
from explorer.solvers.monet.blueprints import blueprint
from explorer.solvers.problem.building import problem_of
from explorer.solvers.programs.scip import minimise
from explorer.solvers.search.from_schedule import places_of
from explorer.solvers.search.plan_search import Plan, PlanSearch
from explorer.solvers.search.population import Population
from explorer.solvers.strategy import Breeding
from tests.solvers.graphs import joint_profiles, profiles
from tests.solvers.minimising import objective_of


@pytest.fixture(scope="module")
def search() -> PlanSearch:
    return PlanSearch(problem_of(load_profile("resnet50-small-cpu")))


def _population(
    search: PlanSearch, share: float, *, seed: int = 0, sizes: Breeding | None = None
) -> tuple[Population, int, np.ndarray]:
    budget, stop = int(share * search.keep_all_peak_bytes), np.zeros(1, np.uint8)
    return Population(search, budget, seed=seed, stop=stop, sizes=sizes or Breeding()), budget, stop


def _members(population: Population) -> list[Plan]:
    """The best first; none while they are being founded."""
    founding, members = population._to_found, population._members
    return [] if founding else sorted(members, key=lambda x: x.rank)


def test_children_are_better_than_founders_and_all_fit(search: PlanSearch):
    population, budget, _ = _population(search, 0.8)
    found = [population.step()[0] for _ in range(11)]
    assert not _members(population)
    found.append(population.step()[0])
    with ThreadPoolExecutor(2) as pool:
        children = [x.result()[0] for x in [pool.submit(population.step) for _ in range(24)]]
    assert min(x.rank for x in children) < min(x.rank for x in found)
    members = _members(population)
    assert len(members) == 12
    assert members[0].rank == min(x.rank for x in (*found, *members, *children))
    for plan in members:
        assert plan.point is not None
        timeline = simulate(search.problem.profile, plan.point.schedule)
        assert timeline.peak_bytes == plan.point.peak_bytes <= budget
        assert timeline.time_ms == pytest.approx(plan.time_ms)


@pytest.mark.thorough
def test_equal_seeds_breed_equal_plans(search: PlanSearch):
    runs = [_population(search, 0.85, seed=3)[0] for _ in range(2)]
    found = [[population.step()[0].rank for _ in range(20)] for population in runs]
    assert found[0] == found[1]


def test_a_stopped_search_changes_nothing(search: PlanSearch):
    population, _, stop = _population(search, 0.8)
    while not _members(population):
        population.step()
    before = _members(population)
    stop[0] = 1
    population.step()
    assert _members(population) == before


def test_a_population_whose_children_are_no_better_makes_room_for_another(search: PlanSearch):
    population, _, _ = _population(search, 1.0, sizes=Breeding(patience=1))
    best: list[tuple[float, float]] = []
    while not population.champions:
        best += [x.rank for x in _members(population)[:1]]
        population.step()
    assert population.champions[0].rank == best[-1]
    assert not _members(population)
    population.step()


def test_every_gene_is_about_the_operator_that_it_changes(search: PlanSearch):
    arrays, places = search.arrays, places_of(search.arrays)
    assert places.shape == (arrays.gene_count,)
    for a in np.flatnonzero(arrays.droppable).tolist():
        mine = slice(int(arrays.gene_start[a]), int(arrays.gene_start[a + 1]))
        assert set(places[mine].tolist()) == {int(arrays.producer[a])}
    for site, gene in enumerate(arrays.form_gene.tolist()):
        if gene >= 0 and site < 2 * arrays.forward_count:
            assert places[gene] == site % arrays.forward_count


@settings(deadline=None, max_examples=25)
@given(profile=st.one_of(profiles(most_forward=7), joint_profiles()), share=st.floats(0.2, 1.0))
def test_blueprints_can_run(profile: Profile, share: float):
    search = PlanSearch(problem_of(profile))
    assert search.ready(timeout=120)
    arrays, low = search.arrays, search.floor.peak_bytes
    budget = int(low + share * (search.keep_all_peak_bytes - low))
    found = relaxation.build(relax(search.problem), budget, threshold=0.5)
    if not found.milp.objective.size:
        return
    x = minimise(found.milp, time_limit=20, gap=0.0).x
    if x is None:
        return
    genes = blueprint(found, x, arrays)
    peak, time_ms, runs = search._kernel(genes[None].copy(), search.keep_all_peak_bytes)
    assert runs >= 0
    assert np.isfinite(peak)
    assert np.isfinite(time_ms)


def test_with_room_for_everything_the_blueprint_takes_as_long_as_the_bound_says(search: PlanSearch):
    assert search.ready(timeout=120)
    found = relaxation.build(relax(search.problem), 2 * search.keep_all_peak_bytes, threshold=1.0)
    x = minimise(found.milp, time_limit=30, gap=0.0).x
    assert x is not None
    genes = blueprint(found, x, search.arrays)
    _, time_ms, _ = search._kernel(genes[None].copy(), 2 * search.keep_all_peak_bytes)
    assert time_ms == pytest.approx(objective_of(found.milp, x))
    assert time_ms < search.keep_all_ms


@pytest.mark.thorough
def test_a_short_search_from_a_blueprint_beats_many_from_scratch(search: PlanSearch):
    population, budget, _ = _population(search, 0.77)
    found = relaxation.build(relax(search.problem), budget, threshold=1.0)
    blueprints: list[np.ndarray] = []
    minimise(
        found.milp,
        time_limit=60,
        gap=1e-3,
        on_incumbent=lambda x, _: blueprints.append(blueprint(found, x, search.arrays)),
    )
    scratch = min(population.step()[0].rank for _ in range(12))
    population.suggest(blueprints[-1])
    assert population.has_blueprints
    drawn = min(population.step()[0].rank for _ in range(Breeding().twins))
    assert not population.has_blueprints
    assert drawn < scratch
