"""The models of the papers, small enough to read, by name.

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

from explorer.models.googlenet import googlenet, three_losses
from explorer.models.gpt import GPTConfig, gpt2
from explorer.models.mobilenet import mobilenet_v2
from explorer.models.resnet import resnet50
from explorer.models.unet import unet, unet3d
from explorer.models.vgg import vgg16
from explorer.models.vit import vit_b_16

__all__ = ["MODELS", "ModelSpec"]

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
    """

    name: str
    title: str
    build: Callable[[], nn.Module]
    batch: Callable[..., tuple[Any, ...]]
    loss: Callable[[Any, torch.Tensor], torch.Tensor] | None
    batch_size: int


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
    batch: Callable[..., tuple[Any, ...]],
    *,
    batch_size: int,
    loss: Callable[[Any, torch.Tensor], torch.Tensor] | None = F.cross_entropy,
) -> ModelSpec:
    """A spec whose batches have ``batch_size`` unless told otherwise."""
    return ModelSpec(name, title, build, partial(batch, batch_size=batch_size), loss, batch_size)


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
