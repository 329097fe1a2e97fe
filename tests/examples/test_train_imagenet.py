"""The example trains from start to end: alone and with torchrun, ended and resumed, with the bits of plain PyTorch."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

import explorer
from explorer.models.resnet import ResNet
from tests.schedules import random_schedule

pytest.importorskip("PIL")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train_imagenet.py"
CHECKPOINT = "checkpoint.pt"
SIDE, BATCH, DEPTHS = 32, 2, (1, 1, 1, 1)
TRAINED = ["--image-size", SIDE, "--batch-size", BATCH, "--depths", *DEPTHS, "--workers", 0, "--learning-rate", 0.01]
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def command(pictures: Path, output: Path, *options: Any, launcher: Iterable[str] = ()) -> list[str]:
    arguments = [*launcher, SCRIPT, pictures, "--output", output, *TRAINED, *options]
    return [sys.executable, *map(str, arguments)]


def told(*arguments: Any, launcher: Iterable[str] = ()) -> str:
    """What a run that ends well prints."""
    run = subprocess.run(
        command(*arguments, launcher=launcher), env=environment(), capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "Warning" not in run.stderr, run.stderr
    return run.stdout


def refused(*arguments: Any) -> str:
    """The last line of what a run that is refused says."""
    run = subprocess.run(command(*arguments), env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode in (1, 2), run.stdout
    assert "Traceback" not in run.stderr
    return run.stderr.splitlines()[-1]


def saved(output: Path) -> dict[str, Any]:
    return torch.load(output / CHECKPOINT, weights_only=True)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[x], right[x]) for x in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    sizes = {"classes": 2, "training": 4, "validation": 3, "size": SIDE}
    options = [str(x) for name, value in sizes.items() for x in (f"--{name}", value)]
    subprocess.run([sys.executable, ROOT / "examples" / "make_pictures.py", folder, *options], check=True)
    return folder


def optimizer_of(tensors: list[torch.Tensor]) -> torch.optim.Optimizer:
    """As the example has it."""
    groups = [{"params": [x for x in tensors if (x.ndim > 1) is wide]} for wide in (True, False)]
    return torch.optim.SGD([groups[0] | {"weight_decay": 1e-4}, groups[1]], lr=0.01, momentum=0.9)


def schedule_for(folder: Path, distributed: str | None) -> Path:
    """For the model and batch of these tests; it recomputes, by exact implementations."""
    model = ResNet(DEPTHS, classes=2)
    batch = torch.randn(BATCH, 3, SIDE, SIDE), torch.zeros(BATCH, dtype=torch.int64)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    profile = explorer.profile(
        model, batch, loss=loss, optimizer=optimizer_of, accumulate=True, distributed=distributed
    )
    found = random_schedule(profile.graph, 1, keep=0.5)
    assert found.recomputed(profile.graph)
    found.save(folder / "schedule.json")
    profile.save(folder / "profile.json")
    return folder / "schedule.json"


@pytest.fixture(scope="module")
def schedule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return schedule_for(tmp_path_factory.mktemp("schedule"), None)


def test_ended_and_resumed_with_a_schedule_it_has_the_bits_of_plain_pytorch(
    pictures: Path, schedule: Path, tmp_path: Path
) -> None:
    options = ["--epochs", 3, "--warm-up", 1, "--accumulate", 2, "--ema", 0.9]
    out = told(pictures, tmp_path / "plain", *options)
    assert "epoch 3/3" in out
    options += ["--schedule", schedule, "--profile", schedule.with_name("profile.json")]
    scheduled = tmp_path / "scheduled"
    with subprocess.Popen(
        command(pictures, scheduled, *options), env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("epoch 1/3"):
                process.kill()
    out = told(pictures, scheduled, *options, "--resume", scheduled / CHECKPOINT)
    peaks = dict(re.findall(r"(predicted|measured) peak (.*?) of an iteration", out))
    assert peaks["predicted"] == peaks["measured"]
    assert "epoch 1/3" not in out
    assert same(saved(tmp_path / "plain"), saved(tmp_path / "scheduled"))


@pytest.mark.thorough
def test_two_processes_have_the_bits_of_plain_pytorch(pictures: Path, tmp_path: Path) -> None:
    schedule = schedule_for(tmp_path, "ddp-views")
    options = ["--epochs", 2, "--warm-up", 1, "--accumulate", 2]
    out = told(pictures, tmp_path / "plain", *options, launcher=TORCHRUN)
    assert out.count("epoch 2/2") == 1
    told(pictures, tmp_path / "scheduled", *options, "--schedule", schedule, launcher=TORCHRUN)
    assert same(saved(tmp_path / "plain"), saved(tmp_path / "scheduled"))


@pytest.mark.thorough
def test_mixed_precision_within_a_budget_has_the_bits_of_plain_pytorch(pictures: Path, tmp_path: Path) -> None:
    options = ["--epochs", 1, "--amp", "bfloat16", "--image-size", 128, "--batch-size", 4]
    told(pictures, tmp_path / "plain", *options)
    told(pictures, tmp_path / "scheduled", *options, "--budget", "90 %", "--exact")
    assert same(saved(tmp_path / "plain"), saved(tmp_path / "scheduled"))
    schedule = explorer.load_schedule(tmp_path / "scheduled" / "schedule.json")
    assert schedule.recomputed(explorer.load_profile(str(tmp_path / "scheduled" / "profile.json")).graph)


@pytest.mark.thorough
def test_updates_that_overflow_in_half_precision_do_not_count(pictures: Path, tmp_path: Path) -> None:
    told(pictures, tmp_path, "--epochs", 1, "--amp", "float16")
    state = saved(tmp_path)
    overflows = 16 - math.log2(state["scaler"]["scale"])  # each halves the first scale, 2 ** 16
    assert overflows > 0
    assert state["scheduler"]["last_epoch"] == 4 - overflows


def test_bad_input_is_told_in_a_sentence(pictures: Path, schedule: Path, tmp_path: Path) -> None:
    def said(*options: Any, data: Path = pictures) -> str:
        return refused(data, tmp_path, *options)

    assert said("--budget", "1 GiB", "--schedule", schedule).endswith("--schedule: not allowed with argument --budget")
    assert (
        said(data=tmp_path / "none")
        == f"error: there is no folder {tmp_path}/none/train; DATA must have folders train and val"
    )
    assert said("--schedule", schedule, "--batch-size", 3).startswith(
        "error: the schedule does not fit: the batch differs: "
    )
    assert said("--batch-size", 9) == f"error: {pictures}/train has 8 pictures, and an update takes 9"
