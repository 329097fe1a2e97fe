"""Complex numbers: what is conjugated lazily is no memory to compute in, and is copied by what reads it."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer.schedule import Run, with_frees

CASES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "product with its conjugate": lambda h, _: (h * h.conj()).real,
    "gated by its modulus": lambda h, _: (h * torch.relu(h.abs() - 0.1) / (h.abs() + 1e-3)).abs(),
    "matrix product": lambda h, w: (h @ w).abs(),
    "of polar coordinates": lambda h, _: torch.polar(h.abs() + 0.1, h.angle()).real,
    "of real and imaginary part": lambda h, w: (torch.complex(h.real.relu(), h.imag.relu()) @ w).abs(),
    "imaginary part of a conjugate": lambda h, _: h.conj().imag * h.real,
}


class Net(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.first, self.weight = (
            nn.Linear(8, 16, dtype=torch.cfloat),
            nn.Parameter(torch.randn(16, 3, dtype=torch.cfloat)),
        )
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.first(x), self.weight).square().mean()


@functools.cache
def profiled(case: str) -> tuple[Net, torch.Tensor, explorer.Profile]:
    torch.manual_seed(0)
    model, x = Net(CASES[case]), torch.randn(64, 8, dtype=torch.cfloat)
    return model, x, explorer.profile(model, x)


@pytest.mark.parametrize("case", CASES)
def test_the_peak_of_any_choice(case: str) -> None:
    """Which implementations a solve takes depends on the times of the day: as many others are tried."""
    model, x, profile = profiled(case)
    draw, tried = random.Random(0), 0
    for _ in range(12):
        runs = [Run(o.id, draw.choice(o.implementations).name) for o in profile.graph.operators]
        try:
            schedule = with_frees(profile.graph, runs, method="drawn", budget_bytes=None)
        except ValueError:  # one run overwrites what another reads later
            continue
        measured = explorer.measure(explorer.apply(model, schedule, x), x, steps=1)
        assert measured.peak_bytes == explorer.simulate(profile, schedule).peak_bytes, runs
        tried += 1
    assert tried


@pytest.mark.parametrize("case", CASES)
def test_bits_and_peaks(case: str) -> None:
    model, x, profile = profiled(case)
    for found in (
        explorer.solve(profile, budget="100 %", exact=True, steps=2),
        explorer.smallest_budget(profile, exact=True),
    ):
        assert found.schedule is not None
        module = explorer.apply(model, found.schedule, x)
        gradients = []
        for step in (model, module):
            step.zero_grad()
            step(x).backward()
            gradients.append([p.grad for p in model.parameters() if p.grad is not None])
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
        measured = explorer.measure(module, x, steps=1)
        assert measured.peak_bytes == explorer.simulate(profile, found.schedule).peak_bytes
