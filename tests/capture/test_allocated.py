"""The memory of results, where kernels allocate more than traced tensors say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.simulation import simulate
from tests.schedules import random_schedule

LOSSES: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "mse": F.mse_loss,
    "mse_sum": lambda x, y: F.mse_loss(x, y, reduction="sum"),
    "mse_none": lambda x, y: F.mse_loss(x, y, reduction="none").mean(),
    "mse_broadcast": lambda x, y: F.mse_loss(x, y[:1].expand_as(x)),
    "smooth_l1": F.smooth_l1_loss,
    "huber": F.huber_loss,
    "l1": F.l1_loss,
    "soft_margin": F.soft_margin_loss,
    "binary_cross_entropy": F.binary_cross_entropy,
    "binary_cross_entropy_weighted": lambda x, y: F.binary_cross_entropy(x, y, weight=y),
    "logits": F.binary_cross_entropy_with_logits,
    "kl": lambda x, y: F.kl_div(x.log(), y, reduction="batchmean"),
    "poisson": F.poisson_nll_loss,
    "two": lambda x, y: F.mse_loss(x, y) + 0.25 * F.mse_loss(y, x),
    "unfold": lambda x, y: F.unfold(x.view(4, 8, 16, 16), 3).square().mean() + y.mean(),
    "fold": lambda x, y: F.fold(x.view(4, 128, 16), (8, 8), 2, stride=2).square().mean() + y.mean(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_peaks_are_those_of_the_real_storages(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Sigmoid())
    batch = (torch.randn(128, 64), torch.rand(128, 64))
    profile = explorer.profile(model, batch, loss=LOSSES[name])
    for schedule in (
        explorer.keep_all(profile.graph),
        random_schedule(profile.graph, 1, keep=0.5, allowed=lambda x: x.exact),
    ):
        scheduled = explorer.apply(model, schedule, batch, loss=LOSSES[name])
        measured = explorer.measure_runs(scheduled, batch)
        assert [x.peak_bytes for x in measured] == simulate(profile, schedule).total_bytes.tolist()


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("p", [0.15, 0.5])
def test_dropout_takes_no_copy_of_its_mask_as_numbers(*, channels_last: bool, p: float) -> None:
    # PyTorch's own product of numbers and truth values makes one: with it, keep-all took more than eager mode does.
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Dropout(p), nn.Conv2d(16, 4, 3, padding=1))
    x = torch.randn(4, 3, 32, 32)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    profile = explorer.profile(model, (x, torch.zeros(())), loss=lambda out, _: out.square().mean())
    result_bytes = 4 * 16 * 32 * 32 * 4
    dropped = [x for x in profile.graph.operators if "native_dropout" in x.target]
    assert {x.phase.value for x in dropped} == {"forward", "backward"}
    for operator in dropped:
        for implementation in operator.implementations:
            assert profile.workspace_bytes(implementation) <= result_bytes // 6, implementation.name


class Slices(nn.Module):
    """Returns a result of which a part is taken; the gradient that comes is as large as that part."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2.0 * self.weight, (x * self.weight)[:1]


def test_the_gradient_of_a_part_is_as_large_as_the_part() -> None:
    model, batch = Slices(), torch.randn(32, 64)
    profile = explorer.profile(model, batch)
    schedule = explorer.keep_all(profile.graph)
    measured = explorer.measure(explorer.apply(model, schedule, batch), batch, steps=1).peak_bytes
    assert simulate(profile, schedule).peak_bytes == measured
