"""VGG-16 (Simonyan & Zisserman, 2015), configuration D."""

from __future__ import annotations

import torch
from torch import nn

from explorer.models.initialisation import initialise_convolutions

CLASSES = 1000
CHANNELS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))  # a pool after each group


class VGG(nn.Module):
    """Thirteen 3×3 convolutions, five pools, three linear layers with dropout."""

    def __init__(self, *, classes: int = CLASSES, dropout: float = 0.5) -> None:
        """``dropout`` follows each of the two hidden linear layers."""
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for group in CHANNELS:
            for width in group:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(channels * 7 * 7, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(4096, classes),
        )
        initialise_convolutions(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, H, W), at least 32 × 32 → logits (N, classes)."""
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def vgg16() -> VGG:
    """138 million parameters, nine tenths of them in the linear layers."""
    return VGG()
