from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from explorer.device_profile import Profile
from explorer.solvers.formulation import grouped
from explorer.solvers.formulation.merge import merge, relax
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.problem import Problem
from tests.solvers.graphs import INPUT, GraphBuilder, profiles
from tests.solvers.minimising import SHARES, budget_between, minimum
from tests.solvers.unmerged import unmerged

BATCH_NORM, RELU = 1, 2


def normalised(*, statistics: int = 1, activated: int = 100) -> Problem:
    """Convolution, normalisation with two statistics, ReLU; the backward pass reads all but the normalised values."""
    builder = GraphBuilder()
    (convolved,) = builder.forward((INPUT,), (100,), time_ms=10.0, workspace_bytes=7)
    values, deviation = builder.forward((convolved,), (100, statistics), time_ms=3.0, again="other")
    (out,) = builder.forward((values,), (activated,), time_ms=1.0, workspace_bytes=2)
    builder.forward((out,), (1,), held=True)
    gradient = builder.start_backward(1)
    for reads in ((out,), (convolved, deviation)):
        gradient = builder.backward((gradient, *reads), 1)
    return problem_of(builder.profile())


def test_normalisation_folds_into_the_activation_function_once_its_statistics_are_pinned():
    merged = merge(normalised(), pinned_share=0.01)
    assert [node.members for node in merged.nodes] == [(0,), (BATCH_NORM, RELU), (3,)]
    node = merged.nodes[1]
    (way,) = node.ways
    assert way.time_ms == 1.5 + 1.0
    # While the ReLU runs: what it reads, what it writes, its workspace; the reads of the node are counted apart.
    assert way.bytes == 100 + 100 + 2
    assert (node.reads, node.writes) == ({0}, {3})


def test_outputs_that_the_backward_pass_reads_keep_operators_apart():
    assert len(merge(normalised(statistics=50), pinned_share=0.01).nodes) == 4


def test_a_larger_result_is_not_kept_instead_of_a_smaller_one():
    assert len(merge(normalised(activated=101), pinned_share=0.01).nodes) == 4


def test_a_mask_that_cannot_be_made_again_stays_a_decision():
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (50,))
    dropped, mask = builder.forward((a,), (50, 50), again="mask")
    (out,) = builder.forward((dropped,), (50,))
    gradient = builder.start_backward()
    for reads in ((out,), (mask,)):
        gradient = builder.backward((gradient, *reads), 1)
    merged = merge(problem_of(builder.profile()), pinned_share=0)
    # The whole chain is one node: nobody but its own successor reads what a and the dropout make.
    (node,) = merged.nodes
    assert node.members == (0, 1, 2)
    assert node.reads == {2}
    assert 2 not in merged.producers


def test_pinning_stays_within_its_share():
    problem = normalised()
    total = sum(x.bytes for x in problem.activations if not x.held)
    for share in (0.0, 0.001, 0.01, 0.5, 1.0):
        pinned = merge(problem, pinned_share=share).pinned
        assert sum(problem.activations[x].bytes for x in pinned) <= share * total
    assert merge(problem, pinned_share=0.01).pinned == {2}


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profiles(most_forward=6), SHARES)
def test_folding_gains_nothing_and_loses_nothing_that_has_room_for_both(profile: Profile, share: float):
    problem = problem_of(profile)
    budget = budget_between(problem, share)
    apart, folded = unmerged(problem), merge(problem, pinned_share=0)
    # A folded node needs this much more than its members alone; with it, the same schedules are there.
    single = {node.members[0]: node.ways[0].bytes for node in apart.nodes}
    extra = max((node.ways[0].bytes - min(single[i] for i in node.members) for node in folded.nodes), default=0)
    best = minimum(grouped.build(apart, budget, threshold=0).milp)
    found = minimum(grouped.build(folded, budget, threshold=0).milp)
    roomy = minimum(grouped.build(folded, budget + extra, threshold=0).milp)
    if found is not None:
        assert best is not None
        assert best[0] <= found[0] + 1e-9
    if best is not None:
        assert roomy is not None
        assert roomy[0] <= best[0] + 1e-9


