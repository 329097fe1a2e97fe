"""The program that trains with a schedule, for every bundled profile and for models of one's own."""

from __future__ import annotations

import ast
import copy
import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import SequenceClassifierOutput

import explorer
from explorer import model_source
from explorer.capture.batch import dtype_name
from explorer.graph import TensorSpec
from explorer.iteration import Iteration
from explorer.models import TRANSFORMERS
from explorer.profiles.loading import bundled_model, bundled_profiles
from explorer.solution import Solution, Status
from tests.widgets.checking import panel_of
from tests.widgets.panels.test_export import Saved
from widgets.panels.export import ExportPanel
from widgets.snippet import snippet


def plain(profile: explorer.Profile) -> Solution:
    """A schedule that needs no search."""
    schedule = explorer.keep_all(profile.graph)
    line = explorer.simulate(profile, schedule)
    return Solution(Status.FEASIBLE, line.peak_bytes, schedule, line.time_ms, line.peak_bytes)


class Reached(Exception):  # noqa: N818 - no error
    """The program has its model and its schedule."""


@pytest.mark.parametrize("name", bundled_profiles())
def test_the_program_of_every_bundled_profile_builds_the_schedules_model(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without memory, and without the device: what ``apply`` is given has the parameters and the batch it wants."""
    profile = explorer.load_profile(name)
    solution = plain(profile)
    moved = []

    def apply(model: Any, schedule: explorer.Schedule, batch: Any, *, loss: Any) -> None:
        assert callable(loss) or profile.graph.model == "GPT" or bundled_model(name) in TRANSFORMERS
        assert schedule is solution.schedule
        named = model.named_parameters()
        assert profile.graph.parameters == tuple(TensorSpec(x, (*y.shape,), dtype_name(y.dtype)) for x, y in named)
        assert [(tuple(x.shape), dtype_name(x.dtype)) for x in pytree.tree_leaves(batch)] == [
            (x.shape, x.dtype) for x in profile.graph.batch
        ]
        raise Reached

    monkeypatch.setattr(explorer, "apply", apply)
    monkeypatch.setattr(explorer, "load_schedule", lambda _: solution.schedule)
    monkeypatch.setattr(model_source, "moved", lambda made, device: moved.append(device) or made)
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="any.json", bundled=bundled_model(name)))
    with torch.device("meta"), pytest.raises(Reached):
        runpy.run_path(str(program))
    assert moved == ([] if profile.device.kind == "cpu" else [profile.device.kind])


def test_the_program_of_the_small_bundled_profile_trains(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As its buttons save it, from beginning to end."""
    # Bit-exact: what else there is may fall back, with a warning, as the weights of such a short training come out.
    with explorer.explore("resnet50-small-cpu", exact=True, budget="80 %", panels=["export"]) as opened:
        opened.wait(120)
        panel = panel_of(opened, "export")
        assert isinstance(panel, ExportPanel)
        saved = Saved(panel, monkeypatch)
        for key in ("schedule", "program", "report"):
            panel.save(key)
        assert panel.said.value == ""
        peak = opened.predicted_peak
    for message in saved.messages:
        (folder / message["name"]).write_text(message["content"])
    runpy.run_path(str(next(folder.glob("*.py"))))
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\d+ \d+\.\d+$", printed, re.MULTILINE)) == 3
    said = re.search(r"^(\d+) bytes at the peak; predicted are (\d+)$", printed, re.MULTILINE)
    assert said is not None
    assert int(said[2]) == peak
    # The processor that was profiled took more scratch memory for its convolutions than one with narrower vectors does.
    assert 0.99 * peak < int(said[1]) < 1.001 * peak


class Keywords(nn.Module):
    """Takes keywords, as Hugging Face's models do, and returns its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, *, batch_in: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return (self.linear(batch_in) - labels).square().mean()


def test_a_batch_of_keywords_is_passed_as_such(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, batch = Keywords(), {"batch_in": torch.randn(8, 4), "labels": torch.randn(8, 4)}
    profile = explorer.profile(model, batch)
    solution = plain(profile)
    assert solution.schedule is not None
    solution.schedule.save(folder / "own.json")
    own = ModuleType("your_module")
    own.__dict__.update(make_model=lambda: model, make_batch=lambda: batch)
    monkeypatch.setitem(sys.modules, "your_module", own)
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="own.json", bundled=None))
    assert "a dict: batch_in float32[8, 4], labels" in program.read_text()
    runpy.run_path(str(program))
    assert f"{solution.peak_bytes} bytes at the peak" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_program_trains_under_what_was_captured(
    dtype: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, batch = Keywords(), {"batch_in": torch.randn(8, 4), "labels": torch.randn(8, 4)}
    profile = explorer.profile(model, batch, autocast=dtype)
    solution = plain(profile)
    assert solution.schedule is not None
    solution.schedule.save(folder / "own.json")
    own = ModuleType("your_module")
    own.__dict__.update(make_model=lambda: model, make_batch=lambda: batch)
    monkeypatch.setitem(sys.modules, "your_module", own)
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="own.json", bundled=None))
    assert ("GradScaler('cpu')" in program.read_text()) == (dtype == "float16")
    runpy.run_path(str(program))
    assert f"{solution.peak_bytes} bytes at the peak" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ['x"""\nprint("run")\n"""', "C:\\users\\new", "x\\", '"', "\x1b[31mred", "a\u2028print('run')", "\ud800"]
)
def test_names_in_a_profile_are_never_run(name: str) -> None:
    profile = explorer.load_profile("resnet50-small-cpu")
    batch = (TensorSpec(f"batch[0]{name}", (1,), "float32"), *profile.graph.batch)
    hostile = replace(
        profile,
        graph=replace(profile.graph, model=name, batch=batch),
        device=replace(profile.device, name=name),
    )
    program = snippet(hostile, plain(profile), file=name, bundled=None)
    tree = ast.parse(program)
    assert not any(isinstance(x, ast.Constant) and x.value == "run" for x in ast.walk(tree))
    normal = ast.parse(snippet(profile, plain(profile), file="a.json", bundled=None))
    assert [type(x) for x in tree.body] == [type(x) for x in normal.body]
    assert all(x.isprintable() or x == "\n" for x in program)


@pytest.mark.parametrize(
    "planned",
    [
        {"optimizer": "adamw-foreach"},
        {"optimizer": "momentum", "accumulate": True},
        {"optimizer": "adam", "update": "within"},
        {"accumulate": True},
    ],
    ids=str,
)
def test_the_program_trains_as_was_planned(
    planned: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, batch = Keywords(), {"batch_in": torch.randn(8, 4), "labels": torch.randn(8, 4)}
    profile = explorer.profile(model, batch, **planned)
    solution = plain(profile)
    assert solution.schedule is not None
    solution.schedule.save(folder / "own.json")
    own = ModuleType("your_module")
    own.__dict__.update(make_model=lambda: model, make_batch=lambda: batch)
    monkeypatch.setitem(sys.modules, "your_module", own)
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="own.json", bundled=None))
    runpy.run_path(str(program))
    assert f"{solution.peak_bytes} bytes at the peak; predicted are {solution.peak_bytes}" in capsys.readouterr().out


class Returning(nn.Module):
    """Returns more than a tensor."""

    def __init__(self, put: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.put = nn.Linear(4, 4), put

    def forward(self, x: torch.Tensor) -> Any:
        """A loss among others."""
        logits = self.linear(x)
        return self.put(logits.square().mean(), logits)


class Answer:
    """An object of one's own."""

    def __init__(self, **held: Any) -> None:
        """Holds it."""
        self.__dict__.update(held)


@pytest.mark.parametrize(
    "put",
    [
        lambda loss, logits: {"loss": loss, "logits": logits},
        lambda loss, logits: (loss, logits),
        lambda loss, logits: (logits, {"parts": [loss, loss.detach(), None, "of one"]}),
        lambda loss, logits: SequenceClassifierOutput(loss=loss, logits=logits),
        lambda loss, logits: Answer(loss=loss, logits=logits),
        lambda loss, logits: (loss, 2 * loss, logits),
        lambda _, logits: [logits, logits.exp()],
    ],
    ids=["dict", "tuple", "nested", "Hugging Face", "object", "two losses", "no scalar"],
)
@pytest.mark.parametrize("dtype", [None, "float16"])
def test_a_model_that_returns_more_than_a_tensor_is_trained_on_its_losses(
    put: Any, dtype: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As eager mode trains it, on the sum of its scalars."""
    model, batch = Returning(put), (torch.randn(8, 4),)
    alone = copy.deepcopy(model)
    profile = explorer.profile(model, batch, autocast=dtype, optimizer="sgd")
    solution = plain(profile)
    assert solution.schedule is not None
    solution.schedule.save(folder / "own.json")
    own = ModuleType("your_module")
    own.__dict__.update(make_model=lambda: model, make_batch=lambda: batch)
    monkeypatch.setitem(sys.modules, "your_module", own)
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="own.json", bundled=None))
    names = runpy.run_path(str(program))
    assert f"{solution.peak_bytes} bytes at the peak" in capsys.readouterr().out
    if dtype is None:
        optimizer = torch.optim.SGD(alone.parameters(), lr=0.01)
        for _ in range(3):
            names["loss_of"](alone(*batch)).backward()
            optimizer.step()
            optimizer.zero_grad()
        assert all(torch.equal(x, y) for x, y in zip(alone.parameters(), model.parameters(), strict=True))


class MyOptimizer(torch.optim.SGD):
    """Of one's own."""


class AdamW(torch.optim.AdamW):
    """Called as PyTorch's is."""


@pytest.mark.parametrize("kind", [MyOptimizer, AdamW])
def test_an_optimizer_of_ones_own_is_ones_own_to_make(
    kind: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, batch = Keywords(), {"batch_in": torch.randn(8, 4), "labels": torch.randn(8, 4)}
    profile = explorer.profile(model, batch, optimizer=lambda x: kind(x, lr=0.1))
    assert profile.graph.iteration.optimizer is not None
    assert profile.graph.iteration.optimizer.startswith(f"custom.{kind.__name__}")
    solution = plain(profile)
    assert solution.schedule is not None
    solution.schedule.save(folder / "own.json")
    own = ModuleType("your_module")
    make = {"make_optimizer": lambda x: kind(x, lr=0.1)}
    own.__dict__.update(make_model=lambda: model, make_batch=lambda: batch, **make)
    monkeypatch.setitem(sys.modules, "your_module", own)
    program = folder / "train.py"
    program.write_text(snippet(profile, solution, file="own.json", bundled=None))
    runpy.run_path(str(program))
    assert f"{solution.peak_bytes} bytes at the peak; predicted are {solution.peak_bytes}" in capsys.readouterr().out


def test_a_description_of_an_optimizer_is_no_code() -> None:
    profile = explorer.profile(
        Keywords(), {"batch_in": torch.randn(8, 4), "labels": torch.randn(8, 4)}, optimizer="sgd"
    )
    solution = plain(profile)
    assert solution.schedule is not None
    planned = Iteration(optimizer="SGD(lr=__import__('os').abort())")
    schedule = replace(solution.schedule, identity=replace(solution.schedule.identity, iteration=planned))
    program = snippet(profile, replace(solution, schedule=schedule), file="own.json", bundled=None)
    assert "abort" not in program
    assert "your_module.make_optimizer(model.parameters())" in program
