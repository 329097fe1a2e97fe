from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from explorer.device_profile import Profile
from explorer.solvers.monet import grouped
from explorer.solvers.monet.merge import merge, relax
from explorer.solvers.problem import Problem
from tests.solvers.graphs import INPUT, GraphBuilder, profiles
from tests.solvers.minimising import budget_between, minimum
from tests.solvers.test_monet_grouped import SHARES

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
    return Problem.of(builder.profile())


def test_normalisation_folds_into_the_activation_function_once_its_statistics_are_pinned():
    merged = merge(normalised(), pinned_share=0.01)
    assert [node.members for node in merged.nodes] == [(0,), (BATCH_NORM, RELU), (3,)]
    node = merged.nodes[1]
    assert node.time_ms == 1.5 + 1.0
    # While the ReLU runs: what it reads, what it writes, its workspace; the reads of the node are counted apart.
    assert node.peak_bytes == 100 + 100 + 2
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
    merged = merge(Problem.of(builder.profile()), pinned_share=0)
    # The whole chain is one node: nobody but its own successor reads what a and the dropout make.
    (node,) = merged.nodes
    assert node.members == (0, 1, 2)
    assert node.reads == {2}
    assert 2 not in merged.producer


def test_pinning_stays_within_its_share():
    problem = normalised()
    total = sum(x.bytes for x in problem.activations if not x.held)
    for share in (0.0, 0.001, 0.01, 0.5, 1.0):
        pinned = merge(problem, pinned_share=share).pinned
        assert sum(problem.activations[x].bytes for x in pinned) <= share * total
    assert merge(problem, pinned_share=0.01).pinned == {2}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profiles(most_forward=6), SHARES)
def test_folding_gains_nothing_and_loses_nothing_that_has_room_for_both(profile: Profile, share: float):
    problem = Problem.of(profile)
    budget = budget_between(problem, share)
    apart, folded = merge(problem, pinned_share=0, fold=False), merge(problem, pinned_share=0)
    # A folded node needs this much more than its members alone; with it, the same schedules are there.
    single = {node.members[0]: node.peak_bytes for node in apart.nodes}
    extra = max((node.peak_bytes - min(single[i] for i in node.members) for node in folded.nodes), default=0)
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
    assert node.time_ms == 2.5
    assert node.peak_bytes == pytest.approx(100 + 1)
