"""Products keep eager mode's derivative, which looks for zeros."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import explorer
from explorer.capture import capture, products
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


_ORDERS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 1, 0)]


@pytest.mark.parametrize("zeros", [0, 1])
@pytest.mark.parametrize("shape", [(2, 8, 3), (1, 5, 2), (3, 1, 4)], ids=str)
@pytest.mark.parametrize(
    ("dim", "keepdim", "cumulative"),
    [
        (None, False, False),
        *((x, y, False) for x in range(3) for y in (False, True)),
        *((x, False, True) for x in range(3)),
    ],
)
def test_gradients_of_products_lie_in_memory_as_traced(
    dim: int | None, *, keepdim: bool, cumulative: bool, shape: tuple[int, ...], zeros: int
) -> None:
    """Whatever the source and the gradient do, and in memory of their own."""
    how = (dim, keepdim, cumulative)
    for order in _ORDERS:
        source = _in_order(shape, order)
        source[0, 0, :zeros] = 0
        result = products._product(source, dim, keepdim=keepdim, cumulative=cumulative)
        for other in _ORDERS if result.ndim == 3 else ((0, 1), (1, 0)) if result.ndim else ((),):
            gradient = _in_order(tuple(result.shape), other)
            real = products.product_gradient(gradient, source, *how)
            with FakeTensorMode() as mode:
                fake = products.product_backward(mode.from_tensor(gradient), mode.from_tensor(source), *how)
            assert (real.shape, real.stride()) == (fake.shape, fake.stride())
            assert real.data_ptr() != gradient.data_ptr()


def _in_order(shape: tuple[int, ...], order: tuple[int, ...]) -> torch.Tensor:
    """Dimensions lie in memory in this order."""
    made = torch.rand([shape[x] for x in order]) + 0.5
    return made.permute([order.index(x) for x in range(len(order))])


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
