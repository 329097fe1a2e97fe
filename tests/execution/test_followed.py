"""What functions around a step read through others: objects and their methods, classes, teachers, whole dicts."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from enum import Enum
from fractions import Fraction
from functools import partialmethod
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.execution.guards import ModelChangedError
from explorer.schedule import keep_all


class Mode(Enum):
    PLAIN = 1.0
    DOUBLED = 2.0


class Reversed(torch.autograd.Function):
    rate = 1.0

    @staticmethod
    def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        return -Reversed.rate * gradient


class Trainer:
    def __init__(self) -> None:
        self.epoch, self.logged, self.inner = 1, 0, SimpleNamespace(rate=1.0)

    def beta(self) -> float:
        return 0.1 * self.epoch * self.inner.rate

    def log(self) -> None:
        self.logged += 1

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(x, y) + self.beta() * x.square().mean()


class Annealed:
    def __init__(self) -> None:
        self.time = 0

    def __call__(self) -> float:
        return 1.0 / (1 + self.time)


trainer, annealed = Trainer(), Annealed()
teacher, others = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3).requires_grad_(False)
weights, options = {"mse": 1.0, "l1": 0.5}, {"rate": 1.0, "epoch": 0}
settings = SimpleNamespace(rate=1.0, mode=Mode.PLAIN, share=Fraction(1, 2), act=torch.relu, epoch=0)
optimizer = torch.optim.SGD(teacher.parameters(), lr=0.1)
schedule = [1.0] * 1000
SCALE = 1.0
criterion: Any = nn.MSELoss()


def rate_of(given: Any) -> float:
    return given.rate


def with_default(x: torch.Tensor, y: torch.Tensor, held: dict[str, float] = options) -> torch.Tensor:
    return held["rate"] * F.mse_loss(x, y)


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(x, y) * scaled.rate  # type: ignore[attr-defined]


scaled.rate = 1.0  # type: ignore[attr-defined]
terms = {"mse": F.mse_loss, "l1": F.l1_loss}


def set_global(name: str, value: Any) -> None:
    globals()[name] = value


LOSSES: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], Any]]] = {
    "another teacher": (lambda x, y: F.mse_loss(x, teacher(y)), lambda: set_global("teacher", copy.deepcopy(others))),
    "a teacher's new parameters": (
        lambda x, y: F.mse_loss(x, teacher(y)),
        lambda: teacher.load_state_dict(others.state_dict(), assign=True),
    ),
    "another criterion": (lambda x, y: 1.0 * criterion(x, y), lambda: set_global("criterion", nn.L1Loss())),
    "what a method calls": (trainer.loss, lambda: setattr(trainer, "epoch", 5)),
    "an object in an object": (trainer.loss, lambda: setattr(trainer.inner, "rate", 5.0)),
    "an object in an object, another": (trainer.loss, lambda: setattr(trainer, "inner", SimpleNamespace(rate=5.0))),
    "a dict that is iterated": (
        lambda x, y: torch.stack([w * terms[name](x, y) for name, w in weights.items()]).sum(),
        lambda: weights.update(l1=5.0),
    ),
    "a key by a variable": (
        lambda x, y: sum(weights[name] for name in terms) * F.mse_loss(x, y),
        lambda: weights.update(l1=5.0),
    ),
    "another dict": (lambda x, y: options["rate"] * F.mse_loss(x, y), lambda: set_global("options", {"rate": 5.0})),
    "autograd's function": (lambda x, y: F.mse_loss(Reversed.apply(x), y), lambda: setattr(Reversed, "rate", 5.0)),
    "the rate of an optimizer": (
        lambda x, y: optimizer.param_groups[0]["lr"] * F.mse_loss(x, y),
        lambda: optimizer.param_groups[0].update(lr=5.0),
    ),
    "a default argument": (with_default, lambda: options.update(rate=5.0)),
    "an attribute of a function": (scaled, lambda: setattr(scaled, "rate", 5.0)),
    "what is passed on": (lambda x, y: rate_of(settings) * F.mse_loss(x, y), lambda: setattr(settings, "rate", 5.0)),
    "a long list": (lambda x, y: schedule[999] * F.mse_loss(x, y), lambda: schedule.__setitem__(999, 5.0)),
    "an enum": (lambda x, y: settings.mode.value * F.mse_loss(x, y), lambda: setattr(settings, "mode", Mode.DOUBLED)),
    "a fraction": (
        lambda x, y: float(settings.share) * F.mse_loss(x, y),
        lambda: setattr(settings, "share", Fraction(2)),
    ),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.annealed, self.settings = nn.Linear(3, 3), annealed, settings

    @staticmethod
    def static(x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    @classmethod
    def of_class(cls, x: torch.Tensor) -> torch.Tensor:
        return x * SCALE

    def partly(self, x: torch.Tensor, by: float) -> torch.Tensor:
        return x * by * SCALE

    part = partialmethod(partly, by=1.0)
    read: Callable[..., torch.Tensor]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.read(self.layer(x)).square().mean()


MODELS: dict[str, tuple[Callable[..., torch.Tensor], Callable[[], Any]]] = {
    "a callable": (lambda self, x: x * self.annealed(), lambda: setattr(annealed, "time", 3)),
    "a static method": (lambda self, x: self.static(x), lambda: set_global("SCALE", 5.0)),
    "a class method": (lambda self, x: self.of_class(x), lambda: set_global("SCALE", 5.0)),
    "a method that is partly given": (lambda self, x: self.part(x), lambda: set_global("SCALE", 5.0)),
    "a function of an object": (lambda self, x: self.settings.act(x), lambda: setattr(settings, "act", torch.tanh)),
}


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that a case changes, anew for each."""
    for name in ("teacher", "criterion", "options", "SCALE"):
        monkeypatch.setitem(globals(), name, globals()[name])
    for held in (trainer, trainer.inner, annealed, settings, Reversed):
        for name in [x for x in vars(held) if not x.startswith("_")]:
            monkeypatch.setattr(held, name, getattr(held, name) if held is not Reversed else vars(held)[name])
    for mapping in (weights, options, optimizer.param_groups[0]):
        for key, value in list(mapping.items()):
            monkeypatch.setitem(mapping, key, value)
    monkeypatch.setattr(scaled, "rate", 1.0)


