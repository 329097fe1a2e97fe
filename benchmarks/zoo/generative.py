"""What draws, denoises and renders: GAN, VAE, autoencoders, diffusion, radiance fields."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from benchmarks.zoo.specimen import Specimen, noise


def _discriminator(*, spectral: bool = False) -> nn.Sequential:
    wrap = spectral_norm if spectral else lambda layer: layer
    return nn.Sequential(
        wrap(nn.Conv2d(3, 16, 4, 2, 1)),
        nn.LeakyReLU(0.2, inplace=True),
        wrap(nn.Conv2d(16, 32, 4, 2, 1, bias=False)),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2, inplace=True),
        wrap(nn.Conv2d(32, 1, 8)),
        nn.Flatten(),
    )


class _GeneratorStep(nn.Module):
    """DCGAN (Radford et al., 2016): the generator is trained through a discriminator that is frozen meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(16, 48, 4, bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(48, 32, 4, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )
        self.discriminator = _discriminator()
        self.discriminator.requires_grad_(requires_grad=False)

    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pictures = self.generator(z)
        verdict = self.discriminator(pictures)
        return F.binary_cross_entropy_with_logits(verdict, torch.ones_like(verdict)), pictures


class _DiscriminatorStep(nn.Module):
    """Real and made pictures through one discriminator, twice, with spectral normalisation and a hinge loss."""

    def __init__(self) -> None:
        super().__init__()
        self.discriminator = _discriminator(spectral=True)

    def forward(self, real: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
        real, made = self.discriminator(real), self.discriminator(made.detach())
        return F.relu(1 - real).mean() + F.relu(1 + made).mean()


class _Vae(nn.Module):
    """Kingma and Welling, 2014: noise is drawn inside, and the loss comes with the picture."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU(), nn.Flatten()
        )
        self.moments = nn.Linear(32 * 64, 2 * 16)
        self.enter = nn.Linear(16, 32 * 64)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Sigmoid()
        )

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        mean, log_variance = self.moments(self.encoder(x)).chunk(2, dim=1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        made = self.decoder(self.enter(z).view(-1, 32, 8, 8))
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
        return {"loss": F.mse_loss(made, x, reduction="sum") / len(x) + divergence, "reconstruction": made}


class _VectorQuantised(nn.Module):
    """VQ-VAE (van den Oord et al., 2017): nearest codes, gradients straight through, codes that move as averages."""

    usage: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 8, 4, 2, 1))
        self.codes = nn.Embedding(32, 8)
        self.decoder = nn.Sequential(nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 3, 4, 2, 1))
        self.register_buffer("usage", torch.zeros(32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encoder(x).permute(0, 2, 3, 1)
        nearest = torch.cdist(z.reshape(-1, 8), self.codes.weight).argmin(1)
        self.usage.mul_(0.99).add_(F.one_hot(nearest, 32).float().mean(0), alpha=0.01)
        q = self.codes(nearest).view_as(z)
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return F.mse_loss(self.decoder(q.permute(0, 3, 1, 2)), x) + loss


def _autoencoder() -> nn.Module:
    """Vincent et al., 2008: noise on the input, weights normalised."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Dropout(0.2),
        weight_norm(nn.Linear(192, 64)),
        nn.SELU(),
        nn.AlphaDropout(0.1),
        nn.Linear(64, 192),
        nn.Unflatten(1, (3, 8, 8)),
    )


class _TimedResidual(nn.Module):
    """The block of Ho et al., 2020: the embedded time is added between two normalised convolutions."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, inputs), nn.GroupNorm(4, outputs)
        self.conv1, self.conv2 = nn.Conv2d(inputs, outputs, 3, padding=1), nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(32, outputs)
        self.short = nn.Conv2d(inputs, outputs, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.short(x) + self.conv2(self.dropout(F.silu(self.norm2(y))))


class _Diffusion(nn.Module):
    """A denoising UNet with time embedding and attention; draws time and noise itself."""

    alphas: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("alphas", torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), 0))
        self.embed = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.enter = nn.Conv2d(3, 16, 3, padding=1)
        self.down = _TimedResidual(16, 24)
        self.middle = _TimedResidual(24, 24)
        self.norm = nn.GroupNorm(4, 24)
        self.qkv = nn.Conv2d(24, 72, 1)
        self.out = nn.Conv2d(24, 24, 1)
        self.up = _TimedResidual(48, 16)
        self.leave = nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = len(x)
        at = torch.randint(100, (n,))
        noise = torch.randn_like(x)
        alpha = self.alphas[at].view(n, 1, 1, 1)
        frequencies = torch.exp(-math.log(1e4) * torch.arange(8) / 8)
        angles = at[:, None].float() * frequencies
        time = self.embed(torch.cat([angles.sin(), angles.cos()], 1))
        kept = self.down(self.enter(alpha.sqrt() * x + (1 - alpha).sqrt() * noise), time)
        y = self.middle(F.avg_pool2d(kept, 2), time)
        q, k, v = self.qkv(self.norm(y)).flatten(2).chunk(3, dim=1)
        scores = torch.softmax(torch.einsum("nci,ncj->nij", q, k) / math.sqrt(24), -1)
        y = y + self.out(torch.einsum("nij,ncj->nci", scores, v).view_as(y))
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return F.mse_loss(self.leave(self.up(torch.cat([y, kept], 1), time)), noise)


class _RadianceField(nn.Module):
    """NeRF (Mildenhall et al., 2020): Fourier features, a skip, and volume rendering by a cumulative product."""

    def __init__(self) -> None:
        super().__init__()
        self.early = nn.Sequential(nn.Linear(36, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU())
        self.late = nn.Sequential(nn.Linear(84, 48), nn.ReLU(), nn.Linear(48, 4))

    def forward(self, origins: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        depths = torch.linspace(0.5, 2, 16) + torch.rand(len(origins), 16) * 0.05
        points = origins[:, None] + directions[:, None] * depths[..., None]
        scaled = points[..., None] * 2.0 ** torch.arange(6)
        features = torch.cat([scaled.sin(), scaled.cos()], -1).flatten(2)
        y = self.late(torch.cat([self.early(features), features], -1))
        opacity = 1 - torch.exp(-F.relu(y[..., 3]) * 0.1)
        passed = torch.cumprod(torch.cat([torch.ones_like(opacity[:, :1]), 1 - opacity[:, :-1] + 1e-10], 1), 1)
        return ((opacity * passed)[..., None] * y[..., :3].sigmoid()).sum(1)


def _rays() -> Any:
    return (torch.randn(64, 3), F.normalize(torch.randn(64, 3), dim=1)), torch.rand(64, 3)


def _reconstruction() -> Any:
    x = torch.randn(16, 3, 8, 8)
    return x, x


_family = "Generative"
SPECIMENS = (
    Specimen("dcgan_generator", _family, _GeneratorStep, noise(8, 16, 1, 1), None, ("frozen discriminator",)),
    Specimen(
        "dcgan_discriminator",
        _family,
        _DiscriminatorStep,
        lambda: (torch.randn(8, 3, 32, 32), torch.randn(8, 3, 32, 32)),
        None,
        ("called twice a step", "spectral norm"),
    ),
    Specimen("vae", _family, _Vae, lambda: torch.rand(8, 3, 32, 32), None, ("noise drawn inside", "a dict of outputs")),
    Specimen("vq_vae", _family, _VectorQuantised, noise(8, 3, 32, 32), None, ("buffers changed in place",)),
    Specimen(
        "denoising_autoencoder",
        _family,
        _autoencoder,
        _reconstruction,
        F.mse_loss,
        ("one tensor as input and target", "weight norm", "dropout"),
    ),
    Specimen("diffusion_unet", _family, _Diffusion, noise(4, 3, 16, 16), None, ("random times", "dropout")),
    Specimen("nerf", _family, _RadianceField, _rays, F.mse_loss, ("cumulative product", "random depths")),
)
