"""Vision without convolutions, more or less: ViT, DeiT, Swin, MLP-Mixer, Perceiver, and Fourier mixing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from benchmarks.zoo.specimen import Specimen, images, noise


class _Attention(nn.Module):
    """Attention of queries to a context (to themselves without one)."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        n, t, width = x.shape
        key, value = self.key_value(x if context is None else context).chunk(2, dim=-1)
        q, k, v = (y.view(n, -1, self.heads, width // self.heads).transpose(1, 2) for y in (self.query(x), key, value))
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, width))


class _Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = _Attention(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), context)
        return x + self.mlp(self.norm2(x))


class _ViT(nn.Module):
    """Dosovitskiy et al., 2021; with a distillation token it is DeiT (Touvron et al., 2021)."""

    def __init__(self, *, distilled: bool = False, dropout: float = 0.0, checkpointed: bool = False) -> None:
        super().__init__()
        width = 48
        self.tokens = nn.Parameter(torch.randn(1, 1 + distilled, width) * 0.02)
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.positions = nn.Parameter(torch.randn(1, 16 + 1 + distilled, width) * 0.02)
        self.blocks = nn.ModuleList(_Block(width, dropout=dropout) for _ in range(3))
        self.norm = nn.LayerNorm(width)
        self.heads = nn.ModuleList(nn.Linear(width, 10) for _ in range(1 + distilled))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.tokens.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        x = self.norm(x)
        logits = [head(x[:, index]) for index, head in enumerate(self.heads)]
        return torch.stack(logits).mean(0)


class _TorchEncoder(nn.Module):
    """What PyTorch brings: nn.TransformerEncoder, post-norm, with its dropout."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(x).mean(1))


class _Seq2Seq(nn.Module):
    """nn.Transformer with a causal mask made in the forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32, padding_idx=0)
        self.transformer = nn.Transformer(32, 2, 1, 1, 64, dropout=0.0, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1] - 1)
        y = self.transformer(self.embedding(source), self.embedding(target[:, :-1]), tgt_mask=mask)
        logits = y @ self.embedding.weight.T
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


