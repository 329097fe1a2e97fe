"""One small network for each family of calls, for the tests of what is predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Function = Callable[[Any, torch.Tensor], torch.Tensor]


class Probe(nn.Module):
    """A learned scale before what is tried, so that all of it has gradients; the result's mean square is the loss."""

    def __init__(self, function: Function, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        self.function = function
        self.scale = nn.Parameter(torch.ones(()))
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.function(self, x * self.scale)
        made = torch.view_as_real(made) if made.is_complex() else made
        return made.square().mean()


@dataclass(frozen=True)
class Case:
    """A network to profile.

    Attributes:
        function: what is tried: of the module, for its layers, and the scaled input.
        layers: makes the layers that ``function`` uses, by name.
        shape: of the input.
        dtype: of everything.
        channels_last: is the input stored so?
    """

    function: Function
    layers: Callable[[], dict[str, nn.Module]] = dict
    shape: tuple[int, ...] = (4, 8, 16, 16)
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def sample(self) -> tuple[nn.Module, torch.Tensor]:
        """A model in training mode, and its batch."""
        torch.manual_seed(0)
        batch = torch.rand(self.shape, dtype=self.dtype) + 0.1
        if self.channels_last:
            batch = batch.contiguous(memory_format=torch.channels_last)
        return Probe(self.function, self.layers()).to(self.dtype).train(), batch


_ROWS = (8, 32, 64)


def _halves() -> dict[str, nn.Module]:
    return {"first": nn.Linear(64, 256), "second": nn.Linear(256, 64)}


def _feed_forward(m: Any, x: torch.Tensor, *, dropout: float = 0.0) -> torch.Tensor:
    wide = F.gelu(m.first(x))
    return x + m.second(F.dropout(wide, dropout) if dropout else wide)


def _gated(m: Any, x: torch.Tensor) -> torch.Tensor:
    return x + m.second(F.silu(m.gate(x)) * m.first(x))


_WHERE = torch.randint(0, 16, (24,), generator=torch.Generator().manual_seed(0))
_TOKENS = torch.randint(0, 50, (8, 32), generator=torch.Generator().manual_seed(0))
_CLASSES = torch.randint(0, 64, (8, 32), generator=torch.Generator().manual_seed(0))


def _layer(make: Callable[[], nn.Module], **settings: Any) -> Case:
    return Case(lambda m, x: m.layer(x), lambda: {"layer": make()}, **settings)


def _call(function: Callable[[torch.Tensor], torch.Tensor], **settings: Any) -> Case:
    return Case(lambda _, x: function(x), **settings)


def _into(write: Callable[[torch.Tensor, torch.Tensor], Any], **settings: Any) -> Case:
    """Write to part of a new tensor."""

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        made = torch.zeros_like(x)
        write(made, x)
        return made

    return Case(function, **settings)


def _onto(write: Callable[[torch.Tensor, torch.Tensor], Any], **settings: Any) -> Case:
    """Write to part of a tensor that was computed."""

    def function(_: Any, x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        write(made, x)
        return made

    return Case(function, **settings)


def _several_slices(made: torch.Tensor, x: torch.Tensor) -> None:
    for start in range(4):
        made[..., start::4] = x[..., start::4].sin()


def _attention(m: Any, x: torch.Tensor, **settings: Any) -> torch.Tensor:
    q, k, v = (y.unflatten(-1, (4, 16)).transpose(1, 2) for y in m.layer(x).chunk(3, -1))
    return F.scaled_dot_product_attention(q, k, v, **settings)


def _masked_attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The mask is made in the forward pass, as language models do."""
    length = x.shape[1]
    mask = torch.full((length, length), float("-inf")).triu(1)[None, None].expand(len(x), 1, length, length)
    return _attention(m, x, attn_mask=mask.clone())


def _manual_attention(m: Any, x: torch.Tensor) -> torch.Tensor:
    q, k, v = m.layer(x).chunk(3, -1)
    scores = q @ k.transpose(1, 2) / 8
    above = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    return scores.masked_fill(above, float("-inf")).softmax(-1) @ v


def _windows(x: torch.Tensor) -> torch.Tensor:
    """Swin's shifted windows."""
    shifted = torch.roll(x, (-2, -2), (2, 3))
    windows = shifted.unflatten(2, (4, 4)).unflatten(4, (4, 4)).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, x.shape[1])
    return windows @ windows.transpose(1, 2)


def _shift_mask(x: torch.Tensor) -> torch.Tensor:
    """Swin's mask, written slice by slice."""
    mask = x.new_zeros((1, 16, 16, 1))
    number = 0
    for rows in (slice(0, -4), slice(-4, -2), slice(-2, None)):
        for columns in (slice(0, -4), slice(-4, -2), slice(-2, None)):
            mask[:, rows, columns, :] = number
            number += 1
    return x * mask.permute(0, 3, 1, 2)


def _kept_tokens(x: torch.Tensor) -> torch.Tensor:
    """A masked autoencoder's random choice of tokens."""
    order = torch.rand(x.shape[:2], device=x.device).argsort(1)
    kept = torch.gather(x, 1, order[:, :8, None].expand(-1, -1, x.shape[2]))
    mask = torch.ones(x.shape[:2])
    mask[:, :8] = 0
    mask = torch.gather(mask, 1, order.argsort(1))
    return kept.sum(1, keepdim=True) * mask[..., None]


def _rotary(x: torch.Tensor) -> torch.Tensor:
    angles = torch.outer(torch.arange(x.shape[1], dtype=x.dtype), torch.arange(0, x.shape[2], 2, dtype=x.dtype) / 8)
    angles = torch.cat((angles, angles), -1)
    first, second = x.chunk(2, -1)
    return x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()


_INTERPOLATED = {
    "nearest": {"mode": "nearest"},
    "bilinear": {"mode": "bilinear", "align_corners": False},
    "bilinear aligned": {"mode": "bilinear", "align_corners": True},
    "bicubic": {"mode": "bicubic"},
    "area": {"mode": "area"},
    "antialiased": {"mode": "bilinear", "antialias": True},
}
_IMAGE_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "conv": lambda: nn.Conv2d(8, 16, 3, padding=1),
    "conv strided": lambda: nn.Conv2d(8, 16, 3, stride=2, bias=False),
    "conv 1 x 1": lambda: nn.Conv2d(8, 16, 1),
    "conv dilated": lambda: nn.Conv2d(8, 8, 3, padding=2, dilation=2),
    "conv depthwise": lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8),
    "conv grouped": lambda: nn.Conv2d(8, 16, 3, groups=4),
    "conv circular": lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"),
    "conv reflect": lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
    "conv replicate": lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="replicate"),
    "conv transposed": lambda: nn.ConvTranspose2d(8, 8, 3, stride=2, padding=1, output_padding=1),
    "conv weight norm": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 8, 3)),
    "batch norm": lambda: nn.BatchNorm2d(8),
    "batch norm plain": lambda: nn.BatchNorm2d(8, affine=False, track_running_stats=False),
    "group norm": lambda: nn.GroupNorm(2, 8),
    "instance norm": lambda: nn.InstanceNorm2d(8, affine=True),
    "local response norm": lambda: nn.LocalResponseNorm(3),
    "max pool": lambda: nn.MaxPool2d(2),
    "max pool overlapping": lambda: nn.MaxPool2d(3, 2, 1),
    "avg pool": lambda: nn.AvgPool2d(2),
    "adaptive avg pool": lambda: nn.AdaptiveAvgPool2d(3),
    "global avg pool": lambda: nn.AdaptiveAvgPool2d(1),
    "adaptive max pool": lambda: nn.AdaptiveMaxPool2d(3),
    "lp pool": lambda: nn.LPPool2d(2, 2),
    "fractional pool": lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5),
    "pixel shuffle": lambda: nn.PixelShuffle(2),
    "pixel unshuffle": lambda: nn.PixelUnshuffle(2),
    "channel shuffle": lambda: nn.ChannelShuffle(2),
    "unfold": lambda: nn.Unfold(3, padding=1),
    "prelu": lambda: nn.PReLU(8),
    "dropout": lambda: nn.Dropout(0.3),
    "dropout2d": lambda: nn.Dropout2d(0.3),
    "feature alpha dropout": lambda: nn.FeatureAlphaDropout(0.3),
    "upsample": lambda: nn.Upsample(scale_factor=2),
}
_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x * 2, inplace=True),
    "relu of relu in place": lambda x: F.relu(F.relu(x * 2, inplace=True).sin(), inplace=True),
    "relu6 in place": lambda x: F.relu6(x * 2, inplace=True),
    "leaky relu": F.leaky_relu,
    "elu": F.elu,
    "elu in place": lambda x: F.elu(x * 2, inplace=True),
    "celu": F.celu,
    "selu": F.selu,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "silu in place": lambda x: F.silu(x * 2, inplace=True),
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardswish in place": lambda x: F.hardswish(x * 2, inplace=True),
    "hardsigmoid": F.hardsigmoid,
    "hardsigmoid in place": lambda x: F.hardsigmoid(x * 2, inplace=True),
    "hardtanh": F.hardtanh,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "softshrink": F.softshrink,
    "logsigmoid": F.logsigmoid,
    "glu": lambda x: F.glu(x, 1),
    "threshold": lambda x: F.threshold(x, 0.2, 0.1),
    "clamp in place": lambda x: (x * 2).clamp_(0.2, 0.9),
    "exp": torch.exp,
    "sqrt": torch.sqrt,
    "log in place": lambda x: (x * 2).log_(),
    "pow": lambda x: x**3,
    "sigmoid gate": lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(),
    "abs": torch.abs,
    "where": lambda x: torch.where(x > 0.5, x, x * 0.1),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "addcmul": lambda x: torch.addcmul(x, x, x.flip(0)),
    "in-place chain": lambda x: (x * 2).add_(1).mul_(0.5).sub_(x).div_(3),
    "in-place broadcast": lambda x: (x * 2).add_(x.mean(0)).mul_(x[:, :1]),
    "rsub": lambda x: 1 - x,
    "atan2": lambda x: torch.atan2(x, x + 1),
}
_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed sum": lambda x: x + x.transpose(2, 3),
    "permuted clone": lambda x: x.permute(0, 2, 3, 1).contiguous().sin(),
    "permuted in place": lambda x: x.permute(0, 2, 3, 1).contiguous().mul_(2),
    "reshaped": lambda x: x.transpose(1, 2).reshape(4, -1) * 2,
    "expanded": lambda x: x[:1].expand(4, -1, -1, -1) * x,
    "expanded clone": lambda x: x[:, :1].expand(-1, 8, -1, -1).clone() * 2,
    "expanded contiguous": lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 16, 16).contiguous() * 2,
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "repeat interleave": lambda x: x.repeat_interleave(2, 1),
    "tile": lambda x: x.tile(2, 1),
    "slice": lambda x: x[:, :2].sin(),
    "strided slice": lambda x: x[..., ::2].sin(),
    "strided slices of one": lambda x: torch.cat([x[..., ::2], x[..., 1::2]], 1).sin(),
    "split": lambda x: torch.cat([y * (i + 1) for i, y in enumerate(x.split(2, 1))], 1),
    "chunk products": lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1],
    "unbind stack": lambda x: torch.stack([y.sin() for y in x.unbind(0)]),
    "cat": lambda x: torch.cat([x, x.sin(), x[:, :2]], 1),
    "cat of last": lambda x: torch.cat([x, x.sin()], -1),
    "roll": lambda x: torch.roll(x, (1, 2), (2, 3)),
    "flip": lambda x: x.flip(2).sin(),
    "rot90": lambda x: torch.rot90(x, 1, (2, 3)).sin(),
    "diagonal": lambda x: x.diagonal(dim1=2, dim2=3).sin(),
    "diag embed": lambda x: torch.diag_embed(x.mean(3)),
    "unfold of tensor": lambda x: x.unfold(3, 4, 2).sin(),
    "as strided": lambda x: x.contiguous().as_strided((4, 8, 8), (2048, 256, 2)).sin(),
    "tril": torch.tril,
    "movedim": lambda x: x.movedim(1, -1).softmax(-1),
    "swin windows": _windows,
    "swin mask": _shift_mask,
    "meshgrid": lambda x: x * torch.stack(torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")).sum(0),
    "detached": lambda x: x * x.detach().sin(),
    "clone": lambda x: x.clone().sin_(),
    "zeros like": lambda x: x + torch.zeros_like(x),
    "one hot": lambda x: x * F.one_hot(torch.arange(16) % 4, 16),
    "dtype there and back": lambda x: x.double().sin().float(),
    "half": lambda x: x.bfloat16().sin().float(),
    "mask in the forward pass": lambda x: x.masked_fill(torch.rand_like(x) > 0.5, 0.0),
    "positional table": lambda x: x + torch.arange(16.0).sin()[None, :].expand(16, 16),
}
_WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "slice": lambda y, x: y[:, :4].copy_(x[:, :4]),
    "slice of last": lambda y, x: y[..., :4].copy_(x[..., :4].sin()),
    "several slices": _several_slices,
    "select": lambda y, x: y[:, 0].copy_(x[:, 1]),
    "value": lambda y, x: y.add_(x)[:, 2:4].fill_(0.5),
    "add to a slice": lambda y, x: y[:, :4].add_(x[:, 4:]),
    "multiply a slice": lambda y, x: y[:, :4].mul_(x[:, 4:]),
    "transposed": lambda y, x: y.transpose(2, 3).copy_(x),
    "diagonal": lambda y, x: y.diagonal(dim1=2, dim2=3).copy_(x[..., 0]),
    "indexed": lambda y, x: y.__setitem__((slice(None), torch.tensor([1, 3])), x[:, :2]),
    "index add": lambda y, x: y.index_add_(1, torch.tensor([0, 0, 1]), x[:, :3]),
    "index copy": lambda y, x: y.index_copy_(1, torch.tensor([0, 2, 1]), x[:, :3]),
    "index fill": lambda y, x: y.index_fill_(1, torch.tensor([0, 2]), 0.5).add_(x),
    "scatter": lambda y, x: y.scatter_(1, torch.zeros(4, 1, 16, 16, dtype=torch.int64), x[:, :1]),
    "scatter add": lambda y, x: y.scatter_add_(1, torch.zeros(4, 8, 16, 16, dtype=torch.int64), x),
    "masked fill": lambda y, x: y.masked_fill_(x > 0.5, 0.1).add_(x),
    "whole": lambda y, x: y.copy_(x),
}
_ROW_CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(-1),
    "softmax of middle": lambda x: x.softmax(1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(1),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "cummax": lambda x: x.cummax(1)[0],
    "sort": lambda x: x.sort(1)[0],
    "topk": lambda x: x.topk(4, 1)[0],
    "median": lambda x: x.median(1)[0],
    "max": lambda x: x.max(1)[0],
    "amax": lambda x: x.amax(1),
    "min of all": lambda x: x.min(),
    "prod": lambda x: x.prod(1),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std((0, 1)),
    "var mean": lambda x: torch.var_mean(x, 1)[0],
    "norm": lambda x: x.norm(dim=1),
    "normalise": lambda x: F.normalize(x, dim=-1),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(0), -1),
    "cdist": lambda x: torch.cdist(x, x.flip(0)),
    "pairwise": lambda x: F.pairwise_distance(x, x.flip(0)),
    "einsum": lambda x: torch.einsum("bik,bjk->bij", x, x),
    "einsum of three": lambda x: torch.einsum("bik,bjk,bjl->bil", x, x.sin(), x.cos()),
    "bmm": lambda x: torch.bmm(x, x.transpose(1, 2)),
    "matmul with a matrix": lambda x: x @ x[0].t(),
    "outer": lambda x: x[:, :, None, :8] * x[:, None, :, :8],
    "baddbmm": lambda x: torch.baddbmm(x[:, :, :32], x, x.transpose(1, 2)),
    "gather": lambda x: x.gather(1, torch.arange(8)[None, :, None].expand(8, 8, 64)),
    "index select": lambda x: x.index_select(1, _WHERE),
    "index": lambda x: x[:, _WHERE],
    "index of two": lambda x: x[torch.arange(8)[:, None], _WHERE[None, :8]],
    "take along": lambda x: x.take_along_dim(x.argsort(1), 1),
    "masked tokens": _kept_tokens,
    "rotary": _rotary,
    "cross entropy": lambda x: F.cross_entropy(x.flatten(0, 1), _CLASSES.flatten()),
    "cross entropy smoothed": lambda x: F.cross_entropy(x.flatten(0, 1), _CLASSES.flatten(), label_smoothing=0.1),
    "cross entropy dense": lambda x: F.cross_entropy(x.transpose(1, 2), _CLASSES),
    "nll": lambda x: F.nll_loss(x.log_softmax(-1).flatten(0, 1), _CLASSES.flatten()),
    "mse": lambda x: F.mse_loss(x, torch.zeros_like(x)),
    "l1": lambda x: F.l1_loss(x, x.detach() * 2),
    "huber": lambda x: F.huber_loss(x, x.detach() * 2),
    "smooth l1": lambda x: F.smooth_l1_loss(x, x.detach() * 2),
    "bce": lambda x: F.binary_cross_entropy(x.sigmoid(), torch.ones_like(x)),
    "bce with logits": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)),
    "kl": lambda x: F.kl_div(x.log_softmax(-1), torch.full_like(x, 1 / 64), reduction="batchmean"),
    "margin": lambda x: F.margin_ranking_loss(x, x.flip(0), torch.ones_like(x)),
    "triplet": lambda x: F.triplet_margin_loss(x[0], x[1], x[2]),
    "poisson": lambda x: F.poisson_nll_loss(x, torch.ones_like(x)),
    "soft margin": lambda x: F.soft_margin_loss(x, torch.ones_like(x)),
    "contrastive": lambda x: F.cross_entropy(x[:, 0] @ x[:, 0].t() / 0.1, torch.arange(8)),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
    "dropout": lambda x: F.dropout(x, 0.2),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.2, training=True),
    "fft": torch.fft.fft,
    "rfft there and back": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=64),
    "fft2 of complex": lambda x: torch.fft.fft2(torch.complex(x, x.sin())),
    "complex product": lambda x: torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * 1j,
}
_PADDED = {"constant": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def _cases() -> dict[str, Case]:
    cases = {name: _layer(make) for name, make in _IMAGE_LAYERS.items()}
    cases |= {name: _call(function) for name, function in (_ACTIVATIONS | _VIEWS).items()}
    cases |= {f"into: {name}": _into(write) for name, write in _WRITES.items()}
    cases |= {f"onto: {name}": _onto(write) for name, write in _WRITES.items()}
    cases |= {f"rows: {name}": _call(function, shape=_ROWS) for name, function in _ROW_CALLS.items()}
    cases |= {f"pad {x}": _call(lambda y, x=x: F.pad(y, (1, 2, 3, 1), mode=x)) for x in _PADDED}
    cases |= {
        f"interpolate {name}": _call(lambda y, x=x: F.interpolate(y, (24, 24), **x))
        for name, x in _INTERPOLATED.items()
    }
    cases |= {
        "grid sample": _call(lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=False)),
        "affine grid": _call(lambda x: F.affine_grid(x[:, :2, 0, :3], [4, 8, 16, 16], align_corners=False)),
        "fold": _call(lambda x: F.fold(F.unfold(x, 3, padding=1) * 2, (16, 16), 3, padding=1)),
        "conv1d": _layer(lambda: nn.Conv1d(32, 32, 3, padding=1), shape=_ROWS),
        "conv3d": _layer(lambda: nn.Conv3d(4, 8, 3, padding=1), shape=(2, 4, 6, 8, 8)),
        "max pool 1d": _layer(lambda: nn.MaxPool1d(2), shape=_ROWS),
        "max pool 3d": _layer(lambda: nn.MaxPool3d(2), shape=(2, 4, 6, 8, 8)),
        "trilinear": _call(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), shape=(2, 4, 6, 8, 8)),
        "linear interpolation": _call(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), shape=_ROWS),
        "linear": _layer(lambda: nn.Linear(64, 128), shape=_ROWS),
        "feed-forward": Case(_feed_forward, _halves, shape=_ROWS),
        "feed-forward gated": Case(_gated, lambda: _halves() | {"gate": nn.Linear(64, 256)}, shape=_ROWS),
        "feed-forward dropped": Case(lambda m, x: _feed_forward(m, x, dropout=0.2), _halves, shape=_ROWS),
        "linear of few": _layer(lambda: nn.Linear(64, 8, bias=False), shape=_ROWS),
        "bilinear": Case(lambda m, x: m.layer(x, x.sin()), lambda: {"layer": nn.Bilinear(64, 64, 8)}, shape=_ROWS),
        "layer norm": _layer(lambda: nn.LayerNorm(64), shape=_ROWS),
        "layer norm plain": _layer(lambda: nn.LayerNorm(64, elementwise_affine=False), shape=_ROWS),
        "rms norm": _layer(lambda: nn.RMSNorm(64), shape=_ROWS),
        "batch norm 1d": _layer(lambda: nn.BatchNorm1d(32), shape=_ROWS),
        "embedding": Case(
            lambda m, x: m.layer(_TOKENS) * x, lambda: {"layer": nn.Embedding(50, 64, padding_idx=0)}, shape=_ROWS
        ),
        "embedding bag": Case(
            lambda m, x: m.layer(_TOKENS) * x[:, 0], lambda: {"layer": nn.EmbeddingBag(50, 64)}, shape=_ROWS
        ),
        "embedding scaled": Case(
            lambda m, x: m.layer(_TOKENS) * x,
            lambda: {"layer": nn.Embedding(50, 64, scale_grad_by_freq=True)},
            shape=_ROWS,
        ),
        "attention": Case(_attention, lambda: {"layer": nn.Linear(64, 192)}, shape=_ROWS),
        "attention causal": Case(
            lambda m, x: _attention(m, x, is_causal=True), lambda: {"layer": nn.Linear(64, 192)}, shape=_ROWS
        ),
        "attention with dropout": Case(
            lambda m, x: _attention(m, x, dropout_p=0.2), lambda: {"layer": nn.Linear(64, 192)}, shape=_ROWS
        ),
        "attention masked": Case(_masked_attention, lambda: {"layer": nn.Linear(64, 192)}, shape=_ROWS),
        "attention by hand": Case(_manual_attention, lambda: {"layer": nn.Linear(64, 192)}, shape=_ROWS),
        "multi-head attention": Case(
            lambda m, x: m.layer(x, x, x)[0],
            lambda: {"layer": nn.MultiheadAttention(64, 4, batch_first=True)},
            shape=_ROWS,
        ),
        "transformer layer": _layer(
            lambda: nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.1), shape=_ROWS
        ),
    }
    for name in (
        "conv",
        "conv depthwise",
        "conv circular",
        "batch norm",
        "group norm",
        "max pool",
        "avg pool",
        "upsample",
    ):
        cases[f"channels last: {name}"] = _layer(_IMAGE_LAYERS[name], channels_last=True)
    for name in ("relu in place", "sigmoid gate", "gelu"):
        cases[f"channels last: {name}"] = _call(_ACTIVATIONS[name], channels_last=True)
    for name in ("cat", "slice", "permuted clone", "roll", "expanded contiguous"):
        cases[f"channels last: {name}"] = _call(_VIEWS[name], channels_last=True)
    for name in ("slice", "select", "several slices", "add to a slice", "transposed"):
        cases[f"channels last: onto {name}"] = _onto(_WRITES[name], channels_last=True)
    for name in ("conv", "batch norm", "group norm", "max pool"):
        cases[f"double: {name}"] = _layer(_IMAGE_LAYERS[name], dtype=torch.float64)
    return cases


CASES = _cases()
