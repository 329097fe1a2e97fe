"""Captures and steps of a CUDA device, on fake tensors: the same graphs as estimates', memory where it is predicted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fake_cuda.cases import PRECISIONS, SMALL, case, found_out
from tests.fake_cuda.device import built, why_not

pytestmark = pytest.mark.skipif((_why := why_not()) is not None, reason=_why or "")

BESIDE_BYTES = {"unet3d, float32": 0, "unet, float32": 2**12, "vgg16, float32": 2**17}
"""What may be followed beside the storages that are predicted, to the byte; others: the predicted workspace."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("fake_cuda"), computing=False)


def check(cases: list[dict[str, Any]], found: list[dict[str, Any]]) -> None:
    for given, what in zip(cases, found, strict=True):
        told = f"{given['model']}, {given['dtype'] or given['autocast'] or 'float32'}"
        assert what["difference"] is None, f"{told}: {what['difference']}"
        assert len(what["runs"]) == 3 * given["schedules"]
        for run in what["runs"]:
            least, most = run["without_workspace_bytes"], run["with_workspace_bytes"]
            # Where calls are kernels that allocate nothing by themselves in fake tensors, workspaces are not followed.
            most = min(most, least + BESIDE_BYTES.get(told, most))
            assert least <= run["followed_bytes"] <= most, f"{told}: {run}"
            # A few numbers are made on the CPU, and copied.
            assert sum(run["elsewhere"].values()) <= 1024, f"{told}: {run['elsewhere']}"


def test_a_gpu_captures_what_an_estimate_captures(library: Path) -> None:
    """And steps by schedules take the memory that is predicted, on the device that the model is on."""
    cases = [
        case("gpt2", "bfloat16"),
        case("unet", "autocast"),
        case("unet3d", "float32", schedules=True, device="cuda:1"),
    ]
    check(cases, found_out(cases, library, capability="9.0"))


@pytest.mark.parametrize(
    "capability", ["9.0", *(pytest.param(x, marks=pytest.mark.thorough) for x in ("6.0", "7.5", "8.0", "8.9", "12.0"))]
)
def test_attention_of_all_kinds_is_that_of_an_estimate(capability: str, library: Path) -> None:
    command = [sys.executable, "-m", "tests.fake_cuda.attention", str(library)]
    environment = {**os.environ, "FAKE_CAPABILITY": capability, "SCHEDULE_EXPLORER_CACHE": "off"}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout) == {"cases": 24, "others": []}


@pytest.mark.thorough
@pytest.mark.parametrize("capability", ["8.0", "9.0"])
@pytest.mark.parametrize("model", SMALL)
def test_all_models_in_all_precisions(model: str, capability: str, library: Path) -> None:
    cases = [case(model, x, schedules=True) for x in PRECISIONS]
    check(cases, found_out(cases, library, capability=capability))
