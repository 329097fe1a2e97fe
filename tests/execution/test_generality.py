"""Real networks, bundled and from Hugging Face: equal loss, gradients and buffers under recomputation."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import explorer
from explorer.capture import capture
from explorer.models import MODELS
from explorer.models.resnet import ResNet
from tests.execution.test_exactness import assert_trains_like_eager
from tests.schedules import random_schedule

SMALL_BATCHES: dict[str, dict[str, Any]] = {
    "resnet50": {"batch_size": 2, "image_size": 64},
    "vgg16": {"batch_size": 2, "image_size": 64},
    "googlenet": {"batch_size": 2, "image_size": 64},
    "mobilenet_v2": {"batch_size": 2, "image_size": 64},
    "unet": {"batch_size": 1, "image_size": 64},
    "unet3d": {"batch_size": 1, "volume_size": 16},
    "gpt2": {"batch_size": 1, "sequence_length": 32},
    "vit_b16": {"batch_size": 1},
}


@pytest.mark.thorough("resnet50", "vgg16", "googlenet", "mobilenet_v2", "unet", "gpt2", "vit_b16")
@pytest.mark.parametrize("name", MODELS)
def test_bundled_models(name: str) -> None:
    torch.manual_seed(0)
    spec = MODELS[name]
    model, batch = spec.build().train(), spec.batch(**SMALL_BATCHES[name])
    schedule = random_schedule(capture(model, batch, loss=spec.loss).graph, 1, keep=0.7)
    assert_trains_like_eager((model, batch, spec.loss), schedule, steps=1)


# Its configuration warns about a default of its own.
@pytest.mark.thorough("bert")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_hugging_face_models(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    # All of the architecture, four layers of it: what is captured of a layer does not depend on how many there are.
    if name == "gpt2":
        config = transformers.GPT2Config(use_cache=False, n_layer=4, n_embd=128, n_head=4, vocab_size=1000)
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.BertConfig(
            num_hidden_layers=4, hidden_size=128, num_attention_heads=4, intermediate_size=512, vocab_size=1000
        )
        model = transformers.BertForMaskedLM(config)
    tokens = torch.randint(0, model.config.vocab_size, (2, 64))
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    graph = capture(model.train(), batch).graph
    schedule = random_schedule(graph, 1, keep=0.9)
    assert schedule.recomputed(graph)
    assert_trains_like_eager((model, batch, None), schedule, steps=1)


def test_autocast_is_captured() -> None:
    """The casts of a capture under autocast are part of the graph; the step runs as captured, inside or outside."""
    torch.manual_seed(0)
    spec = MODELS["resnet50"]
    model, batch = ResNet((1, 1, 1, 1)).train(), spec.batch(batch_size=2, image_size=64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        schedule = random_schedule(capture(model, batch, loss=spec.loss).graph, 1, keep=0.7)
        scheduled = explorer.apply(copy.deepcopy(model), schedule, batch, loss=spec.loss)
        loss = scheduled(*batch)
        plain = spec.loss(model(batch[0]), batch[1])
    loss.backward()
    plain.backward()
    assert torch.equal(loss, plain)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(scheduled.parameters(), model.parameters(), strict=True))
