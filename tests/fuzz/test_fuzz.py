"""Random programs train by random schedules as in eager mode. ``make fuzz`` runs thousands more."""

from __future__ import annotations

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.checking import Effort
from tests.fuzz.running import judged, text

seeds = st.integers(0, 2**32 - 1)
# The same ones each time: others are for ``make fuzz``.
# What fails is made smaller by the fuzzer itself, which knows what a line of a program is.
phases = (Phase.explicit, Phase.generate)


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """The tensors are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def assert_fine(seed: int, effort: Effort) -> None:
    program, verdict = judged(seed, effort, small=True)
    assert verdict.outcome.fine, text(program, verdict)


@settings(max_examples=60, phases=phases, derandomize=True)
@given(seed=seeds)
def test_random_programs_train_like_eager(seed: int) -> None:
    assert_fine(seed, Effort(schedules=1, twice=seed % 4 == 0))


@pytest.mark.thorough
@settings(max_examples=240, phases=phases, derandomize=True)
@given(seed=seeds)
def test_more_random_programs_train_like_eager(seed: int) -> None:
    assert_fine(seed, Effort(schedules=1, twice=seed % 4 == 0))


@settings(max_examples=15, phases=phases, derandomize=True)
@given(seed=seeds)
def test_random_programs_peak_as_predicted(seed: int) -> None:
    assert_fine(seed, Effort(schedules=1, twice=False, peak=True))
