"""The bundled models are the published ones, and train at sizes other than the published."""

from __future__ import annotations

import sys

import pytest
import torch

from explorer.model_source import bundled
from explorer.models import MODELS, TRANSFORMERS
from explorer.models.googlenet import AUXILIARY_WEIGHT, three_losses
from explorer.models.gpt import GPT, GPTConfig
from explorer.models.resnet import ResNet

PARAMETERS = {
    "resnet50": 25_557_032,
    "vgg16": 138_357_544,
    "googlenet": 13_004_888,
    "mobilenet_v2": 3_504_872,
    "unet": 31_037_633,
    "unet3d": 19_069_955,
    "gpt2": 124_439_808,
    "vit_b16": 86_567_656,
}
# Smaller than published, and where the model allows it neither square nor a power of two.
SIZES = {
    "resnet50": {"image_size": (80, 112)},
    "vgg16": {"image_size": (64, 96)},
    "googlenet": {"image_size": (80, 112)},
    "mobilenet_v2": {"image_size": (80, 112)},
    "unet": {"image_size": (48, 64)},
    "unet3d": {"volume_size": (8, 16, 24)},
    "gpt2": {"sequence_length": 16},
    "vit_b16": {},
}


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def loss_of(spec, model, batch):
    if spec.loss is None:
        return model(*batch)
    inputs, target = batch
    return spec.loss(model(inputs), target)


def test_every_model_has_a_count_and_a_size_here():
    assert MODELS.keys() == PARAMETERS.keys() == SIZES.keys()
    assert all(name == spec.name for name, spec in MODELS.items())


@pytest.mark.parametrize("name", MODELS)
def test_parameter_count_is_the_published_one(name):
    with torch.device("meta"):
        assert count(MODELS[name].build()) == PARAMETERS[name]


TRANSFORMER_PARAMETERS = {
    "llama3_8b": 8_030_261_248,
    "qwen2_5_7b": 7_615_616_512,
    "bert_large": 335_174_458,
    "t5_base": 222_903_552,
    "whisper_small": 241_734_912,
    "vit_l16": 304_326_632,
}


@pytest.mark.parametrize("name", TRANSFORMER_PARAMETERS)
def test_transformers_have_the_published_parameters_too(name):
    with torch.device("meta"):
        assert count(TRANSFORMERS[name].build()) == TRANSFORMER_PARAMETERS[name]


def test_a_shard_is_an_eighth_of_each_layer():
    with torch.device("meta"):
        shard = TRANSFORMERS["llama3_70b_shard"].build()
    whole = 70_553_706_496
    norms = (2 * 80 + 1) * 8192
    assert count(shard) == (whole - norms) // 8 + norms


def test_a_transformer_comes_in_its_precision():
    model, batch, loss = bundled("vit_l16", batch_size=1, image_size=224)
    assert {x.dtype for x in model.parameters()} == {batch["pixel_values"].dtype} == {torch.bfloat16}
    assert batch["labels"].dtype == torch.int64
    assert loss is None


def test_without_their_library_transformers_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match="pip install transformers"):
        TRANSFORMERS["bert_large"].build()


def test_a_deeper_resnet_comes_with_it():
    with torch.device("meta"):
        assert count(ResNet((3, 8, 36, 3))) == 60_192_808


@pytest.mark.parametrize("name", MODELS)
def test_published_batch_gives_a_scalar_loss(name):
    spec = MODELS[name]
    with torch.device("meta"):
        batch = spec.batch()
        loss = loss_of(spec, spec.build(), batch)
    assert loss.shape == ()
    assert len(batch[0]) == spec.batch_size


@pytest.mark.parametrize("name", MODELS)
def test_one_step_reaches_every_parameter(name):
    torch.manual_seed(0)
    spec = MODELS[name]
    model = spec.build()
    loss = loss_of(spec, model, spec.batch(batch_size=2, **SIZES[name]))
    loss.backward()
    assert loss.isfinite()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


@pytest.mark.parametrize("image_size", [256, (416, 608)])
def test_unet_keeps_the_size_of_its_input(image_size):
    with torch.device("meta"):
        images, masks = MODELS["unet"].batch(batch_size=1, image_size=image_size)
        assert MODELS["unet"].build()(images).shape == masks.shape


def test_googlenet_adds_its_auxiliary_losses_in_training_only():
    spec = MODELS["googlenet"]
    with torch.device("meta"):
        model, (images, _) = spec.build(), spec.batch(batch_size=2)
        assert [x.shape for x in model(images)] == 3 * [(2, 1000)]
        assert model.eval()(images).shape == (2, 1000)
    target = torch.tensor([0, 1])
    logits = torch.eye(2, 4)
    alone = three_losses(logits, target)
    torch.testing.assert_close(three_losses((logits, logits, logits), target), alone * (1 + 2 * AUXILIARY_WEIGHT))


def test_gpt_returns_logits_without_targets_and_their_loss_with_them():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=11, context=8, layers=1, heads=2, width=4, dropout=0.1)).eval()
    tokens = torch.randint(11, (2, 8))
    logits = model(tokens)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    torch.testing.assert_close(model(tokens, tokens), expected)


def test_gpt_does_not_look_ahead():
    torch.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=11, context=8, layers=2, heads=2, width=8))
    tokens = torch.randint(11, (1, 8))
    changed = tokens.clone()
    changed[0, 5] = (tokens[0, 5] + 1) % 11
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("unet", {"image_size": 100}, r"\(100, 100\) must be multiples of 16"),
        ("unet3d", {"volume_size": 12}, r"\(12, 12, 12\) must be multiples of 8"),
        ("vit_b16", {"image_size": 112}, r"images of \(112, 112\) must be 224 × 224"),
        ("gpt2", {"sequence_length": 1025}, "1025 tokens is longer than the context of 1024"),
        ("resnet50", {"image_size": (1, 2, 3)}, r"size \(1, 2, 3\) must be one positive int or 2 of them"),
        ("unet3d", {"volume_size": 0}, "size 0 must be one positive int or 3 of them"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(name, size, message):
    spec = MODELS[name]
    with torch.device("meta"), pytest.raises(ValueError, match=message):
        loss_of(spec, spec.build(), spec.batch(batch_size=1, **size))
