"""Genes about the same place of equal blocks, and changes that are made in many blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.solvers.problem.building import problem_of
from explorer.solvers.search import moves, plan_archive
from explorer.solvers.search.arrays import GENE, plan_arrays
from explorer.solvers.search.from_schedule import places_of
from explorer.solvers.search.moves import echo
from explorer.solvers.search.plan_search import PlanSearch
from tests.solvers.graphs import blocks, chain, joint_profiles, repeated_profiles
from tests.solvers.minimising import budget_between


@settings(max_examples=60, deadline=None)
@given(st.one_of(repeated_profiles(most_blocks=8), joint_profiles()))
def test_twins_are_a_block_apart_and_every_gene_stands_in_one_place(profile: Profile):
    arrays = plan_arrays(problem_of(profile))
    places = places_of(arrays)
    found = arrays.twins[arrays.twins >= 0]
    assert np.unique(found).size == found.size
    for number, row in enumerate(arrays.twins):
        there = row[row >= 0]
        assert (arrays.role[there] == number).all()
        assert np.unique(np.diff(places[there])).size <= 1 or (row < 0).any()
    assert (arrays.role >= 0).sum() == found.size


def test_without_a_repetition_there_are_no_twins():
    assert plan_arrays(problem_of(chain(20))).twins.size == 0


def test_what_is_echoed_is_done_in_consecutive_blocks_and_nowhere_else():
    arrays = plan_arrays(problem_of(blocks(6)))
    row = arrays.twins[0]
    assert row.size == 6
    assert (row >= 0).all()
    stretches = {frozenset({3, *range(first, last)}) for first in range(6) for last in range(first + 1, 7)}
    for _ in range(200):
        old = np.zeros(arrays.gene_count, GENE)
        genes = old.copy()
        genes[row[3]] = 1
        echo.py_func(arrays, old, genes)
        assert np.isin(np.flatnonzero(genes), row).all()
        assert frozenset(np.flatnonzero(genes[row]).tolist()) in stretches


def test_many_changes_are_echoed_as_far_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(moves, "_ECHOED", 2)
    arrays = plan_arrays(problem_of(blocks(6)))
    old = np.zeros(arrays.gene_count, GENE)
    genes = old + GENE(1)
    echo.py_func(arrays, old, genes)
    assert (genes == 1).all()


def test_at_depth_as_many_tries_find_more():
    problem = problem_of(blocks(60, sizes=(40, 90, 60, 70, 20), time_ms=(2, 1, 3, 4, 1)))
    budget = budget_between(problem, 0.3)

    def found_ms(*, echoes: bool) -> float:
        total_ms = 0.0
        for seed in (10, 20, 30):
            search = PlanSearch(problem)
            point = search.improve(budget, effort=0.5, seed=seed, echoes=echoes)
            assert point is not None
            total_ms += point.time_ms
        return total_ms

    assert found_ms(echoes=True) < found_ms(echoes=False)


def test_a_deep_network_is_seeded_in_two_parts(monkeypatch: pytest.MonkeyPatch):
    problem = problem_of(blocks(8))
    whole = PlanSearch(problem)
    assert whole.ready()
    assert not len(whole._begun.result())
    monkeypatch.setattr(plan_archive, "_SEEDING_WORK", 0)
    monkeypatch.setattr(PlanSearch, "_judge_others", lambda _: None)
    first = PlanSearch(problem)
    assert first.begun(timeout=600)
    assert len(first._begun.result())
    monkeypatch.undo()
    monkeypatch.setattr(plan_archive, "_SEEDING_WORK", 0)
    both = PlanSearch(problem)
    assert both.ready()
    assert (both._archive.times_ms <= first._archive.times_ms).all()
    assert (both._archive.times_ms < first._archive.times_ms).any()
    for times_ms in (first._archive.times_ms, both._archive.times_ms):
        assert np.isfinite(times_ms).any()
    assert both._archive.times_ms.min() == whole._archive.times_ms.min()
