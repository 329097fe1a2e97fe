"""What goes on in the background, and what the next cell does with the same model, do not meet."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import explorer
from tests.widgets.trained import ConvNet
from widgets import Explorer
from widgets.choices.apart import apart

BATCH = (torch.randn(16, 3, 16, 16), torch.randint(10, (16,)))


class Checkpointed(ConvNet):
    """Whose statistics tell how often a block ran."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """As its parent."""
        middle = checkpoint(self.blocks, self.stem(images), use_reentrant=True)
        assert isinstance(middle, torch.Tensor)
        return self.head(middle.flatten(1))


def train(model: nn.Module, goes_on: Callable[[], bool]) -> int:
    """Train for at least ten steps, and while something goes on; how many it were."""
    optimizer, steps = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), 0
    while steps < 10 or goes_on():
        chance = torch.Generator().manual_seed(steps)
        images, classes = (torch.randn(8, 3, 16, 16, generator=chance), torch.randint(10, (8,), generator=chance))
        F.cross_entropy(model(images), classes).backward()
        assert all(x.grad is not None for x in model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        steps += 1
    return steps


def until(opened: Explorer, told: str) -> None:
    """Wait until the status line says so."""
    deadline = time.monotonic() + 120
    while told not in opened.message:
        assert time.monotonic() < deadline, opened.message
        time.sleep(0.0005)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [ConvNet, Checkpointed])
@pytest.mark.parametrize("told", ["", "Profiling"])
def test_the_next_cell_trains_as_if_nothing_went_on_and_the_profile_is_the_same(kind: type[ConvNet], told: str) -> None:
    model = kind()
    alone = copy.deepcopy(model)
    made_of = {"loss": F.cross_entropy, "optimizer": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)}
    with explorer.explore(model, BATCH, **made_of) as opened:
        until(opened, told)
        steps = train(model, lambda: opened._subject.profile is None)
        opened.wait(120)
        found = opened._subject.profile
    left = iter(range(steps - 10))
    assert train(alone, lambda: next(left, None) is not None) == steps
    for name, value in alone.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name
    again = explorer.profile(alone, BATCH, loss=F.cross_entropy, optimizer="momentum")
    assert found is not None
    assert found.graph == again.graph
    assert found.eager_peak_bytes == again.eager_peak_bytes


def test_what_is_measured_is_a_copy_too() -> None:
    model = ConvNet()
    alone = copy.deepcopy(model)
    with explorer.explore(model, BATCH, loss=F.cross_entropy, budget="100 %") as opened:
        opened.wait(120)
        opened.run()
        steps = train(model, lambda: opened.measurement is None and "failed" not in opened.message)
        opened.wait(120)
        assert opened.measured_peak == opened.predicted_peak
    left = iter(range(steps - 10))
    train(alone, lambda: next(left, None) is not None)
    assert all(torch.equal(x, y) for x, y in zip(model.parameters(), alone.parameters(), strict=True))


def test_a_copy_has_ties_and_a_like_optimizer_without_its_state() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    optimizer = torch.optim.Adam([{"params": model[0].parameters()}, {"params": [model[1].bias], "amsgrad": True}])
    found = apart(model, torch.ones(2, 4), F.mse_loss, optimizer)
    assert not found.why_shared
    assert found.model[0].weight is found.model[1].weight is not model[0].weight
    assert not found.optimizer.state
    assert [[id(x) for x in group["params"]] for group in found.optimizer.param_groups] == [
        [id(x) for x in found.model[0].parameters()],
        [id(found.model[1].bias)],
    ]
    assert [x["amsgrad"] for x in found.optimizer.param_groups] == [False, True]


class Unlike(nn.Linear):
    """Refuses to be copied."""

    def __deepcopy__(self, _: object) -> None:
        """No."""
        raise RuntimeError("there is one of me")


class Held:
    """Has a model, as trainers do."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model


def penalty(model: nn.Module) -> Callable[[], torch.Tensor]:
    return lambda: sum((x.square().sum() for x in model.parameters()), torch.zeros(()))


def in_closure(model: nn.Module) -> Any:
    decay = penalty(model)
    return lambda out, target: F.mse_loss(out, target) + decay()


def in_a_trainer(model: nn.Module) -> Any:
    trainer = Held(model)
    return lambda out, target: F.mse_loss(out, target) + trainer.model.weight.square().sum()


@pytest.mark.parametrize(
    ("make", "loss", "told"),
    [
        (Unlike, lambda _: F.mse_loss, "no copy of Unlike was made: there is one of me"),
        (nn.Linear, in_closure, "has the model itself in its text"),
        (nn.Linear, in_a_trainer, "has the model itself in its text"),
    ],
    ids=["refusing", "closure", "trainer"],
)
def test_a_model_that_cannot_be_copied_is_profiled_before_explore_returns(make: Any, loss: Any, told: str) -> None:
    model = make(8, 8)
    batch = torch.randn(4, 8), torch.randn(4, 8)
    with pytest.warns(UserWarning, match=f"{told}, so that it was profiled before explore returned"):
        opened = explorer.explore(model, batch, loss=loss(model))
    with opened:
        assert opened._subject.profile is not None
        opened.wait(120)
        assert opened.schedule is not None
        opened.run()
        opened.wait(120)
        assert opened.measured_peak is not None


def test_a_model_without_room_for_a_copy_is_profiled_before_explore_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widgets.choices.apart.free_bytes", lambda _: 2**10)
    model = nn.Linear(64, 64)
    with pytest.warns(UserWarning, match=r"it has 1\d\.\d\d KiB, and 1\.00 KiB are free"):
        opened = explorer.explore(model, (torch.randn(4, 64), torch.randn(4, 64)), loss=F.mse_loss)
    with opened:
        assert opened._subject.profile is not None


def test_what_cannot_be_captured_then_is_said_by_the_widget() -> None:
    class Branching(Unlike):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum() > 0 else x

    with pytest.warns(UserWarning, match="no copy of Branching was made"):
        opened = explorer.explore(Branching(8, 8), torch.randn(4, 8))
    with opened, pytest.raises(ValueError, match="control flow"):
        opened.wait(120)