def told(model: nn.Module, batch: Any, loss: Any, change: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    module = explorer.apply(model, keep_all(capture(model, batch, loss=loss).graph), batch, loss=loss)
    arguments = batch if loss is not None else (batch,)
    module(*arguments).backward()
    settings.epoch += loss is not None  # nothing that is read; a model's own settings may be at any time
    options["epoch"] += 1
    trainer.log()
    module(*arguments).backward()
    change()
    with pytest.raises(ModelChangedError, match="the variable"):
        module(*arguments)


@pytest.mark.filterwarnings("ignore:this step begins with gradients")
@pytest.mark.parametrize("case", LOSSES)
def test_around_a_loss(case: str) -> None:
    loss, change = LOSSES[case]
    told(nn.Linear(3, 3), (torch.randn(4, 3), torch.randn(4, 3)), loss, change)


@pytest.mark.filterwarnings("ignore:this step begins with gradients")
@pytest.mark.parametrize("case", MODELS)
def test_around_a_forward_method(case: str) -> None:
    read, change = MODELS[case]
    told(type("Reading", (Net,), {"read": read, "__module__": __name__})(), torch.randn(4, 3), None, change)


class Cyclic:
    rate = 1.0
    table: ClassVar[dict[str, Any]] = {}


Cyclic.table["table"] = [[[[Cyclic, Cyclic.table]]]]


@pytest.mark.filterwarnings("ignore:this step begins with gradients")
def test_what_contains_itself_is_followed_to_an_end() -> None:
    told(
        nn.Linear(3, 3),
        (torch.randn(4, 3), torch.randn(4, 3)),
        lambda x, y: Cyclic.table["table"][0][0][0][0].rate * F.mse_loss(x, y),
        lambda: setattr(Cyclic, "rate", 5.0),
    )


LOG = logging.getLogger("a loss of mine")


def test_what_libraries_keep_for_themselves_may_change() -> None:
    """A logger has a cache of levels, which it fills and empties."""
    batch = torch.randn(4, 3), torch.randn(4, 3)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        LOG.debug("of %d rows", len(x))
        return F.mse_loss(x, copy.copy(y))

    model = nn.Linear(3, 3)
    module = explorer.apply(model, keep_all(capture(model, batch, loss=loss).graph), batch, loss=loss)
    LOG.error("a level that it was not asked for before")
    LOG.isEnabledFor(5)
    module(*batch).backward()


def test_the_model_itself_may_get_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """``model = explorer.apply(model, …)``, where the loss reads its parameters."""
    batch = torch.randn(4, 3), torch.randn(4, 3)
    monkeypatch.setitem(globals(), "others", model := nn.Linear(3, 3))

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(x, y) + sum(p.square().sum() for p in others.parameters())

    module = explorer.apply(model, keep_all(capture(model, batch, loss=loss).graph), batch, loss=loss)
    set_global("others", module)
    module(*batch).backward()
