"""An exported file tells of other settings that the model's forward passes read, by name, and of no others."""

from __future__ import annotations

import enum
import functools
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from explorer.exporting.settings import settings_read
from tests.exporting.test_guards import made


class Torchs(nn.Module):
    """Modules of torch with settings that neither parameters nor ``extra_repr`` tell."""

    def __init__(self, heads: int = 4, criterion: dict[str, Any] | None = None, **settings: Any) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, heads, 8, 0.0, batch_first=True, **settings)
        self.attention = nn.MultiheadAttention(8, heads, batch_first=True)
        self.criterion = nn.CrossEntropyLoss(**criterion or {})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = self.layer(x)
        inside = inside + self.attention(inside, inside, inside, need_weights=False)[0]
        return self.criterion(inside.flatten(0, 1), torch.arange(6) % 5)


class Kind(enum.Enum):
    SMALL = 1
    LARGE = 2


def again(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


def shifted(x: torch.Tensor, model: Own) -> torch.Tensor:
    return x + model.shift * (2.0 if model.kind is Kind.LARGE else 1.0)


class Held:
    """Scales what it is called with."""

    __slots__ = ("by",)

    def __init__(self, by: float = 2.0) -> None:
        self.by = by

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


class Inner(nn.Module):
    """Has the activation of another module."""

    def __init__(self, act: Any) -> None:
        super().__init__()
        self.act = act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x)


class Holding(nn.Module):
    """Settings in what a module holds: a partial's arguments, sets, objects in lists, objects that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.act: Any = functools.partial(F.leaky_relu, negative_slope=0.1)
        self.added: Any = functools.partial(torch.add, alpha=2)
        self.left_out, self.parts = {1, 2}, [SimpleNamespace(rate=0.5), SimpleNamespace(rate=0.25)]
        self.twice: Any = functools.cache(lambda: 2.0)
        self.held, self.inner = Held(), Inner(self.act)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.held(self.inner(self.act(self.layer(x)))) * self.twice()
        for part in self.parts:
            x = self.added(x, x * part.rate)
        return sum((x[..., i].mean() for i in range(8) if i not in self.left_out), x.new_zeros(()))


class Child(nn.Module):
    """Its parent reads ``gain``; a training loop counts its calls."""

    gain = 1.5

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls, self.note = nn.Linear(8, 8), 0, "first run"

    def count(self) -> None:
        self.calls += 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Own(nn.Module):
    """Settings of one's own, of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.child, self.scale, self.shift, self.limits = Child(), 2.0, np.float32(0.5), (-1.0, float("inf"))
        self.config = SimpleNamespace(rate=0.5, name="first run", more={"power": 2, "id": 7})
        self.act, self.kind, self.none = F.gelu, Kind.SMALL, None
        self._hidden, self.count = 3, 0

    @property
    def hidden(self) -> int:
        return self._hidden

    @again
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.child(x) * self.child.gain).clamp(*self.limits)
        x = shifted(x, self) * self.scale + self.config.rate
        return (x if self.none is None else -x).pow(self.config.more["power"]).mean() * self.hidden


def set_to(name: str, value: Any, of: type[nn.Module] = Own) -> Callable[[], nn.Module]:
    def model() -> nn.Module:
        found: Any = of()
        *path, last = name.split(".")
        holder = functools.reduce(getattr, path, found)
        holder.update({last: value}) if isinstance(holder, dict) else setattr(holder, last, value)
        return found

    return model


