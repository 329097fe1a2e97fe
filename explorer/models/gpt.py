"""A GPT-2-style decoder (Radford et al., 2019)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class GPTConfig:
    """Sizes of a decoder; the defaults are GPT-2 small's.

    Attributes:
        vocabulary: distinct tokens.
        context: longest sequence.
        layers: blocks.
        heads: of attention, per block.
        width: of the residual stream.
        dropout: after embeddings, attention and each branch; GPT-2 had 0.1, pretraining today has none.
    """

    vocabulary: int = 50257
    context: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768
    dropout: float = 0.0


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, config: GPTConfig) -> None:
        """Query, key and value come from one projection."""
        super().__init__()
        self.heads = config.heads
        self.dropout = config.dropout
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.projection = nn.Linear(config.width, config.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) → (N, T, width)."""
        n, t, width = x.shape
        query, key, value = (
            part.view(n, t, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(n, t, width))


class Block(nn.Module):
    """Attention and a perceptron, each behind a LayerNorm and around a shortcut."""

    def __init__(self, config: GPTConfig) -> None:
        """The perceptron is four times as wide as the stream."""
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * config.width, config.width),
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, T, width) → (N, T, width)."""
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """Embeddings, blocks, and logits through the token embedding again (tied weights)."""

    def __init__(self, config: GPTConfig | None = None) -> None:
        """GPT-2 small unless ``config`` says otherwise."""
        super().__init__()
        self.config = config = config or GPTConfig()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self._initialise()

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor | None = None) -> torch.Tensor:
        """Tokens (N, T) → logits (N, T, vocabulary), or the mean cross-entropy where ``targets`` (N, T) are given.

        Raises:
            ValueError: T is longer than the context.
        """
        length = tokens.shape[1]
        if length > self.config.context:
            raise ValueError(f"sequence of {length} tokens is longer than the context of {self.config.context}")
        positions = torch.arange(length, device=tokens.device)
        x = self.dropout(self.tokens(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def _initialise(self) -> None:
        """GPT-2's: normal with 0.02, and 1/√(2·layers) of it for what is added to the stream."""
        for name, parameter in self.named_parameters():
            if name.endswith(("projection.weight", "mlp.2.weight")):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * self.config.layers))
            elif parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


def gpt2() -> GPT:
    """124 million parameters."""
    return GPT()
