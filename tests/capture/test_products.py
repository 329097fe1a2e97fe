"""Products keep eager mode's derivative, which looks for zeros."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture
from tests.schedules import random_schedule


class Product(nn.Module):
    def __init__(self, product: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 0.5)
        self.product = product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x * self.weight).square().sum()


PRODUCTS = {
    "along a dimension": lambda x: x.prod(-1),
    "kept": lambda x: torch.prod(x, dim=0, keepdim=True),
    "of all": torch.prod,
    "cumulative": lambda x: x.cumprod(1),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("zeros", [0, 1, 3])
def test_products_have_the_bits_of_eager_mode(name: str, zeros: int) -> None:
    torch.manual_seed(0)
    model = Product(PRODUCTS[name])
    sample, batch = torch.randn(4, 6), torch.randn(4, 6)
    batch.view(-1)[: 2 * zeros : 2] = 0.0
    for keep in (0.0, 1.0):
        schedule = random_schedule(capture(model, sample).graph, 0, keep=keep, allowed=lambda x: x.exact)
        scheduled = explorer.apply(model, schedule, sample)
        scheduled(batch).backward()
        found, model.weight.grad = model.weight.grad, None
        model(batch).backward()
        assert found is not None and model.weight.grad is not None and torch.equal(found, model.weight.grad)
        model.weight.grad = None
