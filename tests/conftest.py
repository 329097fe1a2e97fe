"""What all tests share: threads, random examples, and which tests need a GPU."""

from __future__ import annotations

import os

# Before torch is imported anywhere. Passive: waiting threads leave the cores to other processes.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", "2")
# Every test solves for itself; those of the memory name a folder.
os.environ["SCHEDULE_EXPLORER_CACHE"] = "off"

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:
    # The tests for a GPU do without, so that they run where there is torch and little else.
    settings = None
if settings is not None:
    # A slow machine is no failure, and the same code gives the same verdict twice.
    settings.register_profile("explorer", deadline=None, derandomize=True)
    settings.load_profile("explorer")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The flag that lets the GPU tests run."""
    parser.addoption("--gpu", action="store_true", help="run the tests that need a CUDA device too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the GPU tests unless they were asked for."""
    if config.getoption("--gpu"):
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device; run with --gpu"))
