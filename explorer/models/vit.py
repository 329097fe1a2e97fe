"""Vision Transformer (Dosovitskiy et al., 2021)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Self-attention over all patches."""

    def __init__(self, *, width: int, heads: int) -> None:
        """Query, key and value come from one projection."""
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) → (N, T, width)."""
        n, t, width = x.shape
        query, key, value = (
            part.view(n, t, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(query, key, value)
        return self.projection(y.transpose(1, 2).reshape(n, t, width))


class Block(nn.Module):
    """Attention and a perceptron, each behind a LayerNorm and around a shortcut."""

    def __init__(self, *, width: int, heads: int) -> None:
        """The perceptron is four times as wide as the stream."""
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width=width, heads=heads)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) → (N, T, width)."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Patches as tokens, a class token in front, an encoder, a linear head."""

    def __init__(
        self,
        *,
        image_size: int = 224,
        patch: int = 16,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        classes: int = 1000,
    ) -> None:
        """The defaults are ViT-B/16's."""
        super().__init__()
        self.image_size = image_size
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, (image_size // patch) ** 2 + 1, width))
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.blocks = nn.ModuleList(Block(width=width, heads=heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Images (N, 3, image_size, image_size) → logits (N, classes).

        Raises:
            ValueError: the images have another size than the model was built for.
        """
        if x.shape[2:] != (self.image_size, self.image_size):
            raise ValueError(f"images of {tuple(x.shape[2:])} must be {self.image_size} × {self.image_size}")
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x[:, 0]))


def vit_b_16() -> ViT:
    """86.6 million parameters."""
    return ViT()
