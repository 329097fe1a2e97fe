"""A value for every pixel or box: UNet in two and three dimensions, FCN, DeepLab, RetinaNet, and odd paddings."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.specimen import Specimen, classifier, convolution, images, masks, normalised


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(*normalised(inputs, outputs), *normalised(outputs, outputs))


class _UNet(nn.Module):
    """Ronneberger et al., 2015; upwards by transposed convolution, or by bilinear interpolation."""

    def __init__(self, *, bilinear: bool = False) -> None:
        super().__init__()
        widths = (8, 16, 32)
        self.down = nn.ModuleList(_double(a, b) for a, b in zip((3, *widths), widths, strict=False))
        self.lift = nn.ModuleList(
            nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), convolution(2 * width, width, 1)
            )
            if bilinear
            else nn.ConvTranspose2d(2 * width, width, 2, stride=2)
            for width in (16, 8)
        )
        self.up = nn.ModuleList(_double(2 * width, width) for width in (16, 8))
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for lift, block, skip in zip(self.lift, self.up, reversed(kept[:-1]), strict=True):
            x = block(torch.cat([skip, lift(x)], 1))
        return self.head(x)


class _UNet3d(nn.Module):
    """Çiçek et al., 2016, with instance normalisation and trilinear interpolation."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = self.block(1, 8)
        self.deep = self.block(8, 16)
        self.leave = self.block(24, 8)
        self.head = nn.Conv3d(8, 3, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        """Convolution, instance norm with learned scale, leaky ReLU."""
        return nn.Sequential(
            nn.Conv3d(inputs, outputs, 3, padding=1), nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.enter(x)
        x = self.deep(F.max_pool3d(kept, 2))
        x = F.interpolate(x, size=kept.shape[2:], mode="trilinear", align_corners=False)
        return self.head(self.leave(torch.cat([kept, x], 1)))


class _Fcn(nn.Module):
    """Long et al., 2015: scores of a strided network, brought to full size."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode
        self.body = nn.Sequential(normalised(3, 16, stride=2), normalised(16, 32, stride=2), normalised(32, 32))
        self.head = nn.Sequential(normalised(32, 16), nn.Dropout(0.1), nn.Conv2d(16, 4, 1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.head(self.body(x))
        return {"out": F.interpolate(y, size=x.shape[-2:], mode=self.mode, align_corners=False)}


class _DeepLab(nn.Module):
    """DeepLab-V3 (Chen et al., 2017): atrous convolutions side by side, with a branch for the whole picture."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            normalised(3, 16, stride=2), normalised(16, 32, stride=2), normalised(32, 32, dilation=2)
        )
        self.branches = nn.ModuleList([normalised(32, 16, 1), *(normalised(32, 16, dilation=d) for d in (2, 4))])
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), normalised(32, 16, 1))
        self.join = nn.Sequential(normalised(64, 16, 1), nn.Dropout(0.5), nn.Conv2d(16, 4, 1))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.body(x)
        parts = [branch(y) for branch in self.branches]
        parts.append(F.interpolate(self.whole(y), size=y.shape[-2:], mode="bilinear", align_corners=False))
        y = self.join(torch.cat(parts, 1))
        return {"out": F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)}


def _pixels(outputs: dict[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs["out"], target)


class _RetinaNet(nn.Module):
    """A feature pyramid (Lin et al., 2017) with shared heads and the focal loss; returns a dict of losses."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.ModuleList(
            [normalised(3, 16, stride=4), normalised(16, 24, stride=2), normalised(24, 32, stride=2)]
        )
        self.lateral = nn.ModuleList(nn.Conv2d(width, 16, 1) for width in (16, 24, 32))
        self.smooth = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(3))
        self.classes = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(16, 2 * 5, 3, padding=1)
        )
        self.boxes = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(16, 2 * 4, 3, padding=1)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor, boxes: torch.Tensor) -> dict[str, torch.Tensor]:
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        levels = [lateral(y) for lateral, y in zip(self.lateral, kept, strict=True)]
        for number in (1, 0):
            levels[number] = levels[number] + F.interpolate(levels[number + 1], scale_factor=2, mode="nearest")
        levels = [smooth(y) for smooth, y in zip(self.smooth, levels, strict=True)]
        n = len(x)
        logits = torch.cat([self.classes(y).permute(0, 2, 3, 1).reshape(n, -1, 5) for y in levels], 1)
        found = torch.cat([self.boxes(y).permute(0, 2, 3, 1).reshape(n, -1, 4) for y in levels], 1)
        wanted = F.one_hot(labels, 6)[..., 1:].to(logits.dtype)
        p = torch.sigmoid(logits)
        cross = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        surprise = torch.where(wanted > 0, 1 - p, p)
        foreground = (labels > 0).unsqueeze(-1)
        distance = F.smooth_l1_loss(found, boxes, reduction="none") * foreground
        focal = (cross * surprise**2).sum() / foreground.sum().clamp(min=1)
        return {"classification": focal, "regression": distance.sum() / foreground.sum().clamp(min=1)}


def _boxes() -> Any:
    places = 2 * (16 * 16 + 8 * 8 + 4 * 4)
    return {
        "x": torch.randn(2, 3, 64, 64),
        "labels": torch.randint(0, 6, (2, places)) * (torch.rand(2, places) < 0.1),
        "boxes": torch.randn(2, places, 4),
    }


class _Padded(nn.Module):
    """Circular, reflected and replicated padding, ``padding="valid"`` and ``"same"``."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=2, padding_mode="reflect"),
            nn.PReLU(8),
            nn.Conv2d(8, 8, 4, padding="same"),
            nn.ELU(),
            nn.ReplicationPad2d(1),
            nn.Conv2d(8, 8, 3, padding="valid"),
            nn.Softplus(),
            nn.ZeroPad2d((0, 1, 0, 1)),
        )
        self.head = classifier(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x))


class _SuperResolution(nn.Module):
    """Shi et al., 2016, with a bicubic shortcut: pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 12, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        return F.pixel_shuffle(self.layers(x), 2) + shortcut


def _volumes() -> Any:
    return torch.randn(1, 1, 12, 16, 16), torch.randint(3, (1, 12, 16, 16))


_loss = F.cross_entropy
_family = "Dense prediction"
SPECIMENS = (
    Specimen("unet", _family, _UNet, masks(2, 32), _loss),
    Specimen("unet_bilinear", _family, lambda: _UNet(bilinear=True), masks(2, 32), _loss, ("bilinear interpolation",)),
    Specimen("unet3d", _family, _UNet3d, _volumes, _loss, ("trilinear interpolation", "instance norm")),
    Specimen("fcn", _family, lambda: _Fcn("bilinear"), masks(2, 64), _pixels, ("a dict of outputs", "dropout")),
    Specimen("deeplab_v3", _family, _DeepLab, masks(2, 64), _pixels, ("atrous convolutions", "dropout")),
    Specimen("retinanet", _family, _RetinaNet, _boxes, None, ("a dict of two losses", "heads shared by levels")),
    Specimen("odd_paddings", _family, _Padded, images(8, 24), _loss, ("circular, reflected, replicated padding",)),
    Specimen(
        "super_resolution",
        _family,
        _SuperResolution,
        lambda: (torch.randn(4, 3, 24, 24), torch.randn(4, 3, 48, 48)),
        F.l1_loss,
        ("bicubic interpolation", "pixel shuffle"),
    ),
)
