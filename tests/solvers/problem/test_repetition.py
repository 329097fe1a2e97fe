from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.device_profile import Profile
from explorer.profiles.loading import bundled_path, load_profile
from explorer.solvers.problem.building import problem_of
from explorer.solvers.problem.repetition import LEAST_BLOCKS, Repetition, repetitions
from tests.solvers.graphs import INPUT, GraphBuilder, blocks, chain, joint_profiles, profiles, repeated_profiles


def found_in(profile: Profile) -> tuple[Repetition, ...]:
    return repetitions(problem_of(profile))


def test_blocks_of_a_chain_are_found_between_what_comes_before_and_after():
    assert found_in(blocks(6)) == (Repetition(start=1, length=4, blocks=6),)


def test_the_blocks_of_a_transformer_are_found():
    assert found_in(load_profile(bundled_path("gpt2-a100-80gb"))) == (Repetition(start=4, length=10, blocks=12),)


def test_two_stages_are_two_repetitions():
    found = found_in(load_profile(bundled_path("resnet50-a100-80gb")))
    assert [(x.length, x.blocks) for x in found] == [(16, 3), (16, 5)]


def test_two_blocks_are_no_repetition_nor_are_equal_operators_in_a_row():
    assert found_in(blocks(LEAST_BLOCKS - 1)) == ()
    assert found_in(chain(20)) == ()


def test_a_block_of_another_size_ends_a_repetition():
    builder = GraphBuilder()
    previous, made = INPUT, []
    for size in (8, 8, 8, 8, 9, 8, 8, 8, 8):
        for n in range(4):
            (previous,) = builder.forward((previous,), (size + n,), time_ms=1.0 + n)
            made.append(previous)
    gradient = builder.start_backward()
    for x in reversed(made):
        gradient = builder.backward((gradient, x), 1)
    found = found_in(builder.profile())
    # The very first operator reads no activation, and the one after the larger block a larger one.
    assert [(x.length, x.blocks) for x in found] == [(4, 3), (4, 3)]


@settings(max_examples=60, deadline=None)
@given(st.one_of(profiles(most_forward=12), joint_profiles(), repeated_profiles()))
def test_what_is_found_is_alike_and_does_not_overlap(profile: Profile):
    problem = problem_of(profile)
    found = repetitions(problem)
    for one, other in pairwise(found):
        assert one.stop <= other.start
    for repetition in found:
        assert repetition.blocks >= LEAST_BLOCKS
        for first in range(repetition.start, repetition.start + repetition.length):
            twins = [problem.forward[x] for x in repetition.twins(first)]
            assert len(twins) == repetition.blocks
            for one, other in pairwise(twins):
                assert one.optional == other.optional
                for ours, theirs in zip((*one.first, *one.again), (*other.first, *other.again), strict=True):
                    assert ours.time_ms == theirs.time_ms
                    assert [problem.activations[x].bytes for x in ours.reads] == [
                        problem.activations[x].bytes for x in theirs.reads
                    ]
