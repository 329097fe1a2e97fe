"""Which optimizers may update parameters one by one within the backward pass: those that train the same then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import explorer

TOGETHER = "works on its parameters together"
ALONE = [
    x
    for x in vars(optim).values()
    if isinstance(x, type) and issubclass(x, optim.Optimizer) and x not in (optim.Optimizer, optim.LBFGS)
]


class CountsInGroups(optim.Optimizer):
    """Learns more slowly with each step, which its groups count; as schedule-free ones do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1, "k": 0})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        del closure
        for group in self.param_groups:
            group["k"] += 1
            for x in group["params"]:
                if x.grad is not None:
                    x.data.sub_(x.grad, alpha=group["lr"] / group["k"])


class ChangesRates(CountsInGroups):
    """Its groups' rate falls, in a tensor that is changed in place."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        for group in self.param_groups:
            group["lr"] = torch.tensor(0.1)

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        del closure
        for group in self.param_groups:
            for x in group["params"]:
                if x.grad is not None:
                    x.data -= x.grad * group["lr"]
            group["lr"] *= 0.5


class ByNorm(optim.Optimizer):
    """Divides by the norm of all gradients, as LAMB and what clips by itself do."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        del closure
        held = [x for group in self.param_groups for x in group["params"] if x.grad is not None]
        norm = torch.cat([x.grad.flatten() for x in held]).norm()
        for x in held:
            x.data.sub_(x.grad / norm, alpha=self.param_groups[0]["lr"])


Makes = Callable[[Any], optim.Optimizer]


def made(make: Makes, parameters: list[nn.Parameter], *, grouped: bool) -> optim.Optimizer:
    return make([{"params": parameters[:2]}, {"params": parameters[2:]}] if grouped else parameters)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("make", [CountsInGroups, ChangesRates, ByNorm])
def test_an_optimizer_that_works_on_all_together_is_refused(make: Makes, *, grouped: bool) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    batch, loss = (torch.randn(2, 4), torch.randn(2, 1)), nn.functional.mse_loss
    optimizer = made(make, list(model.parameters()), grouped=grouped)
    before = [dict(group) for group in optimizer.param_groups]
    for work in (explorer.profile, lambda *x, **y: explorer.estimate(*x, device="A100-40GB", **y)):
        with pytest.raises(ValueError, match=TOGETHER):
            work(model, batch, loss=loss, optimizer=optimizer, update="within")
    with pytest.raises(ValueError, match=TOGETHER):
        explorer.update_within(model, optimizer)
    profile = explorer.profile(model, batch, loss=loss, optimizer=optimizer)
    at_end, best = (explorer.solve(profile, budget=2**30, update=update, steps=1) for update in ("end", "best"))
    assert best.schedule is not None
    assert best.schedule == at_end.schedule
    with pytest.raises(ValueError, match="this profile knows no iteration"):
        explorer.solve(profile, budget=2**30, update="within")
    assert [dict(group) for group in optimizer.param_groups] == before
    assert not optimizer.state


@pytest.mark.parametrize("rate", [0.0, 1e-9, torch.tensor(0.0)])
def test_a_warm_up_that_begins_with_nothing_hides_no_difference(rate: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = ByNorm(model.parameters())
    optimizer.param_groups[0]["lr"] = float(rate) if isinstance(rate, torch.Tensor) else rate
    with pytest.raises(ValueError, match=TOGETHER):
        explorer.update_within(model, optimizer)
    adam = optim.Adam(model.parameters(), lr=rate, capturable=False, foreach=False)
    explorer.update_within(model, adam).remove()
    assert adam.param_groups[0]["lr"] is rate


@pytest.mark.parametrize("make", ALONE, ids=lambda x: x.__name__)
def test_the_optimizers_of_pytorch_update_one_by_one(make: Makes) -> None:
    model: nn.Module
    if make is optim.SparseAdam:
        pytest.skip("works on sparse gradients alone")
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 1, bias=False))
    explorer.update_within(model, made(make, list(model.parameters()), grouped=False)).remove()
    explorer.profile(
        model, (torch.randn(2, 4), torch.randn(2, 1)), loss=nn.functional.mse_loss, optimizer=make, update="within"
    )
