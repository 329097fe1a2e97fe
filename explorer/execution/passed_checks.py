"""Which schedules have passed their self-check: an empty file for each in the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
from functools import cache
from pathlib import Path

import torch

from explorer.capture import Capture
from explorer.schedule import Schedule
from explorer.storage.cache_folder import cache_folder


def key_of(capture: Capture, schedule: Schedule, device: torch.device) -> str:
    """Equal where a check would be the same: graph, schedule, device, PyTorch's version and this package's code."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    parts = (str(capture.traced.graph), schedule, name, str(torch.__version__), _sources())
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


@cache
def _sources() -> str:
    """Changes with this package's code."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    return hashlib.sha256(b"".join(x.read_bytes() for x in files)).hexdigest()


def is_remembered(key: str) -> bool:
    """Has it passed before?"""
    folder = cache_folder()
    return folder is not None and (folder / "checks" / key).exists()


def remember(key: str) -> None:
    """It has passed now; where nothing can be written, it will be checked again."""
    folder = cache_folder()
    if folder is not None:
        with contextlib.suppress(OSError):
            (folder / "checks").mkdir(parents=True, exist_ok=True)
            (folder / "checks" / key).touch()