def test_a_relaxed_node_has_the_peak_of_its_first_member_alone():
    (_, node, _) = relax(normalised(), pinned_share=0.01).nodes
    assert node.members == (BATCH_NORM, RELU)
    (way,) = node.ways
    assert way.time_ms == 2.5
    assert way.bytes == pytest.approx(100 + 1)


def activated(*, in_place: bool, slow_algorithm: bool = False) -> Problem:
    """Convolution and an activation function; the backward pass reads the result alone."""
    builder = GraphBuilder()
    (start,) = builder.forward((INPUT,), (90,))
    algorithms = ((7.0, 0),) if slow_algorithm else ()
    (convolved,) = builder.forward((start,), (100,), time_ms=5.0, workspace_bytes=60, algorithms=algorithms)
    over = (convolved, 1.0) if in_place else None
    (out,) = builder.forward((convolved,), (100,), time_ms=1.0, workspace_bytes=10, in_place=over)
    builder.forward((out,), (1,), held=True)
    gradient = builder.start_backward(1)
    for reads in ((out,), (start,)):
        gradient = builder.backward((gradient, *reads), 1)
    return problem_of(builder.profile())


def test_what_runs_in_place_inside_a_node_needs_no_second_result():
    for in_place, peak in ((True, 160), (False, 210)):
        node = merge(activated(in_place=in_place), pinned_share=0).nodes[1]
        assert node.members == (1, 2)
        assert [(x.time_ms, x.bytes, x.overwrites) for x in node.ways] == [(6.0, peak, frozenset())]


def test_a_node_has_the_best_combinations_of_its_members_ways():
    node = merge(activated(in_place=True, slow_algorithm=True), pinned_share=0).nodes[1]
    assert [(x.time_ms, x.bytes) for x in node.ways] == [(6.0, 160), (8.0, 110)]


def test_a_way_that_saves_next_to_nothing_is_no_choice():
    problem = activated(in_place=True, slow_algorithm=True)
    assert len(merge(problem, pinned_share=0.1).nodes[1].ways) == 2
    assert len(merge(problem, pinned_share=0.2).nodes[1].ways) == 1
    (way,) = relax(problem, pinned_share=0.25).nodes[1].ways
    # For a bound the way that is left has the smaller memory of the one that is not.
    assert (way.time_ms, way.bytes) == (6.0, 100)


def test_an_operator_with_two_ways_to_run_again_makes_two_nodes():
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (50,))
    dropped, mask = builder.forward((a,), (50, 50), again="either")
    gradient = builder.start_backward()
    for reads in ((dropped,), (mask,), (a,)):
        gradient = builder.backward((gradient, *reads), 1)
    merged = merge(problem_of(builder.profile()), pinned_share=0)
    assert [(node.place, node.reads, node.writes) for node in merged.nodes] == [
        (0, set(), {0}),
        (1, {0}, {1, 2}),
        (1, {0, 2}, {1}),
    ]
    assert merged.producers == {0: (0,), 1: (1, 2), 2: (1,)}


def test_what_an_optional_operator_makes_is_never_kept_unasked():
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (1,))
    (b,) = builder.forward((a,), (100,))
    mask = builder.auxiliary(b, 1)
    builder.backward((builder.start_backward(1), b), 1, alternatives=(((2, mask), 1.0, 0),))
    problem = problem_of(builder.profile())
    assert merge(problem, pinned_share=0.1).pinned == {0}
    assert relax(problem, pinned_share=0.1).pinned == {0}


def test_a_form_that_another_one_beats_is_left_out():
    builder = GraphBuilder()
    (a,) = builder.forward((INPUT,), (10,))
    (b,) = builder.forward((a,), (10,))
    gradient = builder.start_backward(1)
    builder.backward((gradient, a, b), 1, time_ms=2.0, alternatives=(((gradient, a), 2.0, 0), ((gradient, b), 3.0, 0)))
    merged = merge(problem_of(builder.profile()), pinned_share=0)
    assert [form.reads for form in merged.stages[1]] == [{0}, {1}]
    assert merged.needs[1] == set()
    assert merged.offers[1] == {0, 1}
