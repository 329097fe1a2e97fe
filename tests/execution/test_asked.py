"""What a forward pass asks for at every call: a step where the answer is another is refused."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import torch
from torch import nn

import explorer
from explorer.capture import capture

SCALE: ContextVar[float] = ContextVar("SCALE", default=1.0)
UNSET: ContextVar[float] = ContextVar("UNSET")
SETTINGS: ContextVar[Any] = ContextVar("SETTINGS")
OF_THREAD = threading.local()
VARIABLE = "SCALE_OF_A_TEST"


class Settings:
    def __init__(self) -> None:
        self.scale = 2.0


HELD = Settings()


class Defaults(threading.local):
    scale = 1.0


OF_EACH = Defaults()
NAME = "name_of_a_scale_of_a_test"


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.weak = weakref.ref(HELD)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.second(torch.relu(self.first(x))) * self.scale()).sum()

    def scale(self) -> float:
        return 1.0


class OfContext(Model):
    def scale(self) -> float:
        return SCALE.get()


class OfContextWithoutDefault(Model):
    def scale(self) -> float:
        return UNSET.get(3.0)


class OfThread(Model):
    def scale(self) -> float:
        return getattr(OF_THREAD, "scale", 1.0)


class OfObjectInContext(Model):
    def scale(self) -> float:
        return SETTINGS.get(HELD).scale


class OfThreadsDefault(Model):
    def scale(self) -> float:
        return OF_EACH.scale


class OfAttribute(Model):
    def __init__(self) -> None:
        super().__init__()
        self.context = SCALE

    def scale(self) -> float:
        return self.context.get()


class OfVariableInVariable(Model):
    def scale(self) -> float:
        return float(os.environ.get(NAME, "1"))


class OfEnvironment(Model):
    def scale(self) -> float:
        return float(os.environ.get("SCALE_OF_A_TEST", "1"))


class OfSwitch(Model):
    def scale(self) -> float:
        return 2.0 if torch.are_deterministic_algorithms_enabled() else 1.0


class OfBackend(Model):
    def scale(self) -> float:
        return 2.0 if torch.backends.cudnn.benchmark else 1.0


class OfPrecision(Model):
    def scale(self) -> float:
        return 2.0 if torch.get_float32_matmul_precision() == "high" else 1.0


class OfFrozen(Model):
    def scale(self) -> float:
        return 2.0 if self.second.weight.requires_grad else 1.0


class OfWeak(Model):
    def scale(self) -> float:
        found = self.weak()
        return 0.0 if found is None else found.scale


CHANGES: dict[type[Model], tuple[Callable[[Any], Any], str]] = {
    OfContext: (lambda _: SCALE.set(3.0), r"SCALE, its 'value' is 3\.0, and was 1\.0"),
    OfContextWithoutDefault: (lambda _: UNSET.set(4.0), r"UNSET, its 'value' is 4\.0, and was None"),
    OfThread: (lambda _: setattr(OF_THREAD, "scale", 3.0), r"OF_THREAD, its 'scale' is 3\.0, and was None"),
    OfObjectInContext: (lambda _: SETTINGS.get().__setattr__("scale", 4.0), r"'scale' is 4\.0, and was 2\.0"),
    OfThreadsDefault: (lambda _: setattr(OF_EACH, "scale", 3.0), r"OF_EACH, its 'scale' is 3\.0, and was 1\.0"),
    OfAttribute: (lambda _: SCALE.set(3.0), r"context, its 'value' is 3\.0, and was 1\.0"),
    OfVariableInVariable: (lambda _: os.environ.update({NAME: "3"}), rf"environment's '{NAME}' is '3'"),
    OfEnvironment: (lambda _: os.environ.update({VARIABLE: "3"}), rf"environment's '{VARIABLE}' is '3', and was None"),
    OfSwitch: (lambda _: torch.use_deterministic_algorithms(mode=True), "PyTorch's 'are_deterministic_algorithms"),
    OfBackend: (lambda _: setattr(torch.backends.cudnn, "benchmark", True), r"'cudnn\.benchmark' is True"),
    OfPrecision: (lambda _: torch.set_float32_matmul_precision("high"), "'get_float32_matmul_precision' is 'high'"),
    OfFrozen: (lambda x: x.second.weight.requires_grad_(False), r"second\.weight needs no gradient now"),
    OfWeak: (lambda _: setattr(HELD, "scale", 3.0), r"'scale' is 3\.0, and was 2\.0"),
}


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    contexts, HELD.scale = SCALE.set(1.0), 2.0
    settings = SETTINGS.set(Settings())
    benchmark, precision = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    yield
    SCALE.reset(contexts)
    SETTINGS.reset(settings)
    OF_THREAD.__dict__.clear()
    OF_EACH.__dict__.clear()
    for name in (VARIABLE, NAME):
        os.environ.pop(name, None)
    torch.use_deterministic_algorithms(mode=False)
    torch.backends.cudnn.benchmark = benchmark
    torch.set_float32_matmul_precision(precision)


@pytest.mark.parametrize("kind", CHANGES)
def test_another_answer_is_refused(kind: type[Model]) -> None:
    model, batch = kind(), torch.randn(3, 4)
    module = explorer.apply(model, explorer.keep_all(capture(model, batch).graph), batch)
    assert torch.equal(module(batch), model(batch))
    change, words = CHANGES[kind]
    change(model)
    with pytest.raises(ValueError, match=words):
        module(batch)


def test_freezing_is_no_matter_where_nobody_asks() -> None:
    model, batch = Model(), torch.randn(3, 4)
    module = explorer.apply(model, explorer.keep_all(capture(model, batch).graph), batch)
    model.second.weight.requires_grad_(False)
    module(batch).backward()
    assert model.second.weight.grad is None
    assert model.first.weight.grad is not None


class Regularised(Model):
    def scale(self) -> float:
        return 1.0 if self.first.weight.grad is None else 2.0


class Clipped(Model):
    def scale(self) -> float:
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        return 1.0


class Dropping(Model):
    def scale(self) -> float:
        self.first.weight.grad = None
        return 1.0


@pytest.mark.parametrize("kind", [Regularised, Clipped, Dropping])
def test_a_forward_pass_that_reads_or_sets_gradients_is_refused(kind: type[Model]) -> None:
    with pytest.raises(ValueError, match=r"reads or sets first\.weight\.grad at .*test_asked\.py"):
        capture(kind(), torch.randn(3, 4))


class Inside(Model):
    """Reads one number of the module that it is a part of."""

    def __init__(self, around: nn.Module) -> None:
        super().__init__()
        self.around = weakref.ref(around)

    def scale(self) -> float:
        return float(self.around().temperature)  # type: ignore[union-attr]


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.count = 2.0, 0
        self.net: nn.Module = Inside(self)


def test_of_what_is_referred_to_what_is_read_matters_alone() -> None:
    around, batch = Around(), torch.randn(3, 4)
    around.net = explorer.apply(around.net, explorer.keep_all(capture(around.net, batch).graph), batch)
    around.count = 5
    around.net(batch)
    around.temperature = 3.0
    with pytest.raises(ValueError, match=r"'temperature' is 3\.0, and was 2\.0"):
        around.net(batch)
