"""The example trains from start to end: alone and with torchrun, ended and resumed, with the bits of plain PyTorch."""

from __future__ import annotations

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

pytest.importorskip("PIL")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "train_imagenet.py"
CHECKPOINT = "checkpoint.pt"
SIDE, BATCH, DEPTHS = 32, 2, (1, 1, 1, 1)
TRAINED = ["--image-size", SIDE, "--batch-size", BATCH, "--depths", *DEPTHS, "--workers", 0, "--learning-rate", 0.01]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0"]


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def started(pictures: Path, output: Path, *options: Any, launcher: Iterable[str] = ()) -> subprocess.Popen[str]:
    arguments = [*launcher, SCRIPT, pictures, "--output", output, *TRAINED, *options]
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "Warning" not in err, err
    return out


def refused(pictures: Path, output: Path, *options: Any) -> str:
    process = started(pictures, output, *options)
    out, err = process.communicate()
    assert process.returncode in (1, 2), out
    assert "Traceback" not in err
    return err.splitlines()[-1]


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


@pytest.fixture(scope="module")
def schedule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For the model and batch of these tests; it recomputes, by exact implementations."""
    model = ResNet(DEPTHS, classes=2)
    batch = torch.randn(BATCH, 3, SIDE, SIDE), torch.zeros(BATCH, dtype=torch.int64)
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    profile = explorer.profile(model, batch, loss=loss, optimizer="momentum")
    smallest = explorer.smallest_budget(profile, exact=True, time_limit=1).schedule
    assert smallest is not None
    assert smallest.recomputed(profile.graph)
    folder = tmp_path_factory.mktemp("schedule")
    smallest.save(folder / "schedule.json")
    profile.save(folder / "profile.json")
    return folder / "schedule.json"


def test_ended_and_resumed_with_a_schedule_it_has_the_bits_of_plain_pytorch(
    pictures: Path, schedule: Path, tmp_path: Path
) -> None:
    options = ["--epochs", 3, "--warm-up", 1, "--accumulate", 2, "--ema", 0.9]
    out = ended(started(pictures, tmp_path / "plain", *options))
    assert "epoch 3/3" in out
    options += ["--schedule", schedule, "--profile", schedule.with_name("profile.json")]
    process = started(pictures, tmp_path / "scheduled", *options)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch 1/3"):
            process.kill()
    process.communicate()
    out = ended(started(pictures, tmp_path / "scheduled", *options, "--resume", tmp_path / "scheduled" / CHECKPOINT))
    peaks = dict(re.findall(r"(predicted|measured) peak (.*?) of a step", out))
    assert peaks["predicted"] == peaks["measured"]
    assert "epoch 1/3" not in out
    assert same(saved(tmp_path / "plain"), saved(tmp_path / "scheduled"))


def test_two_processes_have_the_bits_of_plain_pytorch(pictures: Path, schedule: Path, tmp_path: Path) -> None:
    options = ["--epochs", 2, "--warm-up", 1, "--accumulate", 2]
    out = ended(started(pictures, tmp_path / "plain", *options, launcher=TORCHRUN))
    assert out.count("epoch 2/2") == 1
    ended(started(pictures, tmp_path / "scheduled", *options, "--schedule", schedule, launcher=TORCHRUN))
    assert same(saved(tmp_path / "plain"), saved(tmp_path / "scheduled"))


def test_mixed_precision_with_a_budget(pictures: Path, tmp_path: Path) -> None:
    options = ["--epochs", 1, "--budget", "80 %", "--amp", "float16"]
    out = ended(started(pictures, tmp_path, *options))
    assert "epoch 1/1" in out
    assert explorer.load_schedule(tmp_path / "schedule.json").budget_bytes is not None
    assert saved(tmp_path)["scaler"]["scale"] > 0


def test_bad_input_is_told_in_a_sentence(pictures: Path, schedule: Path, tmp_path: Path) -> None:
    def said(*options: Any, data: Path = pictures) -> str:
        return refused(data, tmp_path, *options)

    assert said("--budget", "1 GiB", "--schedule", schedule).endswith("--schedule: not allowed with argument --budget")
    assert (
        said(data=tmp_path / "none")
        == f"error: there is no folder {tmp_path}/none/train; DATA must have folders train and val"
    )
    assert said("--schedule", schedule, "--batch-size", 3).startswith("error: the schedule does not fit: batch")
    assert said("--batch-size", 9) == f"error: {pictures}/train has 8 pictures, and an update takes 9"
