"""What a step reads of a model and of what is around it: whatever changes since the capture is told, never trained."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import explorer
from explorer.capture import capture
from explorer.execution.guards import ModelChangedError
from explorer.execution.optimizers import label_of
from explorer.schedule import keep_all

FACTOR = 1.0


def scheduled(model: nn.Module, batch: Any, loss: Any = None, **options: Any) -> explorer.ScheduledModule:
    graph = capture(model, batch, loss=loss).graph
    return explorer.apply(model, keep_all(graph), batch, loss=loss, **options)


def rows(count: int = 8) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(count))


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * FACTOR


class Pictures(nn.Module):
    """Convolutions, whose implementations go by the memory format."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.max_pool2d(F.relu(self.second(F.relu(self.first(x)))), 2).square().mean()


class Settings(nn.Module):
    """Reads attributes of all kinds."""

    temperature = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(6, 3, bias=False), nn.Dropout(0.0)
        self.register_buffer("mask", None)
        self.nested, self.listed = {"a": {"scale": 1.0}}, [[1.0]]
        self.space = SimpleNamespace(inner=SimpleNamespace(factor=1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.layer(x)) * self.temperature * self.nested["a"]["scale"] * self.listed[0][0]
        x = scaled(x) * self.space.inner.factor
        if getattr(self, "warm", False):
            x = 2 * x
        return x if self.mask is None else x * self.mask


def _nested(model: Settings) -> None:
    model.nested["a"]["scale"] = 2.0


def _listed(model: Settings) -> None:
    model.listed[0][0] = 2.0


CHANGES: dict[str, Callable[[Any], Any]] = {
    "temperature was set": lambda x: setattr(x, "temperature", 2.0),
    "warm was set": lambda x: setattr(x, "warm", True),
    "mask is another": lambda x: setattr(x, "mask", torch.ones(3)),
    "bias is another": lambda x: setattr(x.layer, "bias", nn.Parameter(torch.ones(3))),
    "drop.forward was set": lambda x: setattr(x.drop, "forward", lambda y: y),
    "nested is": _nested,
    "listed is": _listed,
    "space.inner.factor is": lambda x: setattr(x.space.inner, "factor", 2.0),
}


@pytest.mark.parametrize("said", CHANGES)
def test_attributes_that_were_not_there_or_lie_deeper_are_watched(said: str) -> None:
    module = scheduled(model := Settings(), (rows(),))
    model.unrelated = "nothing that a method mentions"
    module(rows())
    CHANGES[said](model)
    with pytest.raises(ModelChangedError, match=said):
        module(rows())


@pytest.mark.parametrize("name", ["temperature", "forward"])
def test_classes_of_the_user_are_watched(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = scheduled(Settings(), (rows(),))
    monkeypatch.setattr(Settings, name, 2.0 if name == "temperature" else lambda self, x: self.layer(x))
    with pytest.raises(ModelChangedError, match=name):
        module(rows())


def test_variables_around_the_model_and_its_helpers_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    module = scheduled(Settings(), (rows(),))
    beside = scheduled(nn.Linear(6, 3), (rows(), rows()[:, :3]), lambda x, y: F.mse_loss(scaled(x), y))
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    for other, batch in ((module, (rows(),)), (beside, (rows(), rows()[:, :3]))):
        with pytest.raises(ModelChangedError, match=r"'FACTOR' is 3\.0"):
            other(*batch)


def test_objects_around_a_loss_are_watched_as_far_as_it_reads_them() -> None:
    target = torch.arange(8) % 3
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    options, table = SimpleNamespace(beta=0.1, epoch=0), {"gamma": 0.1, "epoch": 0}

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return criterion(x, y) + (options.beta + table["gamma"]) * x.square().mean()

    def training() -> explorer.ScheduledModule:
        return scheduled(nn.Linear(6, 3), (rows(), target), loss)

    module = training()
    options.epoch = table["epoch"] = 1
    module(rows(), target)
    for change, back, said in (
        (lambda: setattr(options, "beta", 1.0), lambda: setattr(options, "beta", 0.1), "'beta' is 1.0"),
        (lambda: table.update(gamma=1.0), lambda: table.update(gamma=0.1), "'gamma' is 1.0"),
        (lambda: setattr(criterion, "label_smoothing", 0.5), lambda: None, "'label_smoothing' is 0.5"),
    ):
        change()
        with pytest.raises(ModelChangedError, match=said):
            module(rows(), target)
        back()


def test_another_memory_format_is_told() -> None:
    images = torch.randn(2, 3, 8, 8)
    module = scheduled(Pictures().to(memory_format=torch.channels_last), (images,))
    module.load_state_dict(Pictures().state_dict(), assign=True)
    with pytest.raises(ModelChangedError, match=r"first\.weight lies in another memory format"):
        module(images)
    module = scheduled(model := Pictures(), (images,))
    module(images).backward()
    model.to(memory_format=torch.channels_last)
    with pytest.raises(ModelChangedError, match=r"first\.weight lies in another memory format"):
        module(images)


class InPlace(nn.Module):
    """Changes its input, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)
        self.register_buffer("mean", torch.zeros(8, 6))
        self.register_buffer("other", torch.zeros(8, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.layer(F.relu(x, inplace=True)) + self.other
        self.mean.lerp_(found.detach(), 0.1)
        return found


def test_memory_that_is_shared_only_later_is_told() -> None:
    module = scheduled(model := InPlace(), (rows(), rows(8) + 1), F.mse_loss)
    module(rows(), rows()).backward()
    one, row = rows(), rows(9)
    for batch in ((one, one), (row[:8], row[1:]), (model.mean, one)):
        with pytest.raises(ModelChangedError, match="share memory"):
            module(*batch)
    model.other = model.mean
    with pytest.raises(ModelChangedError, match="a buffer that the step changes in place shares memory"):
        module(rows(), rows())


def test_a_copy_of_a_changed_model_does_not_train() -> None:
    module = scheduled(model := Settings(), (rows(),))
    model.space.inner.factor = 5.0
    copied = copy.deepcopy(module)
    copied.eval()(rows())
    with pytest.raises(ModelChangedError, match=r"when this was copied.*factor is 5\.0"):
        copied.train()(rows())


def test_a_copy_has_schedules_of_its_own() -> None:
    module = scheduled(model := nn.Sequential(nn.Linear(6, 3)), (rows(),))
    copied = copy.deepcopy(module)
    explorer.add_schedule(module, keep_all(capture(model, (rows(4),)).graph), (rows(4),))
    module(rows(4)).sum().backward()
    with pytest.raises(ValueError, match="the schedule was made for"):
        copied(rows(4))
    again = copy.deepcopy(module)
    again(rows(4)).sum().backward()
    copied(rows()).sum().backward()


class ByChance(nn.Module):
    """Takes one of two ways."""

    def __init__(self, whose: str) -> None:
        super().__init__()
        self.layer, self.whose = nn.Linear(6, 3), whose

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        drawn = np.random.rand() if self.whose == "NumPy's" else random.random()  # noqa: NPY002 - as models do
        return self.layer(torch.tanh(x) if drawn < 0.5 else x)


@pytest.mark.parametrize("whose", ["Python's random", "NumPy's"])
def test_chance_that_is_not_torchs_is_refused(whose: str) -> None:
    before = random.getstate()
    with pytest.raises(ValueError, match=f"draws from {whose} numbers"):
        capture(ByChance(whose), (rows(),))
    assert random.getstate() == before


class Held(ByChance):
    def __init__(self, generator: Any) -> None:
        super().__init__("")
        self.generator = generator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * float(self.generator.choice([1, 1, 1, 2]))  # which two captures may agree in


@pytest.mark.parametrize("generator", [random.Random(0), np.random.default_rng(0)], ids=["Python's", "NumPy's"])
def test_generators_that_a_model_or_a_loss_has_are_refused(generator: Any) -> None:
    with pytest.raises(ValueError, match=r"draws from a (random\.Random|numpy\.random.*Generator)"):
        capture(Held(generator), (rows(),))
    with pytest.raises(ValueError, match="draws from a"):
        capture(
            nn.Linear(6, 3), (rows(), rows()), loss=lambda x, _: x.square().mean() * float(generator.choice([1, 1, 2]))
        )


def test_what_other_threads_draw_is_theirs() -> None:
    done = threading.Event()

    def draw() -> None:
        while not done.is_set():
            random.random()

    other = threading.Thread(target=draw)
    other.start()
    try:
        capture(Counted(), (rows(),))
    finally:
        done.set()
        other.join()


class Sometimes(nn.Module):
    """Takes more memory for one value of what is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 300)

    def forward(self, x: torch.Tensor, much: bool) -> torch.Tensor:  # noqa: FBT001 - as models have it
        found = self.layer(x)
        return (found.repeat(50, 1).tanh() if much else found).square().mean()


def test_plain_batches_are_told_apart_by_all_that_they_hold() -> None:
    module = scheduled(Sometimes(), (rows(), False), other_batches="plain")
    module(rows(4), False)
    with pytest.raises(ValueError, match="without scratch memory, more than"):
        module(rows(4), True)


def test_options_of_an_optimizers_groups_count() -> None:
    parameter = nn.Parameter(torch.ones(1))
    assert label_of(torch.optim.AdamW([parameter])) == "AdamW"
    assert label_of(torch.optim.AdamW([{"params": [parameter], "amsgrad": True}])) == "AdamW(amsgrad=True)"


class Counted(nn.Module):
    """Counts its objects, and has what only other methods read."""

    made, verbose = 0, False

    def __init__(self) -> None:
        super().__init__()
        Counted.made += 1
        self.layer = nn.Linear(6, 3)

    def describe(self) -> str:
        return f"{self.made} {self.note}" if self.verbose else ""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


def test_what_the_forward_method_does_not_read_may_change() -> None:
    module = scheduled(model := Counted(), (rows(),))
    Counted()
    Counted.verbose, model.note = True, "later"
    assert module.describe()
    module(rows()).sum().backward()
