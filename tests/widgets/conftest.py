"""A real model, profiled once, and explorers of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import explorer
from explorer.device_profile import Profile
from explorer.schedule import keep_all
from explorer.simulation import simulate
from explorer.solvers import SolveSession
from explorer.solvers.curves import _CURVE_EFFORTS
from explorer.solvers.options import Options
from tests.widgets.trained import Trained, train
from widgets import Explorer

_MOST_S = 0.2
_PATIENCE = 4


@pytest.fixture(scope="session")
def trained() -> Trained:
    """Profiled once for all tests."""
    return train()


@pytest.fixture(scope="session", autouse=True)
def impatient() -> Iterator[None]:
    """No test here is about how good an answer is: a solve ends at once, and a curve is searched once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("widgets.jobs.solver.SolveSession", _Impatient)
        patch.setattr("explorer.solvers.curves._CURVE_EFFORTS", _CURVE_EFFORTS[:1])
        yield


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Nor is one about how long it takes: solvers leave the processor to whatever else runs on a busy machine."""
    wait = Explorer.wait
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Explorer, "wait", lambda self, timeout=None: wait(self, timeout and _PATIENCE * timeout))
        yield


class _Impatient(SolveSession):
    def __init__(self, profile: Profile, *, time_limit: float, **more: Any) -> None:
        super().__init__(profile, time_limit=min(time_limit, _MOST_S), **more)

    def reconfigure(self, options: Options) -> None:
        super().reconfigure(replace(options, time_limit=min(options.time_limit, _MOST_S)))


@pytest.fixture(scope="session")
def shared(trained: Trained) -> Iterator[Explorer]:
    """An explorer of that profile, opened once for all tests that leave it open."""
    with explorer.explore(trained.profile, budget=plain_peak(trained)) as made:
        made.wait(120)
        yield made


@pytest.fixture
def opened(shared: Explorer, trained: Trained) -> Explorer:
    """That explorer, asked for nothing special, and settled where nothing has to be recomputed."""
    shared._view.controls.file_name.value = ""
    shared.selection, shared.curves = "", []
    shared.configure(optimizations="all", exact=False, pins={})
    shared.budget_bytes = plain_peak(trained)
    return shared.wait(60)


def plain_peak(trained: Trained) -> int:
    """What a step takes without recomputation."""
    return simulate(trained.profile, keep_all(trained.profile.graph)).peak_bytes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
