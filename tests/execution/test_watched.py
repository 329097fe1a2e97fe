"""Whatever a step reads of objects, containers, classes, files of Python or the environment: a change of it is told."""

from __future__ import annotations

import os
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture
from explorer.execution.guards import ModelChangedError
from explorer.schedule import keep_all


@dataclass(slots=True)
class Slots:
    scale: float = 1.0


class AttributeDict(dict[str, Any]):
    __getattr__ = dict.__getitem__


class Config:
    scale = 1.0
    epoch = 0


beside = ModuleType("a_file_of_mine")
exec("SCALE = 1.0\ndef scaled(x):\n    return x * SCALE", vars(beside))  # noqa: S102 - a file of Python
settings = SimpleNamespace(scale=1.0, epoch=0)
TABLE = {"scale": {"now": 1.0}, "epoch": 0}
ROWS = [[1.0]]
PAIR = [(1.0, 2.0)]
NUMBERS = np.ones(2)
THINGS = [SimpleNamespace(scale=1.0)]
NAMED = {"it": SimpleNamespace(scale=1.0)}


class Net(nn.Module):
    def __init__(self, held: Any = None) -> None:
        super().__init__()
        self.layer, self.held = nn.Linear(4, 4), held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).square().mean() * self.scale()

    def scale(self) -> Any:
        raise NotImplementedError


def reading(read: Callable[[Any], Any]) -> type[Net]:
    """A class whose forward method reads so."""
    return type("Reading", (Net,), {"scale": read, "__module__": __name__})


def put(there: Any, key: Any) -> None:
    there[key] = 2.0


HELD: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "an object in a list": ([Slots()], lambda self: self.held[0].scale, lambda x: setattr(x[0], "scale", 2.0)),
    "an object in a dict": ({"a": Slots()}, lambda self: self.held["a"].scale, lambda x: setattr(x["a"], "scale", 2.0)),
    "an object in a deque": (deque([Slots()]), lambda self: self.held[0].scale, lambda x: setattr(x[0], "scale", 2.0)),
    "slots": (Slots(), lambda self: self.held.scale, lambda x: setattr(x, "scale", 2.0)),
    "an array": (np.ones(3), lambda self: float(self.held[0]), lambda x: put(x, 0)),
    "a list in a tuple": (([1.0],), lambda self: self.held[0][0], lambda x: put(x[0], 0)),
    "a dict in a defaultdict": (
        defaultdict(dict, {"a": {"b": 1.0}}),
        lambda self: self.held["a"]["b"],
        lambda x: put(x["a"], "b"),
    ),
    "a list in an ordered dict": (OrderedDict(a=[1.0]), lambda self: self.held["a"][0], lambda x: put(x["a"], 0)),
    "a dict with attributes": (AttributeDict(scale=1.0), lambda self: self.held.scale, lambda x: put(x, "scale")),
    "what a function reads": (
        lambda: settings.scale,
        lambda self: self.held(),
        lambda _: setattr(settings, "scale", settings.scale + 1),
    ),
    "what a function was given": (
        partial(lambda x: x.scale, settings),
        lambda self: self.held(),
        lambda _: setattr(settings, "scale", settings.scale + 1),
    ),
}
AROUND: dict[str, tuple[Callable[[Any], Any], Callable[[], Any]]] = {
    "a class": (lambda _: Config.scale, lambda: setattr(Config, "scale", 2.0)),
    "a nested dict": (lambda _: TABLE["scale"]["now"], lambda: put(TABLE["scale"], "now")),
    "a nested list": (lambda _: ROWS[0][0], lambda: put(ROWS[0], 0)),
    "a tuple": (lambda _: PAIR[0][0], lambda: put(PAIR, 0)),
    "an array around": (lambda _: float(NUMBERS[0]), lambda: put(NUMBERS, 0)),
    "an object in a list around": (lambda _: THINGS[0].scale, lambda: setattr(THINGS[0], "scale", 2.0)),
    "an object in a dict around": (lambda _: NAMED["it"].scale, lambda: setattr(NAMED["it"], "scale", 2.0)),
    "a file of Python": (lambda _: beside.SCALE, lambda: setattr(beside, "SCALE", beside.SCALE + 1)),
    "a function in one": (lambda _: beside.scaled(1.0), lambda: setattr(beside, "SCALE", beside.SCALE + 1)),
    "the environment": (lambda _: float(os.environ["A_SCALE"]), lambda: os.environ.update(A_SCALE="2.0")),
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("A_SCALE", "1.0")
    monkeypatch.setitem(sys.modules, beside.__name__, beside)
    yield
    settings.epoch = Config.epoch = TABLE["epoch"] = 0


def told(model: nn.Module, change: Callable[[], Any]) -> str:
    x = torch.randn(3, 4)
    module = explorer.apply(model, keep_all(capture(model, x).graph), x)
    module(x).backward()
    module.zero_grad()
    settings.epoch = Config.epoch = TABLE["epoch"] = 1  # nothing that is read
    module(x).backward()
    change()
    with pytest.raises(ModelChangedError) as error:
        module(x)
    return str(error.value)


@pytest.mark.parametrize("kind", HELD)
def test_what_attributes_hold(kind: str) -> None:
    held, read, change = HELD[kind]
    assert "put it back, or" in told(reading(read)(held), lambda: change(held))


@pytest.mark.parametrize("kind", AROUND)
def test_what_is_around_a_forward_method(kind: str) -> None:
    read, change = AROUND[kind]
    assert "put it back, or" in told(reading(read)(), change)


norm = torch.ones(1)


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.layer(x)).square().mean()


def test_a_global_that_is_called_like_an_attribute_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4)
    module = explorer.apply(model := Normed(), keep_all(capture(model, x).graph), x)
    monkeypatch.setitem(globals(), "norm", torch.zeros(1))
    module(x).backward()
