"""Plan search: agrees with the simulator, keeps budgets, comes near the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.peak_bound import peak_lower_bound
from explorer.solvers.search import annealing, plan_archive
from explorer.solvers.search.from_schedule import genes_of
from explorer.solvers.search.plan_search import PlanSearch
from explorer.solvers.search.room import demand
from tests.schedules import random_schedule
from tests.solvers.exhaustive import fastest
from tests.solvers.graphs import INPUT, GraphBuilder, chain, joint_profiles, profiles


@settings(deadline=None, max_examples=12)
@given(st.one_of(profiles(most_forward=8), joint_profiles(several_first=True)), st.integers(0, 10**6))
def test_whatever_the_genes_kernel_and_simulator_agree(profile: Profile, seed: int):
    search = PlanSearch(problem_of(profile))
    arrays = search.arrays
    rng = np.random.default_rng(seed)
    genes = rng.integers(0, 2, arrays.gene_count).astype(np.int16)
    for site in arrays.switches:
        genes[arrays.form_gene[site]] = rng.integers(arrays.form_start[site + 1] - arrays.form_start[site])
    marks = genes[arrays.gene_start[-1] + arrays.switches.size :]
    marks[:] = np.where(rng.random(marks.size) < 0.2, rng.integers(1, arrays.backward_count, marks.size) + 1, 0)
    budget = int(rng.uniform(search.floor.peak_bytes, search.keep_all_peak_bytes + 1))
    assert search.ready(timeout=120)
    peak_bytes, time_ms, count = search._kernel(genes[None], budget)
    if count < 0:  # a form that leaves out what another reads
        return
    timeline = simulate(profile, search._schedule(search._work.trial.order[:count].tolist(), budget))
    assert timeline.peak_bytes == peak_bytes
    assert timeline.time_ms == pytest.approx(time_ms)


@settings(deadline=None, max_examples=30)
@given(st.one_of(profiles(most_forward=7), joint_profiles()), st.floats(0, 1))
def test_answers_fit_their_budget_and_are_not_beaten_at_the_ends(profile: Profile, share: float):
    search = PlanSearch(problem_of(profile))
    keep = simulate(profile, keep_all(profile.graph))
    floor = search.floor.peak_bytes
    budget = round(floor + share * (keep.peak_bytes - floor))
    point = search.improve(budget, effort=0.1)
    if point is not None:
        assert simulate(profile, point.schedule).peak_bytes == point.peak_bytes <= budget
    assert search.improve(keep.peak_bytes, effort=0.1).time_ms <= keep.time_ms + 1e-9
    assert floor <= search.shrink(effort=0.1).peak_bytes <= keep.peak_bytes


@settings(deadline=None, max_examples=30)
@given(st.one_of(profiles(most_forward=4), joint_profiles()), st.floats(0, 1))
def test_small_graphs_are_solved_to_the_optimum_of_an_exhaustive_search(profile: Profile, share: float):
    search = PlanSearch(problem_of(profile))
    budget = round(search.floor.peak_bytes + share * (search.keep_all_peak_bytes - search.floor.peak_bytes))
    best = fastest(problem_of(profile), budget, sweeps=False)
    found = search.improve(budget, effort=0.3)
    if found is not None:
        assert best is not None
        assert found.time_ms >= best.time_ms - 1e-9
    assert best is None or found is not None


@settings(deadline=None, max_examples=12)
@given(profiles(most_forward=8), st.integers(0, 10**6), st.floats(0, 1))
def test_any_schedule_becomes_a_plan_that_can_run(profile: Profile, seed: int, keep: float):
    problem = problem_of(profile)
    search = PlanSearch(problem)
    schedule = random_schedule(profile.graph, seed, keep=keep)
    genes = genes_of(problem, search.arrays, schedule)
    assert genes is not None
    assert search.ready(timeout=120)
    _, time_ms, count = search._kernel(genes[None], search.keep_all_peak_bytes)
    assert count > 0
    assert time_ms >= problem.base_time_ms - 1e-9


def test_what_was_learned_is_where_the_next_search_starts():
    problem = problem_of(chain(40))
    teacher, pupil = PlanSearch(problem), PlanSearch(problem)
    budget = (teacher.floor.peak_bytes + teacher.keep_all_peak_bytes) // 2
    for seed in range(1, 20, 5):
        point = teacher.improve(budget, effort=2, seed=seed)
    assert point is not None
    pupil.learn(point.schedule)
    found = pupil.improve(budget, effort=0.001)
    assert found is not None
    assert found.time_ms <= point.time_ms + 1e-9


@settings(deadline=None)
@given(profiles(most_forward=8), st.integers(0, 10**6), st.floats(0, 1))
def test_no_schedule_has_a_smaller_peak_than_the_bound(profile: Profile, seed: int, keep: float):
    schedule = random_schedule(profile.graph, seed, keep=keep)
    assert peak_lower_bound(problem_of(profile)).peak_bytes <= simulate(profile, schedule).peak_bytes


def test_machine_code_kept_on_disk_belongs_to_these_sources():
    (cell,) = annealing.anneal.py_func.__closure__
    assert cell.cell_contents == annealing._sources()


def test_a_long_chain_shrinks_to_a_fraction_for_one_more_forward_pass():
    profile = chain(64)
    search = PlanSearch(problem_of(profile))
    for budget in search.budgets(8):
        search.improve(budget, effort=0.5)
    search.shrink()
    activations = search.keep_all_peak_bytes - profile.fixed_bytes
    point = search.best(profile.fixed_bytes + round(0.45 * activations))
    assert point is not None
    assert point.time_ms - search.keep_all_ms <= 64


def test_starts_that_are_not_taken_leave_nothing_behind():
    """Their marks were listed a second time once a plan had them too: a list that ran in a circle, for ever."""
    search = PlanSearch(problem_of(chain(30)))
    assert search.ready(timeout=600)
    arrays, rng = search.arrays, np.random.default_rng(0)
    first = int(arrays.gene_start[arrays.bytes.size]) + arrays.switches.size
    for seed in range(1000):
        starts = np.repeat(search._keep_everything(), 3, axis=0)
        for genes in starts:
            at = rng.integers(first, first + 2 * arrays.bytes.size, 40)
            genes[at] = rng.integers(1, arrays.backward_count, at.size)
        peak, time_ms, count = search._kernel(starts, int(0.8 * search.keep_all_peak_bytes), tries=100, seed=seed)
        assert (peak, time_ms, count) == search._kernel(starts[:1].copy(), int(0.8 * search.keep_all_peak_bytes))


def test_a_larger_budget_is_never_answered_worse():
    search = PlanSearch(problem_of(chain(40)))
    budgets = np.linspace(search.floor.peak_bytes, search.keep_all_peak_bytes, 9).astype(int).tolist()
    for budget in budgets[::2]:
        search.improve(budget, effort=0.2)
    times = [point.time_ms for budget in budgets if (point := search.best(budget)) is not None]
    assert times == sorted(times, reverse=True)


def test_before_the_kernel_is_compiled_a_sketch_answers():
    profile = chain(30)
    search = PlanSearch(problem_of(profile))
    budget = (search.floor.peak_bytes + search.keep_all_peak_bytes) // 2
    point = search.sketch(budget)
    assert point is not None
    assert simulate(profile, point.schedule).peak_bytes <= budget


def test_a_graph_in_which_nothing_can_be_recomputed_has_one_answer():
    profile = chain(1)
    search = PlanSearch(problem_of(profile))
    assert search.improve(search.keep_all_peak_bytes).time_ms == pytest.approx(search.keep_all_ms)


def test_quicker_options_are_demanded_where_there_was_no_room_for_them():
    builder, count = GraphBuilder(), 12
    workspace = (count - 1) * 100
    made = [builder.forward((INPUT,), (100,))[0] for _ in range(count)]
    gradient = builder.start_backward()
    for x in reversed(made):
        needs, slower = (workspace, ((40.0, 0),)) if x == made[-1] else (0, ())
        gradient = builder.backward((gradient, x), 4, time_ms=10.0, workspace_bytes=needs, algorithms=slower)
    search = PlanSearch(problem_of(builder.profile()))
    assert search.ready(timeout=120)
    budget = search.keep_all_peak_bytes - workspace
    peak_bytes, time_ms, runs = search._kernel(search._keep_everything(), budget)
    assert (peak_bytes <= budget, time_ms) == (True, pytest.approx(count + 40 + (count - 1) * 10))
    slow = search._schedule(search._work.trial.order[:runs].tolist(), budget)
    extra = demand(search.problem, search.arrays, slow, seed=0)
    assert extra is not None
    changed = np.flatnonzero(extra != search.arrays.option_extra)
    assert extra[changed].tolist() == [workspace]  # the slow option is as large as the quick one
    quick = search.improve(budget, seed=3)
    assert quick is not None
    assert quick.time_ms == pytest.approx(2 * count - 1 + count * 10)
    assert demand(search.problem, search.arrays, quick.schedule, seed=0) is None


def test_who_waits_for_a_kernel_that_cannot_be_compiled_hears_why(monkeypatch: pytest.MonkeyPatch):
    def failing(*_: object) -> None:
        raise OSError("no space left")

    forgotten: list[bool] = []
    monkeypatch.setattr(plan_archive, "anneal", failing)
    monkeypatch.setattr(plan_archive, "forget_compiled", lambda: forgotten.append(True))  # others have a use for it
    search = PlanSearch(problem_of(chain(3)))
    with pytest.raises(OSError, match="no space left"):
        search.ready(timeout=3600)
    assert forgotten