TOLD: dict[str, Callable[[], nn.Module]] = {
    r"layer\.self_attn\.num_heads was 4 .*; attention\.num_heads was 4 .* and is 2": lambda: Torchs(2),
    r"layer\.norm_first was False when .* and is True": lambda: Torchs(norm_first=True),
    r"layer\.activation was 'relu' when .* and is 'gelu'": lambda: Torchs(activation="gelu"),
    r"criterion\.label_smoothing was 0\.0 .* and is 0\.3": lambda: Torchs(criterion={"label_smoothing": 0.3}),
    r"criterion\.ignore_index was -100 .* and is 1": lambda: Torchs(criterion={"ignore_index": 1}),
    r"scale was 2\.0 when .* and is 30\.0": set_to("scale", 30.0),
    r"scale was 2\.0 when .* and is 2": set_to("scale", 2),
    r"limits was \(-1\.0, inf\) when .* and is \(-1\.0, 1\.0\)": set_to("limits", (-1.0, 1.0)),
    r"shift was 0\.5 when .* and is 1\.5": set_to("shift", np.float32(1.5)),
    r"act was 'gelu' when .* and is 'relu'": set_to("act", F.relu),
    r"kind was 'Kind\.SMALL' when .* and is 'Kind\.LARGE'": set_to("kind", Kind.LARGE),
    r"none was None when .* and is True": set_to("none", value=True),
    r"_hidden was 3 when .* and is 4": set_to("_hidden", 4),
    r"child\.gain was 1\.5 when .* and is 2\.5": set_to("child.gain", 2.5),
    r"config\.rate was 0\.5 when .* and is 0\.1": set_to("config.rate", 0.1),
    r"act\.keywords\.negative_slope was 0\.1 when .* and is 0\.2": set_to(
        "act", functools.partial(F.leaky_relu, negative_slope=0.2), Holding
    ),
    r"act was 'partial' when .* and is 'relu'": set_to("act", F.relu, Holding),
    r"added\.keywords\.alpha was 2 when .* and is 3": set_to("added", functools.partial(torch.add, alpha=3), Holding),
    r"left_out was \(1, 2\) when .* and is \(2, 3\)": set_to("left_out", {2, 3}, Holding),
    r"parts\.1\.rate was 0\.25 when .* and is 4\.0": set_to(
        "parts", [SimpleNamespace(rate=0.5), SimpleNamespace(rate=4.0)], Holding
    ),
    r"inner\.act\.keywords\.negative_slope was 0\.1 when .* and is 0\.2": set_to(
        "inner.act", functools.partial(F.leaky_relu, negative_slope=0.2), Holding
    ),
    r"act\.keywords was \('negative_slope',\) when .* and is \('inplace', 'negative_slope'\)": set_to(
        "act", functools.partial(F.leaky_relu, negative_slope=0.1, inplace=False), Holding
    ),
    r"added\.args was \(\) when .* and is \(1,\)": set_to("added", functools.partial(torch.add, 1, alpha=2), Holding),
    r"parts was \['SimpleNamespace', 'SimpleNamespace'\] when": set_to(
        "parts", [SimpleNamespace(rate=0.5), SimpleNamespace(rate=0.25), SimpleNamespace(rate=4.0)], Holding
    ),
    r"held\.by was 2\.0 when .* and is 4\.0": set_to("held.by", 4.0, Holding),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[type, Any]:
    x = torch.randn(2, 3, 8)
    return {kind: made(tmp_path_factory.mktemp("files"), kind(), x) for kind in (Torchs, Own, Holding)}


@pytest.mark.parametrize("said", TOLD)
def test_other_settings_are_told_by_name(said: str, files: dict[type, Any]) -> None:
    model = TOLD[said]()
    with pytest.warns(UserWarning, match=rf"^{said}.*: this file computes what was captured$") as found:
        files[type(model)].scheduled(model)
    assert len(found) == 1 and found[0].filename == __file__


def test_settings_in_dicts_are_told(files: dict[type, Any]) -> None:
    model = Own()
    model.config.more["power"] = 4
    with pytest.warns(UserWarning, match=r"^config\.more\.power was 2 when the step was captured, and is 4: this file"):
        files[Own].scheduled(model)


def test_what_no_forward_pass_reads_may_be_another(files: dict[type, Any]) -> None:
    """Counters of a training loop, names of runs, modes, hooks, and where a model is."""
    model = Own()
    model.child.count()
    model.count, model.child.note, model.config.name, model.config.more["id"] = 5, "second run", "another", 8
    model.child.register_forward_hook(lambda *_: None)
    model.extra = 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for trained in (model, Torchs(), Holding()):
            files[type(trained)].scheduled(trained.eval()).train()(torch.randn(2, 3, 8)).backward()


def test_settings_of_which_a_file_can_say_nothing_are_left_out() -> None:
    model = Own()
    model.shift, model.limits = np.longdouble(0.5), (-1.0, torch.tensor(1.0))
    model.act = nn.GELU()
    read = settings_read(model)
    assert read[""].keys() == {
        "_hidden",
        "config.rate",
        "config.more.power",
        "kind",
        "limits",
        "limits.0",
        "none",
        "scale",
    }
    assert read["child"] == {"gain": 1.5}
