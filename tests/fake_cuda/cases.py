"""Models and precisions for a device that is not there, and one process that finds out about them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {"batch_size": 2, "sequence_length": 128},
    "unet": {"batch_size": 1, "image_size": 128},
    "unet3d": {"batch_size": 1, "volume_size": 32},
    "resnet50": {"batch_size": 8, "image_size": 64},
    "vit_b16": {"batch_size": 2},
    "mobilenet_v2": {"batch_size": 8, "image_size": 64},
    "googlenet": {"batch_size": 8, "image_size": 112},
    "vgg16": {"batch_size": 4, "image_size": 64},
}
PRECISIONS = ("float32", "bfloat16", "autocast")


def case(model: str, precision: str, *, schedules: bool = False, device: str = "cuda:0") -> dict[str, Any]:
    """A question to ``tests.fake_cuda.steps``: of a small batch, and whether schedules are run as well."""
    autocast = "bfloat16" if precision == "autocast" else None
    dtype = precision if precision == "bfloat16" else None
    how = {"dtype": dtype, "autocast": autocast, "schedules": schedules, "device": device}
    return {"model": model, "sizes": SMALL[model], **how}


def found_out(cases: list[dict[str, Any]], library: Path, *, capability: str) -> list[dict[str, Any]]:
    """By one process, which has the device before it has torch."""
    command = [sys.executable, "-m", "tests.fake_cuda.steps", str(library)]
    given = json.dumps([{**x, "capability": capability} for x in cases])
    environment = {**os.environ, "FAKE_CAPABILITY": capability, "SCHEDULE_EXPLORER_CACHE": "off"}
    ran = subprocess.run(command, check=False, input=given, capture_output=True, text=True, env=environment)
    if ran.returncode:
        raise RuntimeError(ran.stderr[-3000:])
    return json.loads(ran.stdout)
