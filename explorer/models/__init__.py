"""The models of the papers, small enough to read, and transformers of the size that people train, by name.

``MODELS["resnet50"].build()`` makes the model, ``.batch(batch_size=8, image_size=112)`` a random batch for it.
A spec with a loss has batches of the form (inputs, target), and ``loss(model(inputs), target)`` is the step's scalar;
without one, the model returns its loss when it is called with the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from explorer.models import transformers
from explorer.models.googlenet import googlenet, three_losses
from explorer.models.gpt import GPTConfig, gpt2
from explorer.models.mobilenet import mobilenet_v2
from explorer.models.resnet import resnet50
from explorer.models.unet import unet, unet3d
from explorer.models.vgg import vgg16
from explorer.models.vit import vit_b_16

__all__ = ["MODELS", "TRANSFORMERS", "ModelSpec", "model_spec"]

Size = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A bundled model, how to feed it and what to minimise.

    Attributes:
        name: its key in ``MODELS``.
        title: as papers write it.
        build: makes the model, randomly initialised.
        batch: makes a random batch; keyword ``batch_size``, and ``image_size``, ``volume_size`` or ``sequence_length``.
        loss: of (outputs, target), or None where the model returns its loss.
        batch_size: that of MONeT's experiments (section 5) where the paper has the model, else one for a 16 GB device.
        dtype: of all floating-point tensors of model and batch, which ``build`` and ``batch`` make in float32.
    """

    name: str
    title: str
    build: Callable[[], nn.Module]
    batch: Callable[..., Any]
    loss: Callable[[Any, torch.Tensor], torch.Tensor] | None
    batch_size: int
    dtype: torch.dtype = torch.float32


def image_batch(*, batch_size: int, image_size: Size = 224) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 3, H, W) and a class (N,) for each; ``image_size`` is one side, or (H, W)."""
    images = torch.randn(batch_size, 3, *_sides(image_size, 2))
    return images, torch.randint(1000, (batch_size,))


def mask_batch(*, batch_size: int, image_size: Size = (416, 608)) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (N, 3, H, W) and a mask (N, 1, H, W) of zeros and ones for each."""
    sides = _sides(image_size, 2)
    return torch.randn(batch_size, 3, *sides), torch.randint(2, (batch_size, 1, *sides)).float()


def volume_batch(*, batch_size: int, volume_size: Size = (112, 128, 128)) -> tuple[torch.Tensor, torch.Tensor]:
    """Volumes (N, 3, D, H, W) and one of three classes (N, D, H, W) for each voxel."""
    sides = _sides(volume_size, 3)
    return torch.randn(batch_size, 3, *sides), torch.randint(3, (batch_size, *sides))


def token_batch(*, batch_size: int, sequence_length: int = 1024) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (N, T), and the same moved on by one as targets."""
    tokens = torch.randint(GPTConfig().vocabulary, (batch_size, sequence_length + 1))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _sides(size: Size, dimensions: int) -> tuple[int, ...]:
    """One side for all dimensions, or each its own."""
    sides = (size,) * dimensions if isinstance(size, int) else tuple(size)
    if len(sides) != dimensions or min(sides) <= 0:
        raise ValueError(f"size {size!r} must be one positive int or {dimensions} of them")
    return sides


def _spec(
    name: str,
    title: str,
    build: Callable[[], nn.Module],
    batch: Callable[..., Any],
    *,
    batch_size: int,
    loss: Callable[[Any, torch.Tensor], torch.Tensor] | None = F.cross_entropy,
) -> ModelSpec:
    """A spec whose batches have ``batch_size`` unless told otherwise."""
    return ModelSpec(name, title, build, partial(batch, batch_size=batch_size), loss, batch_size)


def _transformer(
    name: str, title: str, build: Callable[[], nn.Module], batch: Callable[..., Any], *, batch_size: int, **sizes: int
) -> ModelSpec:
    """One in bfloat16 that returns its loss; ``sizes`` are those of its batches unless told otherwise."""
    batch = partial(batch, batch_size=batch_size, **sizes)
    return ModelSpec(name, title, build, batch, None, batch_size, torch.bfloat16)


_mask_loss = F.binary_cross_entropy_with_logits
MODELS: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _spec("resnet50", "ResNet-50", resnet50, image_batch, batch_size=184),
        _spec("vgg16", "VGG-16", vgg16, image_batch, batch_size=176),
        _spec("googlenet", "GoogLeNet", googlenet, image_batch, batch_size=320, loss=three_losses),
        _spec("mobilenet_v2", "MobileNet-V2", mobilenet_v2, image_batch, batch_size=256),
        _spec("unet", "UNet", unet, mask_batch, batch_size=11, loss=_mask_loss),
        _spec("unet3d", "3D-UNet", unet3d, volume_batch, batch_size=1),
        _spec("gpt2", "GPT-2 small", gpt2, token_batch, batch_size=8, loss=None),
        _spec("vit_b16", "ViT-B/16", vit_b_16, image_batch, batch_size=64),
    )
}
"""Those of the papers; they are ours, and small enough to read."""

TRANSFORMERS: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _transformer(
            "llama3_8b",
            "Llama 3 8B",
            transformers.llama3_8b,
            partial(transformers.text_batch, vocabulary=128256),
            batch_size=1,
            sequence_length=8192,
        ),
        _transformer(
            "llama3_70b_shard",
            "Llama 3 70B, an eighth of each layer",
            transformers.llama3_70b_shard,
            partial(transformers.text_batch, vocabulary=128256 // 8),
            batch_size=1,
            sequence_length=8192,
        ),
        _transformer(
            "qwen2_5_7b",
            "Qwen2.5 7B",
            transformers.qwen2_5_7b,
            partial(transformers.text_batch, vocabulary=152064),
            batch_size=1,
            sequence_length=8192,
        ),
        _transformer(
            "bert_large",
            "BERT large",
            transformers.bert_large,
            partial(transformers.text_batch, vocabulary=30522),
            batch_size=64,
            sequence_length=512,
        ),
        _transformer(
            "t5_base",
            "T5 base",
            transformers.t5_base,
            partial(transformers.text_batch, vocabulary=32128),
            batch_size=32,
            sequence_length=512,
        ),
        _transformer(
            "whisper_small", "Whisper small", transformers.whisper_small, transformers.sound_batch, batch_size=32
        ),
        _transformer("vit_l16", "ViT-L/16", transformers.vit_l_16, transformers.picture_batch, batch_size=128),
    )
}
"""Hugging Face's, at the sizes in which people train them."""


def model_spec(name: str) -> ModelSpec:
    """A bundled model.

    Raises:
        ValueError: there is none of that name; lists those there are.
    """
    known = MODELS | TRANSFORMERS
    if name not in known:
        raise ValueError(f"no bundled model {name!r}; bundled: {', '.join(known)}")
    return known[name]
