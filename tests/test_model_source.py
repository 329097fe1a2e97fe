"""Bundled models in the size of a profile, and users' own functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import explorer
from explorer import model_source
from explorer.capture import capture
from explorer.graph import TensorSpec


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ((8, 3, 112, 96), {"batch_size": 8, "image_size": (112, 96)}),
        ((1, 3, 16, 32, 48), {"batch_size": 1, "volume_size": (16, 32, 48)}),
        ((2, 128), {"batch_size": 2, "sequence_length": 128}),
    ],
)
def test_sizes_of_a_batch_are_those_the_models_take(shape: tuple[int, ...], sizes: dict[str, Any]) -> None:
    assert (
        model_source._sizes([TensorSpec("batch[0]", shape, "float32"), TensorSpec("batch[1]", (8,), "int64")]) == sizes
    )


def test_a_bundled_model_is_the_same_each_time_and_leaves_random_numbers_alone() -> None:
    like = [TensorSpec("batch[0]", (2, 3, 32, 48), "float32")]
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, batch, loss = model_source.bundled("mobilenet_v2", like=like)
    assert torch.equal(torch.rand(3), expected)
    again, same_batch, _ = model_source.bundled("mobilenet_v2", like=like)
    assert batch[0].shape == (2, 3, 32, 48)
    assert torch.equal(batch[0], same_batch[0])
    assert all(torch.equal(x, y) for x, y in zip(first.parameters(), again.parameters(), strict=True))
    assert loss is not None


def test_the_bundled_profile_is_of_the_bundled_model() -> None:
    """Whoever adds an implementation to an operator must measure the bundled profile again."""
    known = explorer.load_profile("resnet50-small-cpu").graph.identity
    model, batch, loss = model_source.bundled("resnet50", like=known.batch)
    assert known.difference(capture(model, batch, loss=loss).graph.identity) is None


def test_a_bundled_model_is_in_the_precision_that_is_asked_for() -> None:
    model, batch, _ = model_source.bundled("vit_b16", batch_size=1, image_size=224, dtype="bfloat16")
    assert {x.dtype for x in (*model.parameters(), batch[0])} == {torch.bfloat16}
    like = explorer.load_profile("vit_b16-h200").graph.batch
    model, batch, _ = model_source.bundled("vit_b16", like=like)
    assert next(model.parameters()).dtype == batch[0].dtype == torch.bfloat16
    with pytest.raises(ValueError, match="dtype is 'half'; allowed: 'bfloat16'"):
        model_source.bundled("vit_b16", dtype="half")
