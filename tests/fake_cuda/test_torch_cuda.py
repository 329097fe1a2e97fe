"""Steps on a CUDA device that is not there and computes all the same: the checks for a GPU, streams, too little memory.

Thorough, all of it: the device is compiled first, in half a minute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cuda.device import built, why_not

pytestmark = [
    pytest.mark.skipif((_why := why_not()) is not None, reason=_why or ""),
    pytest.mark.thorough,
]

CHECKS = (
    *(
        f"{what}, {model}"
        for what in ("gradients", "implementations", "peaks")
        for model in ("resnet50", "unet", "gpt2")
    ),
    *("estimate, resnet50", "estimates, float32", "estimates, bfloat16", "estimate under autocast", "cuDNN"),
    *("dropout", "one buffer", "another stream", "CUDA graph", "out of memory"),
)


def ran(*arguments: str) -> str:
    """What a module says that has the device; it must end well."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.fake_cuda", *arguments]
    environment = {**os.environ, "FAKE_CUDA": str(built()), "SCHEDULE_EXPLORER_CACHE": "off"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.mark.parametrize("check", CHECKS)
def test_checks_for_a_gpu(check: str) -> None:
    """As they are, with the batches that they take on a CPU."""
    assert ", 0 failed" in ran("tests.gpu", "--only", check)


@pytest.mark.parametrize("model", ["residual", "unet", "gpt"])
def test_memory_that_fails_at_any_allocation(model: str) -> None:
    """Always the named error, nothing that stays allocated, no gradients, and the next step as if nothing had been."""
    for found in json.loads(ran("tests.fake_cuda.failing", model, "cuda:0", "1")):
        assert found["tried"] == found["allocations"] > 80
        assert not found["wrong"], found["wrong"][:5]


def test_streams_devices_and_threads() -> None:
    said: dict[str, list[str]] = json.loads(ran("tests.fake_cuda.streams"))
    assert len(said) == 9
    assert not any(said.values()), said


def test_blocks_that_are_not_split_are_told() -> None:
    """Each of the tensors that are there at once has half a MiB that nobody asked for."""
    found: dict[str, int] = json.loads(ran("tests.fake_cuda.unsplit"))
    assert found["unsplit_bytes"] > 0
    assert found["unsplit_bytes"] % 2**19 == 0
    assert 0 <= found["peak_bytes"] - found["requested_bytes"] - found["unsplit_bytes"] < 2**14
    assert abs(found["rest_bytes"]) <= 2**20


def test_steps_in_one_buffer() -> None:
    """By the allocator that a GPU gets, around what stands for PyTorch's caching one."""
    said: dict[str, list[str]] = json.loads(ran("tests.fake_cuda.buffered"))
    assert len(said) == 8
    assert not any(said.values()), said


def test_the_page_of_a_simulated_device_says_so(tmp_path: Path) -> None:
    """And shows no times; the archive holds it too."""
    folder = tmp_path / "results"
    command = [sys.executable, "-m", "benchmarks.gpu", str(folder), "--simulated", "--items", "layer"]
    environment: dict[str, Any] = {**os.environ, "FAKE_CUDA": str(built())}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
    page = (folder / "page.md").read_text(encoding="utf-8")
    assert "no GPU took part" in page
    assert " ms" not in page
    assert folder.with_name("results.tar.gz").exists()
