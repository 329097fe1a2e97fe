"""The longest sequence within a budget."""

from __future__ import annotations

import pytest
import torch

import explorer
from explorer.models.gpt import GPT, GPTConfig
from explorer.solvers.methods.batch_size import with_batch_size
from explorer.solvers.sequences import largest_sequence
from tests.solvers.graphs import chain

CHAIN = chain(6)


def grown(length: int) -> explorer.Profile:
    return with_batch_size(CHAIN, length, measured=10)


def least_bytes(length: int) -> int:
    minimum = explorer.smallest_budget(grown(length)).minimum
    assert minimum is not None
    return minimum.budget_bytes


@pytest.mark.thorough("2500-1", "900-1")
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("budget", [900, 2500])
def test_the_longest_that_fits(budget: int, multiple: int) -> None:
    tried: list[int] = []
    found = largest_sequence(lambda n: (tried.append(n), grown(n))[1], budget=budget, multiple=multiple, time_limit=2.0)
    assert found.length % multiple == 0
    assert found.excluded == found.length + multiple
    assert least_bytes(found.length) <= budget < least_bytes(found.excluded)
    assert found.solution is not None
    assert found.solution.peak_bytes is not None
    assert found.solution.peak_bytes <= budget
    assert len(tried) == len(set(tried)) <= 14


def test_nothing_fits_or_everything() -> None:
    none = largest_sequence(grown, budget=10, multiple=4)
    assert (none.length, none.excluded, none.solution) == (0, 4, None)
    everything = largest_sequence(grown, budget="1 GiB", multiple=4, most=39)
    assert (everything.length, everything.excluded) == (36, None)


@pytest.mark.thorough
def test_a_language_model_that_is_estimated() -> None:
    with torch.device("meta"):
        model = GPT(GPTConfig(layers=2, width=64, heads=2, context=4096, vocabulary=2000))

    def profile_of(length: int) -> explorer.Profile:
        tokens = torch.zeros(1, length, dtype=torch.long, device="meta")
        return explorer.estimate(model, (tokens, tokens), device="A100-40GB")

    found = largest_sequence(profile_of, budget="20 MiB", multiple=512, most=4096, time_limit=1.0)
    assert 0 < found.length < 4096
    assert found.solution is not None
    assert found.solution.schedule is not None


def test_what_fits_the_smallest_budget_alone_has_its_schedule() -> None:
    profile = explorer.load_profile("resnet50-small-cpu")
    smallest = explorer.smallest_budget(profile, time_limit=1)
    assert smallest.minimum is not None
    budget = smallest.minimum.budget_bytes
    found = largest_sequence(lambda _: profile, budget=budget, multiple=128, most=128, time_limit=1)
    if found.length:  # it was as small once more
        assert found.solution is not None
        assert found.solution.schedule is not None
        assert explorer.simulate(profile, found.solution.schedule).peak_bytes <= budget
