"""In what order an answer is improved."""

from __future__ import annotations

import threading

import pytest

from explorer.solvers.instant import PlanSearch
from explorer.solvers.options import Options
from explorer.solvers.planner import Planner
from explorer.solvers.refinement import refine
from explorer.solvers.rivals import Rivals
from tests.solvers.graphs import chain


def test_each_kind_of_search_has_its_turn_before_blueprints(monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []

    def improve(*_: object, seed: int, **__: object) -> None:
        done.append(f"kind {seed % 4}")

    def breed(_: Rivals) -> float:
        done.append("breeding")
        return 1.0

    monkeypatch.setattr(PlanSearch, "improve", improve)
    monkeypatch.setattr(Rivals, "breed", breed)
    monkeypatch.setattr(Rivals, "has_blueprints", property(lambda _: len(done) < 6))
    ended = threading.Event()
    monkeypatch.setattr("explorer.solvers.refinement._Refinement.prove", lambda _: ended.wait(60))
    options = Options(time_limit=60.0, gap=0.0)
    planner = Planner(options.problem(chain(12)))
    budget_bytes = planner.search.keep_all_peak_bytes - 1
    refine(planner, budget_bytes, options, should_stop=lambda: len(done) > 6 and not ended.set())
    assert sorted(done[:4]) == [f"kind {x}" for x in range(4)]
    assert done[4:7] == ["breeding", "breeding", "kind 1"]
