"""``python -m tests.fake_cuda.attention LIBRARY``: attention that a CUDA device captures beside that of an estimate.

Prints the cases whose graphs differ, as JSON, and how many there were. The device's capability is ``FAKE_CAPABILITY``;
its choice of kernels is the one of ``device.cpp``, what PyTorch makes of the arguments before is PyTorch's own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from tests.fake_cuda.steps import on_fake_cuda  # first: the device comes before torch

# isort: split
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from explorer.capture import capture
from explorer.capture.attention import Architecture
from explorer.capture.stand_in import capture_for_cuda

LENGTH = 12


class Attention(nn.Module):
    """With one projection for all, so that a case takes little."""

    def __init__(self, width: int, *, heads: int = 2, mask: torch.Tensor | None = None, **options: Any) -> None:
        super().__init__()
        self.width, self.heads, self.options = width, heads, options
        self.project = nn.Linear(4, (2 + 2 * heads) * width)
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.project(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
        query, key, value = made.split((2, self.heads, self.heads), 1)
        grouped = self.heads != 2
        attended = F.scaled_dot_product_attention(
            query, key, value, attn_mask=self.mask, enable_gqa=grouped, **self.options
        )
        return attended.float().square().mean()


class Gated(nn.Module):
    """SiLU, whose derivative is a kernel of its own on a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(8, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (F.silu(self.first(x)) * self.second(x)).float().square().mean()


def cases() -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    """Models by what is particular about them."""
    x = torch.randn(2, LENGTH, 4)
    for width in (8, 18, 20, 96):
        yield f"heads of {width}", Attention(width), x
    yield "heads of 264", Attention(264), x
    yield "dropout", Attention(24, dropout_p=0.1), x
    yield "dropout of an eighth", Attention(24, dropout_p=0.125), x
    yield "boolean", Attention(8, mask=torch.ones(LENGTH, LENGTH, dtype=torch.bool)), x
    yield "numbers", Attention(8, mask=torch.zeros(2, 1, LENGTH, LENGTH)), x
    yield "groups", Attention(8, heads=1), x
    layer = nn.TransformerEncoderLayer(16, 2, 16, dropout=0.1, batch_first=True)
    yield "a layer of PyTorch's", nn.Sequential(layer, nn.Linear(16, 1)), torch.randn(2, LENGTH, 16)
    yield "gated", Gated(), torch.randn(2, 8)


def main() -> None:
    """Compare every case in two precisions."""
    others, count = [], 0
    architecture = Architecture(float(os.environ["FAKE_CAPABILITY"]))
    for name, model, x in cases():
        for dtype in (None, torch.float16):
            estimated = capture_for_cuda(model, (x,), dtype=dtype, architecture=architecture)
            with FakeTensorMode(allow_non_fake_inputs=True):
                real, given = on_fake_cuda(model, (x,), dtype, "cuda:0")
            captured = capture(real, given)
            count += 1
            if captured.graph.identity.difference(estimated.graph.identity) is not None:
                others.append(f"{name}, {dtype or 'as it is'}")
    sys.stdout.write(json.dumps({"cases": count, "others": others}))


if __name__ == "__main__":
    main()
