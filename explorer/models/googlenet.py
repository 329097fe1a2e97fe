"""GoogLeNet (Szegedy et al., 2015: Inception v1), with BatchNorm, and 3×3 where the paper has 5×5.

Both changes are those of the variant in common use; they make its parameter count the one people know.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from explorer.models.initialisation import initialise_convolutions

CLASSES = 1000
AUXILIARY_WEIGHT = 0.3  # section 5 of the paper

Logits = torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Convolution(nn.Sequential):
    """Convolution, BatchNorm, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, size: int, *, stride: int = 1) -> None:
        """A square kernel, padded so that stride 1 keeps the size."""
        super().__init__(
            nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False),
            nn.BatchNorm2d(out_channels, eps=0.001),
            nn.ReLU(),
        )


class Inception(nn.Module):
    """Four branches over one input, concatenated."""

    def __init__(
        self, in_channels: int, *, one: int, middle: tuple[int, int], wide: tuple[int, int], pooled: int
    ) -> None:
        """Channels of the branches; a pair is (reduction, output)."""
        super().__init__()
        self.one = Convolution(in_channels, one, 1)
        self.middle = nn.Sequential(Convolution(in_channels, middle[0], 1), Convolution(*middle, 3))
        self.wide = nn.Sequential(Convolution(in_channels, wide[0], 1), Convolution(*wide, 3))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, stride=1, padding=1), Convolution(in_channels, pooled, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) → (N, one + middle + wide + pooled, H, W)."""
        return torch.cat([self.one(x), self.middle(x), self.wide(x), self.pooled(x)], dim=1)


class AuxiliaryClassifier(nn.Module):
    """A second opinion halfway up, so that gradients reach the lower layers."""

    def __init__(self, in_channels: int, *, classes: int) -> None:
        """Pool to 4 × 4, reduce, classify."""
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.conv = Convolution(in_channels, 128, 1)
        self.fc1 = nn.Linear(128 * 4 * 4, 1024)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(0.7)
        self.fc2 = nn.Linear(1024, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) → logits (N, classes)."""
        x = self.conv(self.pool(x)).flatten(1)
        return self.fc2(self.dropout(self.relu(self.fc1(x))))


class GoogLeNet(nn.Module):
    """Nine Inception blocks; three losses in training."""

    def __init__(self, *, classes: int = CLASSES) -> None:
        """The blocks of the paper's table 1."""
        super().__init__()
        self.stem = nn.Sequential(
            Convolution(3, 64, 7, stride=2),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
            Convolution(64, 64, 1),
            Convolution(64, 192, 3),
            nn.MaxPool2d(3, stride=2, ceil_mode=True),
        )
        self.inception3a = Inception(192, one=64, middle=(96, 128), wide=(16, 32), pooled=32)
        self.inception3b = Inception(256, one=128, middle=(128, 192), wide=(32, 96), pooled=64)
        self.pool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception4a = Inception(480, one=192, middle=(96, 208), wide=(16, 48), pooled=64)
        self.inception4b = Inception(512, one=160, middle=(112, 224), wide=(24, 64), pooled=64)
        self.inception4c = Inception(512, one=128, middle=(128, 256), wide=(24, 64), pooled=64)
        self.inception4d = Inception(512, one=112, middle=(144, 288), wide=(32, 64), pooled=64)
        self.inception4e = Inception(528, one=256, middle=(160, 320), wide=(32, 128), pooled=128)
        self.pool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.inception5a = Inception(832, one=256, middle=(160, 320), wide=(32, 128), pooled=128)
        self.inception5b = Inception(832, one=384, middle=(192, 384), wide=(48, 128), pooled=128)
        self.auxiliary1 = AuxiliaryClassifier(512, classes=classes)
        self.auxiliary2 = AuxiliaryClassifier(528, classes=classes)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(1024, classes)
        initialise_convolutions(self)

    def forward(self, x: torch.Tensor) -> Logits:
        """Images (N, 3, H, W) → logits (N, classes); in training (main, first auxiliary, second auxiliary)."""
        x = self.pool3(self.inception3b(self.inception3a(self.stem(x))))
        x4a = self.inception4a(x)
        x4d = self.inception4d(self.inception4c(self.inception4b(x4a)))
        x = self.pool4(self.inception4e(x4d))
        x = self.inception5b(self.inception5a(x))
        main = self.fc(self.dropout(self.avgpool(x).flatten(1)))
        if not self.training:
            return main
        return main, self.auxiliary1(x4a), self.auxiliary2(x4d)


def googlenet() -> GoogLeNet:
    """13.0 million parameters, the auxiliary classifiers included."""
    return GoogLeNet()


def three_losses(logits: Logits, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the main classifier plus 0.3 times that of each auxiliary one (paper section 5)."""
    if isinstance(logits, torch.Tensor):
        return F.cross_entropy(logits, target)
    main, *auxiliary = logits
    loss = F.cross_entropy(main, target)
    for other in auxiliary:
        loss = loss + AUXILIARY_WEIGHT * F.cross_entropy(other, target)
    return loss
