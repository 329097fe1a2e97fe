"""MobileNet-V2 (Sandler et al., 2018)."""

from __future__ import annotations

import torch
from torch import nn

from explorer.models.initialisation import initialise_convolutions

CLASSES = 1000
# Table 2 of the paper: (expansion, channels, repeats, stride of the first).
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class Convolution(nn.Sequential):
    """Convolution, BatchNorm, ReLU6."""

    def __init__(self, in_channels: int, out_channels: int, size: int, *, stride: int = 1, groups: int = 1) -> None:
        """A square kernel, padded so that stride 1 keeps the size."""
        super().__init__(
            nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, groups=groups, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU6(),
        )


class InvertedResidual(nn.Module):
    """Expand, filter each channel alone, project back without an activation (the linear bottleneck)."""

    def __init__(self, in_channels: int, out_channels: int, *, expansion: int, stride: int) -> None:
        """Adds its input where the shape allows it."""
        super().__init__()
        width = expansion * in_channels
        expand = [Convolution(in_channels, width, 1)] if expansion > 1 else []
        self.layers = nn.Sequential(
            *expand,
            Convolution(width, width, 3, stride=stride, groups=width),
            nn.Conv2d(width, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
        )
        self.residual = stride == 1 and in_channels == out_channels

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) → (N, out_channels, H/stride, W/stride)."""
        y = self.layers(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """Seventeen inverted residuals between a stem and a classifier."""

    def __init__(self, *, classes: int = CLASSES) -> None:
        """Width multiplier 1."""
        super().__init__()
        layers: list[nn.Module] = [Convolution(3, 32, 3, stride=2)]
        channels = 32
        for expansion, width, repeats, first_stride in STAGES:
            for position in range(repeats):
                stride = first_stride if position == 0 else 1
                layers.append(InvertedResidual(channels, width, expansion=expansion, stride=stride))
                channels = width
        layers.append(Convolution(channels, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(1280, classes)
        initialise_convolutions(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, H, W) of any size → logits (N, classes)."""
        return self.fc(self.dropout(self.avgpool(self.features(x)).flatten(1)))


def mobilenet_v2() -> MobileNetV2:
    """3.5 million parameters."""
    return MobileNetV2()
