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
OF_THREAD = threading.local()
VARIABLE = "SCALE_OF_A_TEST"


class Settings:
    def __init__(self) -> None:
        self.scale = 2.0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.held = Settings()
        self.weak = weakref.ref(self.held)

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
    OfEnvironment: (lambda _: os.environ.update({VARIABLE: "3"}), rf"environment's '{VARIABLE}' is '3', and was None"),
    OfSwitch: (lambda _: torch.use_deterministic_algorithms(mode=True), "PyTorch's 'are_deterministic_algorithms"),
    OfBackend: (lambda _: setattr(torch.backends.cudnn, "benchmark", True), r"'cudnn\.benchmark' is True"),
    OfPrecision: (lambda _: torch.set_float32_matmul_precision("high"), "'get_float32_matmul_precision' is 'high'"),
    OfFrozen: (lambda x: x.second.weight.requires_grad_(False), r"second\.weight needs no gradient now"),
    OfWeak: (lambda x: setattr(x.held, "scale", 3.0), r"scale is 3\.0, and was 2\.0|'scale' is 3\.0, and was 2\.0"),
}


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    contexts = SCALE.set(1.0)
    benchmark, precision = torch.backends.cudnn.benchmark, torch.get_float32_matmul_precision()
    yield
    SCALE.reset(contexts)
    OF_THREAD.__dict__.clear()
    os.environ.pop(VARIABLE, None)
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


def test_a_forward_pass_that_reads_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match=r"reads first\.weight\.grad at .*test_asked\.py"):
        capture(Regularised(), torch.randn(3, 4))
