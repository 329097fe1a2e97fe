"""What ``explore`` accepts, and what it says to the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import explorer
from explorer.autocast import Autocast
from explorer.schedule import Run, keep_all
from tests.widgets.trained import Trained
from widgets.choices.subject import USUAL, subject


@pytest.mark.parametrize(
    ("what", "more", "told"),
    [
        (3, {}, "needs a torch.nn.Module with a batch"),
        (torch.nn.Linear(1, 1), {}, "needs a sample batch"),
        (torch.nn.Linear(1, 1), {"budget": "8 elephants", "batch": torch.ones(1)}, "unknown unit 'elephants'"),
    ],
)
def test_bad_input_is_refused_at_once(what: Any, more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        explorer.explore(what, **more)


def test_a_profile_has_its_batch_already(trained: Trained) -> None:
    with pytest.raises(ValueError, match="already has its batch"):
        explorer.explore(trained.profile, trained.batch)


def test_a_model_with_its_profile_is_measured_and_not_profiled(trained: Trained) -> None:
    with explorer.explore(trained.model, trained.batch, loss=trained.loss, profile=trained.profile) as made:
        assert "profil" not in made.message
        made.wait(120)
        made.run()
        made.wait(120)
        assert made.measured_peak == made.predicted_peak


def test_another_models_profile_is_refused(trained: Trained) -> None:
    given = {"loss": trained.loss, "profile": trained.profile}
    with pytest.raises(ValueError, match="the profile is of another model"):
        explorer.explore(torch.nn.Linear(3, 4), trained.batch, **given)
    smaller = tuple(x[:1] for x in trained.batch)
    with pytest.raises(ValueError, match="the profile is for another batch"):
        explorer.explore(trained.model, smaller, **given)
    with pytest.raises(ValueError, match="leave those out"):
        explorer.explore(trained.model, trained.batch, **given, optimizer="sgd")
    estimated = explorer.estimate(trained.model, trained.batch, loss=trained.loss, device="A100-80GB")
    with pytest.raises(ValueError, match=r"was estimated for .*, and the model is on 'cpu'"):
        explorer.explore(trained.model, trained.batch, loss=trained.loss, profile=estimated)
    with pytest.raises(ValueError, match="profile is 3; it must be a Profile"):
        explorer.explore(trained.model, trained.batch, loss=trained.loss, profile=3)


def test_opens_a_saved_profile(trained: Trained, tmp_path: Path) -> None:
    trained.profile.save(tmp_path / "tiny.json")
    with explorer.explore(str(tmp_path / "tiny.json"), budget="1 GiB") as made:
        made.wait(120)
        assert made.budget_bytes == 2**30
        assert made.schedule is not None


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("truncated.json", "not complete JSON.*truncated"),
        ("missing.json", "cannot read .*missing.json"),
        ("no-such-model", "no bundled profile 'no-such-model'; bundled: "),
    ],
)
def test_a_profile_that_cannot_be_read_is_told_by_the_widget(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    trained.profile.save("whole.json")
    Path("truncated.json").write_text(Path("whole.json").read_text()[:500])
    with explorer.explore(name) as made:
        with pytest.raises(ValueError, match=told):
            made.wait(60)
        assert re.match(f"Opening failed: .*{told}.*call explore again", made.message)
        assert made.status == "failed"
        assert made._view.controls.slider.disabled


def test_autocast_is_that_of_the_call_although_another_thread_profiles() -> None:
    model, batch = torch.nn.Linear(4, 4), torch.ones(2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        inside = subject(model, batch, loss=None, device=None, autocast=None, iteration=USUAL)
    asked = subject(model, batch, loss=None, device=None, autocast="bfloat16", iteration=USUAL)
    for found in (inside, asked):
        profile = found.profiled(lambda *_: None)
        assert profile.graph.autocast == Autocast("bfloat16")
        found.measured(keep_all(profile.graph), found.example(), steps=1, plain=True, stage=lambda *_: None)
    with pytest.raises(ValueError, match="autocast is 'int8'; allowed"):
        explorer.explore(model, batch, autocast="int8")


class _Chain(torch.nn.Module):
    """Layers whose middles need not be kept where one kernel makes them."""

    def __init__(self) -> None:
        """Random weights."""
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(256, 256) for _ in range(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A number."""
        for layer in self.layers:
            y = layer(x)
            x = x + torch.tanh(y) * torch.sigmoid(y)
        return x.square().mean()


@pytest.mark.thorough  # compiles
def test_kernels_of_the_compiler_are_chosen_and_run() -> None:
    model, batch = _Chain(), torch.randn(256, 256)
    with explorer.explore(model, batch, fuse=True) as made:
        made.wait(300)
        assert made.schedule is not None
        used = {x.implementation for x in made.schedule.steps if isinstance(x, Run)}
        assert any("fused" in x for x in used), used
        made.run()
        made.wait(300)
        assert made.measurement is not None


def test_schedules_of_an_estimate_do_not_run_where_there_is_no_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one here")
    found = subject("resnet50", None, loss=None, device=None, autocast=None, iteration=USUAL)
    profile = found.profiled(lambda *_: None)
    assert profile.device.estimated
    with pytest.raises(ValueError, match=r"estimated for A100-80GB.*there is none"):
        found.measured(keep_all(profile.graph), found.example(), steps=1, plain=False, stage=lambda *_: None)
