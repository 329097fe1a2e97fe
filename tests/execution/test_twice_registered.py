"""A module that is registered under several names trains as in eager mode, and is the same module afterwards."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from tests.execution.test_exactness import assert_trains_like_eager

CASES: dict[str, Callable[[], nn.Module]] = {}


def _case(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    CASES[make.__name__.strip("_").replace("_", " ")] = make
    return make


class _Body(nn.Module):
    """Submodules by name, and a function of them and the input."""

    def __init__(self, function: Callable[[_Body, torch.Tensor], torch.Tensor], **children: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


@_case
def _twice_in_a_sequence() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer)


@_case
def _three_names_in_lists() -> nn.Module:
    layer = nn.Linear(6, 6)
    several = nn.ModuleList([layer, nn.Linear(6, 6), layer])
    return _Body(lambda m, x: m.named["x"](m.several[2](m.several[1](m.several[0](x)))), several=several,
                 named=nn.ModuleDict({"x": layer}))  # fmt: skip


@_case
def _of_a_nested_one_with_buffers() -> nn.Module:
    base = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 6))
    return _Body(lambda m, x: m.first(m.base(x)), base=base, first=base[0])


@_case
def _the_second_name_unused() -> nn.Module:
    base = nn.Sequential(nn.Linear(6, 6))
    return _Body(lambda m, x: m.base(x).tanh(), base=base, word=base[0])


@_case
def _with_a_plain_tensor() -> nn.Module:
    layer = nn.Linear(6, 6)
    layer.scale = torch.full((6,), 2.0)
    return _Body(lambda m, x: m.other(m.layer(x)) * m.other.scale, layer=layer, other=layer)


@_case
def _a_shallow_copy() -> nn.Module:
    layer = nn.BatchNorm1d(6)
    return _Body(
        lambda m, x: m.other(m.linear(m.layer(x))), layer=layer, other=copy.copy(layer), linear=nn.Linear(6, 6)
    )


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("name", CASES)
def test_trains_like_eager(name: str, *, frozen: bool) -> None:
    torch.manual_seed(0)
    model = _Body(lambda m, x: m.head(m.inner(x)), inner=CASES[name](), head=nn.Linear(6, 2))
    for parameter in model.inner.parameters() if frozen else ():
        parameter.requires_grad_(False)
    batch, places = (torch.randn(5, 6), torch.randn(5, 2)), _places(model)
    profile = explorer.profile(model, batch, loss=F.mse_loss)
    assert _places(model) == places
    schedule = explorer.keep_all(profile.graph)
    assert_trains_like_eager((model, batch, F.mse_loss), schedule)
    module = explorer.apply(model, schedule, batch, loss=F.mse_loss)
    assert (
        explorer.measure(module, batch, loss=F.mse_loss).peak_bytes == explorer.simulate(profile, schedule).peak_bytes
    )


def test_a_shallow_copy_with_a_tensor_of_its_own_is_refused() -> None:
    layer = nn.Linear(6, 6)
    layer.scale = torch.tensor(2.0)
    other = copy.copy(layer)
    other.scale = torch.tensor(5.0)
    model = _Body(lambda m, x: m.other(m.layer(x) * m.layer.scale) * m.other.scale, layer=layer, other=other)
    with pytest.raises(ValueError, match=r"other\.scale is another tensor .* copy\.deepcopy"):
        explorer.profile(model, torch.randn(5, 6))
    assert layer.scale.item() == 2.0
    assert other.scale.item() == 5.0


def test_a_refused_model_is_as_before() -> None:
    layer = nn.Linear(6, 6)
    model = _Body(lambda m, x: m.one(x) if x.sum() > 0 else m.other(x), one=layer, other=layer)
    places = _places(model)
    with pytest.raises(ValueError, match="depend"):
        explorer.profile(model, torch.randn(5, 6))
    assert _places(model) == places


def _places(model: nn.Module) -> list[tuple[str, int]]:
    named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return [(name, id(x)) for name, x in named]
