"""U-Net (Ronneberger et al., 2015) and 3D U-Net (Çiçek et al., 2016), padded: the output has the input's size."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from explorer.models.initialisation import initialise_convolutions


class Convolution2d(nn.Sequential):
    """3×3 convolution, BatchNorm, ReLU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        """Keeps height and width."""
        super().__init__(
            nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class Convolution3d(nn.Sequential):
    """3×3×3 convolution, BatchNorm without scale and shift (as the authors' own), ReLU."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        """Keeps depth, height and width."""
        super().__init__(
            nn.Conv3d(in_channels, out_channels, 3, padding=1),
            nn.BatchNorm3d(out_channels, affine=False),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """Four levels down, four up, each joined to the level it mirrors."""

    def __init__(self, *, channels: int = 3, classes: int = 1, width: int = 64) -> None:
        """``width`` is the first level's; each level below doubles it."""
        super().__init__()
        widths = [width * 2**level for level in range(5)]
        self.down = nn.ModuleList(
            nn.Sequential(Convolution2d(before, after), Convolution2d(after, after))
            for before, after in pairwise([channels, *widths])
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in reversed(widths[:-1]))
        self.join = nn.ModuleList(
            nn.Sequential(Convolution2d(2 * w, w), Convolution2d(w, w)) for w in reversed(widths[:-1])
        )
        self.head = nn.Conv2d(width, classes, 1)
        initialise_convolutions(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, channels, H, W) → logits (N, classes, H, W).

        Raises:
            ValueError: H or W is not a multiple of 16.
        """
        return _u_shape(self, x)


class UNet3d(nn.Module):
    """Three levels down, three up; channels double before a pool, not after it."""

    def __init__(self, *, channels: int = 3, classes: int = 3, width: int = 32) -> None:
        """``width`` is that of the very first convolution."""
        super().__init__()
        widths = [2 * width * 2**level for level in range(4)]
        self.down = nn.ModuleList(
            nn.Sequential(Convolution3d(before, after // 2), Convolution3d(after // 2, after))
            for before, after in pairwise([channels, *widths])
        )
        self.pool = nn.MaxPool3d(2)
        self.up = nn.ModuleList(
            nn.ConvTranspose3d(2 * w, 2 * w, 2, stride=2, bias=False) for w in reversed(widths[:-1])
        )
        self.join = nn.ModuleList(
            nn.Sequential(Convolution3d(3 * w, w), Convolution3d(w, w)) for w in reversed(widths[:-1])
        )
        self.head = nn.Conv3d(widths[0], classes, 1)
        initialise_convolutions(self)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Volumes (N, channels, D, H, W) → logits (N, classes, D, H, W).

        Raises:
            ValueError: D, H or W is not a multiple of 8.
        """
        return _u_shape(self, x)


def _u_shape(model: UNet | UNet3d, x: torch.Tensor) -> torch.Tensor:
    """The forward pass that both share."""
    multiple = 2 ** (len(model.down) - 1)
    if any(size % multiple for size in x.shape[2:]):
        raise ValueError(f"spatial sizes {tuple(x.shape[2:])} must be multiples of {multiple}")
    skips = []
    for level in model.down:
        x = level(model.pool(x) if skips else x)
        skips.append(x)
    for up, join, skip in zip(model.up, model.join, reversed(skips[:-1]), strict=True):
        x = join(torch.cat([skip, up(x)], dim=1))
    return model.head(x)


def unet() -> UNet:
    """31.0 million parameters."""
    return UNet()


def unet3d() -> UNet3d:
    """19.1 million parameters."""
    return UNet3d()