class _Window(nn.Module):
    """Swin's block (Liu et al., 2021): windows by reshape, shifted by roll, a relative bias looked up by index."""

    index: torch.Tensor

    def __init__(self, width: int, *, window: int = 4, shift: int = 0, heads: int = 2) -> None:
        super().__init__()
        self.window, self.shift, self.heads = window, shift, heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None, :]) + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1])

    def mask(self, height: int, width: int) -> torch.Tensor:
        """Which places of a rolled window belong together; made by writing into slices, as the paper's code does."""
        region = torch.zeros(height, width)
        edges = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for number, (rows, columns) in enumerate((r, c) for r in edges for c in edges):
            region[rows, columns] = number
        region = self.windows(region[None, :, :, None]).squeeze(-1)
        apart = region[:, None, :] - region[:, :, None]
        return apart.masked_fill(apart != 0, -100.0).masked_fill(apart == 0, 0.0)

    def windows(self, x: torch.Tensor) -> torch.Tensor:
        """(N, H, W, C) → (windows, places, C)."""
        n, height, width, channels = x.shape
        side = self.window
        x = x.view(n, height // side, side, width // side, side, channels)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, height, width, channels = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.windows(y)
        count, places, _ = y.shape
        q, k, v = self.qkv(y).view(count, places, 3, self.heads, channels // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.bias[self.index].permute(2, 0, 1)
        if self.shift:
            mask = self.mask(height, width)
            scores = (scores.view(n, -1, *scores.shape[1:]) + mask[:, None]).view_as(scores)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(count, places, channels))
        side = self.window
        y = y.view(n, height // side, width // side, side, side, channels).permute(0, 1, 3, 2, 4, 5)
        y = y.reshape(n, height, width, channels)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class _Swin(nn.Module):
    """Two blocks, patch merging, two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 24, 4, stride=4)
        self.early = nn.Sequential(_Window(24), _Window(24, shift=2))
        self.merge = nn.Linear(96, 48, bias=False)
        self.late = nn.Sequential(_Window(48), _Window(48, shift=2))
        self.head = nn.Linear(48, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.early(self.patches(x).permute(0, 2, 3, 1))
        quarters = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        return self.head(self.late(self.merge(torch.cat(quarters, -1))).mean((1, 2)))


class _Mixer(nn.Module):
    """MLP-Mixer (Tolstikhin et al., 2021)."""

    def __init__(self, width: int = 48, places: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.places = nn.ModuleList(
            nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places)) for _ in range(2)
        )
        self.channels = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        for number in range(2):
            x = x + self.places[number](self.norms[2 * number](x).transpose(1, 2)).transpose(1, 2)
            x = x + self.channels[number](self.norms[2 * number + 1](x))
        return self.head(x.mean(1))


class _Perceiver(nn.Module):
    """Jaegle et al., 2021: a few latents attend to many inputs, with weights shared between rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(1, 8, 32) * 0.02)
        self.enter = nn.Linear(3, 32)
        self.cross = _Block(32)
        self.inner = _Block(32, dropout=0.1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        context = self.enter(x.flatten(2).transpose(1, 2))
        y = self.latents.expand(len(x), -1, -1)
        for _ in range(2):
            y = self.inner(self.cross(y, context))
        return self.head(y.mean(1))


class _FNet(nn.Module):
    """Lee-Thorp et al., 2021: a Fourier transform over places and channels instead of attention."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(2)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, mlp in zip(self.norms, self.mlps, strict=True):
            x = norm(x + torch.fft.fft2(x).real)
            x = x + mlp(x)
        return self.head(x.mean(1))


class _Fno(nn.Module):
    """Fourier neural operator (Li et al., 2021): complex weights on the lowest frequencies."""

    def __init__(self, width: int = 12, modes: int = 5) -> None:
        super().__init__()
        self.modes = modes
        self.enter = nn.Conv2d(1, width, 1)
        self.spectral = nn.ParameterList(
            torch.randn(width, width, modes, modes, dtype=torch.complex64) / width for _ in range(2)
        )
        self.local = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(2))
        self.leave = nn.Conv2d(width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[-2:]
        x = self.enter(x)
        for weight, local in zip(self.spectral, self.local, strict=True):
            spectrum = torch.fft.rfft2(x)
            mixed = torch.zeros_like(spectrum)
            low = spectrum[:, :, : self.modes, : self.modes]
            mixed[:, :, : self.modes, : self.modes] = torch.einsum("nixy,ioxy->noxy", low, weight)
            x = F.gelu(torch.fft.irfft2(mixed, s=size) + local(x))
        return self.leave(x)


def _sequences() -> Any:
    return torch.randn(8, 24, 32), torch.randint(10, (8,))


def _pair() -> Any:
    return torch.randint(1, 50, (4, 12)), torch.randint(1, 50, (4, 13))


def _frozen() -> nn.Module:
    model = _ViT()
    for part in (model.patches, *model.blocks[:2]):
        part.requires_grad_(requires_grad=False)
    return model


_loss = F.cross_entropy
_family = "Transformers and mixers of images"
_fourier = "Fourier networks"
SPECIMENS = (
    Specimen("vit", _family, _ViT, images(8, 32), _loss, ("dropout of 0",)),
    Specimen("vit_frozen_backbone", _family, _frozen, images(8, 32), _loss, ("frozen backbone",)),
    Specimen(
        "vit_checkpointed", _family, lambda: _ViT(checkpointed=True), images(8, 32), _loss, ("checkpoint() inside",)
    ),
    Specimen("vit_bf16", _family, _ViT, images(8, 32), _loss, ("autocast to bfloat16",), autocast=True),
    Specimen("deit", _family, lambda: _ViT(distilled=True, dropout=0.1), images(8, 32), _loss, ("dropout",)),
    Specimen("swin", _family, _Swin, images(2, 64), _loss, ("roll", "mask written into slices", "gather of a bias")),
    Specimen("mlp_mixer", _family, _Mixer, images(8, 32), _loss),
    Specimen("perceiver", _family, _Perceiver, images(8, 16), _loss, ("a layer used twice", "dropout")),
    Specimen(
        "torch_transformer_encoder", _family, _TorchEncoder, _sequences, _loss, ("nn.MultiheadAttention", "dropout")
    ),
    Specimen("torch_transformer", _family, _Seq2Seq, _pair, None, ("tied embeddings", "mask made in the trace")),
    Specimen("fnet", _fourier, _FNet, _sequences, _loss, ("complex FFT",)),
    Specimen(
        "fno", _fourier, _Fno, lambda: (noise(4, 1, 24, 24)(), noise(4, 1, 24, 24)()), F.mse_loss, ("complex weights",)
    ),
)
