"""What is there before the search is: the plain step, and whatever a user does meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

import explorer
from explorer.solvers.search.plan_search import PlanSearch
from tests.widgets.conftest import plain_peak
from tests.widgets.trained import Trained
from widgets import Explorer
from widgets.panels.catalogue import PANELS


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """The search is being compiled until this is set."""
    compiled, ready = threading.Event(), PlanSearch.ready

    def late(self: PlanSearch, *, timeout: float = 600.0) -> bool:
        compiled.wait(60)
        return ready(self, timeout=timeout)

    monkeypatch.setattr(PlanSearch, "ready", late)
    monkeypatch.setattr("widgets.jobs.charting._LOADED_S", 0.01)
    monkeypatch.setattr("explorer.solvers.search.annealing.was_compiled", lambda: False)
    yield compiled
    compiled.set()


def drawn(opened: Explorer) -> None:
    """Wait for the first plot."""
    for _ in range(1000):
        if opened._display.scene is not None and "compiled first" in opened.message:
            return
        time.sleep(0.02)
    raise AssertionError(opened.message)


def test_the_plain_step_is_drawn_before_the_search_is_compiled(trained: Trained, loading: threading.Event) -> None:
    with explorer.explore(trained.profile, panels=PANELS) as opened:
        drawn(opened)
        assert opened.status == "opening"
        assert opened._display.scene is not None
        assert opened._display.scene.known.instant == ()
        assert opened._display.scene.keep_all.peak_bytes == plain_peak(trained)
        for panel in opened._view.panels.values():
            panel.show(opened._display.scene)
        with pytest.raises(ValueError, match="nothing is open yet"):
            opened.play()
        with pytest.raises(ValueError, match="no schedule to run yet"):
            opened.run()
        opened.curves = ["chen-root"]
        opened.selection = "blocks.1"
        opened.budget = "90 %"
        loading.set()
        opened.wait(120)
        assert opened.solution is not None
        assert opened.solution.budget_bytes == opened.budget_bytes == int(0.9 * plain_peak(trained))
        assert opened.selection == "blocks.1"
        assert len(opened._display.scene.known.instant) > 1
        assert opened._display.scene.known.others


def test_a_large_opening_does_not_say_that_it_compiles_what_is_compiled(
    trained: Trained, loading: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    def was_compiled() -> bool:
        asked.set()
        return True

    monkeypatch.setattr("explorer.solvers.search.annealing.was_compiled", was_compiled)
    with explorer.explore(trained.profile) as opened:
        assert asked.wait(120)
        time.sleep(0.1)  # for what would be said now
        said = opened.message
        loading.set()
        opened.wait(120)
    assert said == "Finding the smallest feasible budget"


def test_closing_before_the_search_is_compiled(trained: Trained, loading: threading.Event) -> None:
    with explorer.explore(trained.profile) as opened:
        drawn(opened)
    loading.set()
    assert opened.status == "closed"
