"""ResNets of 50 layers and more (He et al., 2016), the stride on the 3×3 convolution ("v1.5", as everybody trains)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from explorer.models.initialisation import initialise_convolutions

CLASSES = 1000


class Bottleneck(nn.Module):
    """1×1 down, 3×3, 1×1 up to four times the width, around a shortcut."""

    expansion = 4

    def __init__(self, in_channels: int, width: int, *, stride: int) -> None:
        """A block from ``in_channels`` to ``4 * width`` channels."""
        super().__init__()
        out_channels = self.expansion * width
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU()
        self.shortcut = shortcut(in_channels, out_channels, stride=stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) → (N, 4·width, H/stride, W/stride)."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + self.shortcut(x))


def shortcut(in_channels: int, out_channels: int, *, stride: int) -> nn.Module:
    """The identity, or a projection where the shape changes."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
        nn.BatchNorm2d(out_channels),
    )


class ResNet(nn.Module):
    """Stem, four groups of residual blocks, global average, classifier."""

    def __init__(self, depths: Sequence[int], *, classes: int = CLASSES) -> None:
        """Stack ``depths[i]`` blocks in group i."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        groups = []
        for group, depth in enumerate(depths):
            width = 64 * 2**group
            blocks = []
            for position in range(depth):
                stride = 2 if group > 0 and position == 0 else 1
                blocks.append(Bottleneck(channels, width, stride=stride))
                channels = Bottleneck.expansion * width
            groups.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = groups
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, classes)
        initialise_convolutions(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, H, W) of any size → logits (N, classes)."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def resnet50() -> ResNet:
    """25.6 million parameters."""
    return ResNet((3, 4, 6, 3))
