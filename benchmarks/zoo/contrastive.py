"""Two views of a picture: SimCLR, BYOL, MoCo, Barlow Twins; what they remember lies in buffers."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.zoo.specimen import Specimen, classifier, normalised


def _encoder(width: int = 16) -> nn.Sequential:
    return nn.Sequential(normalised(3, 16, stride=2), normalised(16, 32, stride=2), classifier(32, width))


class _SimClr(nn.Module):
    """Chen et al., 2020: every other picture of the batch is a negative."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _encoder()

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        z = F.normalize(self.encoder(torch.cat([one, other])), dim=1)
        similar = z @ z.T / 0.5
        similar.fill_diagonal_(-1e9)
        n = len(one)
        return F.cross_entropy(similar, (torch.arange(2 * n) + n) % (2 * n))


class _Byol(nn.Module):
    """Grill et al., 2020: the target network follows the online one as a moving average, updated in the step."""

    def __init__(self) -> None:
        super().__init__()
        self.online = _encoder()
        self.target = copy.deepcopy(self.online).requires_grad_(requires_grad=False)
        self.predictor = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Linear(32, 16))

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for mine, followed in zip(self.target.parameters(), self.online.parameters(), strict=True):
                mine.mul_(0.99).add_(followed, alpha=0.01)
            aims = [self.target(x) for x in (one, other)]
        predicted = [self.predictor(self.online(x)) for x in (other, one)]
        pairs = zip(predicted, aims, strict=True)
        return torch.stack([2 - 2 * F.cosine_similarity(a, b).mean() for a, b in pairs]).sum()


class _Moco(nn.Module):
    """He et al., 2020: a queue of keys in a buffer; keys come from a second, frozen encoder."""

    queue: torch.Tensor

    def __init__(self, *, reassigned: bool) -> None:
        super().__init__()
        self.query = _encoder()
        self.key = copy.deepcopy(self.query).requires_grad_(requires_grad=False)
        self.register_buffer("queue", F.normalize(torch.randn(64, 16), dim=1))
        self.reassigned = reassigned

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        q = F.normalize(self.query(one), dim=1)
        with torch.no_grad():
            k = F.normalize(self.key(other), dim=1)
        positive = (q * k).sum(1, keepdim=True)
        logits = torch.cat([positive, q @ self.queue.clone().detach().T], 1) / 0.2
        loss = F.cross_entropy(logits, torch.zeros(len(q), dtype=torch.long))
        with torch.no_grad():
            if self.reassigned:
                self.queue = torch.cat([k, self.queue[: -len(k)]])
            else:
                older = self.queue[: -len(k)].clone()
                self.queue[len(k) :] = older
                self.queue[: len(k)] = k
        return loss


class _BarlowTwins(nn.Module):
    """Zbontar et al., 2021, with a centre that is kept as a plain moving average (as DINO does)."""

    centre: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _encoder()
        self.norm = nn.BatchNorm1d(16, affine=False)
        self.register_buffer("centre", torch.zeros(16))

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        a, b = self.encoder(one), self.encoder(other)
        self.centre = 0.9 * self.centre + 0.1 * a.detach().mean(0)
        correlation = self.norm(a - self.centre).T @ self.norm(b - self.centre) / len(one)
        on = (torch.diagonal(correlation) - 1).pow(2).sum()
        off = correlation.flatten()[:-1].view(15, 17)[:, 1:].pow(2).sum()
        return on + 0.005 * off


def _views() -> Any:
    x = torch.randn(8, 3, 32, 32)
    return x + 0.1 * torch.randn_like(x), x.flip(-1).contiguous()


_family = "Self-supervised"
SPECIMENS = (
    Specimen("simclr", _family, _SimClr, _views, None, ("diagonal filled in place",)),
    Specimen("byol", _family, _Byol, _views, None, ("parameters changed in the forward pass",)),
    Specimen("moco", _family, lambda: _Moco(reassigned=False), _views, None, ("a queue written in place",)),
    Specimen("moco_reassigned", _family, lambda: _Moco(reassigned=True), _views, None, ("a buffer reassigned",)),
    Specimen("barlow_twins", _family, _BarlowTwins, _views, None, ("a buffer reassigned",)),
)
