from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from explorer.solvers.methods.rotor.chain import Chain, Kind, Operation, Sequence, in_segments, keep_everything
from explorer.solvers.methods.rotor.table import Table, solve
from tests.solvers.methods.rotor.chains import chains
from tests.solvers.methods.rotor.exhaustive import chain, fastest_ms, time_ms


def _best(table: Table) -> Sequence | None:
    """With all of the memory; None where nothing fits."""
    return next(reversed(table.sequences()), None)


@settings(max_examples=150, deadline=None)
@given(chains(), st.integers(1, 45))
def test_no_persistent_sequence_is_quicker(found: Chain, memory_bytes: int):
    table = solve(found, memory_bytes=memory_bytes, slots=memory_bytes)
    sequence = _best(table)
    best = fastest_ms(found, memory_bytes, persistent=True)
    assert (sequence is None) == (best is None)
    if sequence is not None:
        assert time_ms(found, sequence) == pytest.approx(best)
        assert table.curve_ms[memory_bytes] == pytest.approx(best)
        assert found.peak_bytes(sequence) <= memory_bytes


@settings(max_examples=50, deadline=None)
@given(chains(), st.integers(1, 60), st.integers(1, 20))
def test_one_table_serves_all_memory_sizes(found: Chain, memory_bytes: int, smaller: int):
    large = solve(found, memory_bytes=memory_bytes, slots=memory_bytes)
    asked = max(1, memory_bytes - smaller)
    small = solve(found, memory_bytes=asked, slots=asked)
    assert np.array_equal(large.curve_ms[: asked + 1], small.curve_ms)


@settings(max_examples=50, deadline=None)
@given(chains(), st.integers(20, 60), st.integers(3, 30))
def test_coarse_slots_are_safe(found: Chain, memory_bytes: int, slots: int):
    table = solve(found, memory_bytes=memory_bytes, slots=slots)
    fine = solve(found, memory_bytes=memory_bytes, slots=memory_bytes)
    for sequence in table.sequences():
        assert found.peak_bytes(sequence) <= table.slot_bytes * slots
        assert time_ms(found, sequence) >= fine.curve_ms.min() - 1e-9 or table.slot_bytes * slots > memory_bytes


@settings(max_examples=50, deadline=None)
@given(chains(), st.integers(1, 60))
def test_revolve_saves_a_stage_only_just_before_its_backward_pass(found: Chain, memory_bytes: int):
    table = solve(found, memory_bytes=memory_bytes, slots=memory_bytes, save=False)
    sequence = _best(table)
    if sequence is None:
        return
    for operation, following in pairwise(sequence):
        if operation.kind is Kind.ALL:
            assert following == Operation(Kind.BACKWARD, operation.stage)
    assert table.curve_ms[memory_bytes] >= solve(found, memory_bytes=memory_bytes, slots=memory_bytes).curve_ms[-1]


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_counter_example_of_section_4_1(n: int):
    """No persistent schedule takes less than 3n + 1, while dropping a checkpoint early takes 2n + 2.

    The figure's sizes follow from its text: of 8, the last stage needs 7, the others behind the second 6, and beside
    that there may be a checkpoint of a¹ (1) or of a² (2). Between the second and the last, which is the loss here,
    there are n: so the second runs n + 1 times if only a¹ is kept, as the text counts.
    """
    outputs = [1, 2, *[3] * n, 4]
    example = chain(outputs=outputs, forward_ms=[n - 1, 2, *[0] * (n + 1)])
    assert solve(example, memory_bytes=8, slots=8).curve_ms[8] == 3 * n + 1
    assert fastest_ms(example, 8, persistent=True) == 3 * n + 1
    assert fastest_ms(example, 8, persistent=False) == 2 * n + 2


def test_with_enough_memory_everything_is_saved():
    example = chain(outputs=[2, 3, 4, 1], saved=[5, 6, 7, 1], forward_ms=[1, 2, 3, 4], backward_ms=[1, 1, 1, 1])
    everything = keep_everything(example)
    memory_bytes = example.peak_bytes(everything)
    assert _best(solve(example, memory_bytes=memory_bytes, slots=memory_bytes)) == everything


def test_segments_of_checkpoint_sequential():
    example = chain(outputs=[1] * 7, forward_ms=[1.0] * 7)
    sequence = in_segments(example, 3)
    example.peak_bytes(sequence)
    # Segments of 2, 2 and 3 stages, as PyTorch divides 7 modules; the last runs once.
    assert time_ms(example, sequence) == 7 + 4
    assert [x.stage for x in sequence if x.kind is Kind.CHECKPOINT] == [0, 2]
    assert in_segments(example, 1) == keep_everything(example)


def test_a_sequence_that_finds_no_input_is_refused():
    example = chain(outputs=[1, 1], forward_ms=[1, 1])
    with pytest.raises(ValueError, match="operation 0, F_all of stage 1, does not find its input"):
        example.peak_bytes([Operation(Kind.ALL, 1)])
    with pytest.raises(ValueError, match="ends before the backward pass of stage 1"):
        example.peak_bytes([Operation(Kind.ALL, 0)])


def test_memory_and_slots_are_positive():
    with pytest.raises(ValueError, match="both must be 1 or more"):
        solve(chain(outputs=[1], forward_ms=[1]), memory_bytes=0)
