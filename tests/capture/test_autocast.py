"""Whatever autocast is active while capturing is part of the graph, with the precision that results really have."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.capture.batch import TrainingStep
from explorer.schedule import keep_all
from tests.capture.test_wide import same_bits, trained
from tests.schedules import random_schedule


class Mixed(nn.Module):
    """Every normalisation, a convolution, tied weights, a layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear, self.rows = nn.Embedding(7, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.convolution, self.batch, self.groups = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GroupNorm(2, 4)
        self.squares, self.instances = nn.RMSNorm(8), nn.InstanceNorm2d(4, affine=True)
        self.out = nn.Linear(8, 7, bias=False)
        self.out.weight = self.table.weight

    def forward(self, tokens: torch.Tensor, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.linear(self.rows(self.linear(self.table(tokens))))
        # A backward pass outside of the context casts nothing, not even the products within attention.
        x = self.squares(F.gelu(F.scaled_dot_product_attention(x, x, x)))
        y = self.groups(torch.relu(self.batch(self.convolution(images))))
        return self.out(x).float().log_softmax(-1).mean(), self.instances(y).float().square().mean()


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_normalisation_under_autocast(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model, batch = Mixed().train(), (torch.randint(0, 7, (2, 3)), torch.randn(2, 3, 8, 8))
    context = torch.autocast("cpu", dtype)
    with context:
        profile = explorer.profile(model, batch)
        assert profile.graph.identity == capture(model, batch).graph.identity
    # One region for each step, as in a training loop: within it, a parameter is cast once.
    expected = trained(context(TrainingStep(plain := copy.deepcopy(model), None)), plain, batch, None)
    for schedule in (keep_all(profile.graph), random_schedule(profile.graph, 1, keep=0.6)):
        with context:
            scheduled = explorer.apply(copy.deepcopy(model), schedule, batch)
        assert same_bits(trained(context(scheduled), scheduled, batch, None), expected)
