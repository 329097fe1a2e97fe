"""In what order an answer is improved."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace

import pytest

from explorer.solvers.monet.breeding import Breeder
from explorer.solvers.monet.knowledge import Knowledge
from explorer.solvers.monet.proving import _News
from explorer.solvers.monet.refinement import refine
from explorer.solvers.options import Options
from explorer.solvers.search.plan_search import PlanSearch
from explorer.solvers.strategy import ALL_STARTS, Proving, Start
from tests.solvers.graphs import chain


def test_plans_are_bred_in_a_share_of_the_effort_once_each_kind_of_search_had_its_turn(monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []

    def improve(*_: object, starts: tuple[Start, ...], **__: object) -> None:
        done.append(starts[0].name)

    def breed(_: Breeder) -> float:
        done.append("breeding")
        return 1.0

    monkeypatch.setattr(PlanSearch, "improve", improve)
    monkeypatch.setattr(Breeder, "breed", breed)
    ended = threading.Event()
    monkeypatch.setattr("explorer.solvers.monet.proving.Prover.prove", lambda _: ended.wait(60))
    options = Options(time_limit=60.0, gap=0.0)
    knowledge = Knowledge(options.problem(chain(12)))
    budget_bytes = knowledge.search.keep_all_peak_bytes - 1
    refine(knowledge, budget_bytes, options, should_stop=lambda: len(done) > 20 and not ended.set())
    first = done.index("breeding")
    assert done[: len(ALL_STARTS)] == [x.name for x in ALL_STARTS]
    assert first >= len(ALL_STARTS)
    searched = sum(1.3**number for number in range(first)) - options.strategy.searching.first
    bred = next(number for number, x in enumerate(done[first:]) if x != "breeding")
    assert bred == math.ceil(searched)


def test_news_are_stale_once_there_were_none_for_as_long_as_all_of_them_took(monkeypatch: pytest.MonkeyPatch):
    now_s = 0.0
    monkeypatch.setattr("explorer.solvers.monet.proving.time", SimpleNamespace(monotonic=lambda: now_s))
    news = _News(100.0, Proving())
    now_s = 50.0
    assert not news.stale(100.0)  # a large program may take that long until its first
    assert not news.stale(101.0)
    now_s = 60.0
    news.heard()
    now_s = 119.0
    assert not news.stale(101.001)  # too small a rise to count
    now_s = 121.0
    assert news.stale(101.001)
    assert not news.stale(102.0)


def test_news_that_come_at_once_are_not_stale_at_once(monkeypatch: pytest.MonkeyPatch):
    now_s = 0.0
    monkeypatch.setattr("explorer.solvers.monet.proving.time", SimpleNamespace(monotonic=lambda: now_s))
    news = _News(100.0, Proving())
    news.heard()
    now_s = 1.9
    assert not news.stale(100.0)
    now_s = 2.1
    assert news.stale(100.0)
