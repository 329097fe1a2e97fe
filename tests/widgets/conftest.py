"""A real model, profiled once, and explorers of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import explorer
from explorer.schedule import keep_all
from explorer.simulation import simulate
from tests.widgets.trained import Trained, train
from widgets import Explorer


@pytest.fixture(scope="session")
def trained() -> Trained:
    """Profiled once for all tests."""
    return train()


@pytest.fixture
def opened(trained: Trained) -> Iterator[Explorer]:
    """An explorer of that profile, settled where nothing has to be recomputed."""
    peak_bytes = simulate(trained.profile, keep_all(trained.profile.graph)).peak_bytes
    with explorer.explore(trained.profile, budget=peak_bytes) as made:
        made.wait(120)
        yield made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
